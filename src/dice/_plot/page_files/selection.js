// What the selected cells are: their labels and probabilities, level by level and view by view, their sets, and genes.
const SHOWN = 6;

/** Mean probability of every label among some cells, as [label, mean] from the largest down. */
function meanProbabilities(labels, cells) {
  const sums = new Float64Array(labels.names.length);
  for (const i of cells) for (let j = 0; j < labels.kept; j++) sums[labels.codes[i * labels.kept + j]] += labels.given[i * labels.kept + j];
  return Array.from(sums, (sum, label) => [label, sum / UNIT / cells.length]).sort((a, b) => b[1] - a[1]);
}

function part(parent, title, note = "") {
  const made = element("div", "", parent, "part");
  element("h3", title, made);
  if (note) element("p", note, made, "hint");
  return element("div", "", made, "rows");
}

/** The most frequent values of a column among some cells. */
function frequent(parent, title, column, cells, most = 4) {
  if (!column || !column.labels) return;
  const found = counted(column.values, cells, column.labels.length), into = part(parent, title);
  for (const [code, count] of found.slice(0, most)) {
    const name = code < column.labels.length ? column.labels[code] : "NA";
    row(into, { name, color: column.colors?.[code] ?? null, share: count / cells.length, figure: number(count) });
  }
  if (found.length > most) element("p", `and ${found.length - most} more`, into, "hint");
}

function showProbabilities(parent, labels, cells) {
  const into = part(parent, cells.length > 1 ? "Mean probability of labels" : "Probability of labels");
  const means = meanProbabilities(labels, cells);
  for (const [label, mean] of means.slice(0, SHOWN)) {
    if (mean >= 0.0005) row(into, { name: labels.names[label], color: labels.colors[label], share: mean, figure: mean.toFixed(3) });
  }
  return means;
}

/** From the most likely label of a cell, or of most cells, to the root. */
function showLevels(parent, labels, cells, means) {
  const label = means[0][0], into = part(parent, "Level by level");
  for (const node of labels.paths[label]) {
    const mean = node === labels.root ? 1 : means.reduce((sum, [one, p]) => sum + (labels.inside[node][one] ? p : 0), 0);
    row(into, { name: labels.tree.names[node], share: Math.min(1, mean), figure: mean.toFixed(3) });
  }
}

function showViews(parent, labels, cells) {
  const { views } = labels;
  if (!views) return;
  const into = part(parent, "View by view", cells.length > 1 ? "the most frequent label of each, and its share" : "the label of each, and its probability");
  views.names.forEach((view, v) => {
    const own = Uint16Array.from(cells, (i) => views.codes[i * views.names.length + v]);
    const [[label, count]] = counted(own, null, labels.names.length);
    const share = cells.length > 1 ? count / cells.length : views.probabilities[cells[0] * views.names.length + v] / UNIT;
    row(into, { name: `${view}: ${labels.names[label]}`, color: labels.colors[label], share, figure: share.toFixed(2), title: `weight ${rounded(views.weights[v])}` });
  });
}

/** Expression of genes in the selected cells beside that in cells of the reference with the label. */
function showGenes(parent, labels, cells, label) {
  const name = labels.names[label], genes = labels.genes[name], known = data.expression;
  if (!genes || !known) return;
  const own = genes.filter(({ gene }) => known.genes.includes(gene)).slice(0, SHOWN);
  if (!own.length) return;
  const into = part(parent, `Genes behind ${name}`, "bar: selected cells; line: reference cells with this label");
  const values = known.decoded ??= decode(known.values, Uint8Array);
  for (const { gene, contribution, reference_mean: usual } of own) {
    const at = known.genes.indexOf(gene);
    let sum = 0;
    for (const i of cells) sum += values[i * known.genes.length + at];
    const mean = sum / cells.length / 255 * known.most;
    const line = row(into, { name: `${contribution < 0 ? "− " : ""}${gene}`, share: mean / known.most, figure: rounded(mean), title: `contributes ${rounded(contribution)} to the score of ${name} in the query` });
    const mark = element("s", "", line.querySelector(".bar"));
    mark.style.left = `${100 * Math.min(1, usual / known.most)}%`;
  }
}

function showSelection() {
  const into = byId("selection"), cells = state.selection, { labels } = state;
  into.replaceChildren();
  byId("clear").disabled = !cells;
  if (!cells) {
    element("h2", "Selection", into);
    element("p", "Nothing is selected.", into, "hint");
    return;
  }
  const one = cells.length === 1 ? cells[0] : -1;
  element("h2", one >= 0 ? data.names[one] : `${number(cells.length)} cells`, into);
  const parts = element("div", "", into, "parts");
  if (labels) {
    if (one < 0) frequent(parts, "Labels", columnOf(labels.key), cells);
    const means = showProbabilities(parts, labels, cells);
    showLevels(parts, labels, cells, means);
    showViews(parts, labels, cells);
    if (one < 0) for (const [title, end] of [["Status", "_status"], ["Sets", "_set"]]) frequent(parts, title, columnOf(labels.key + end), cells);
    means.slice(0, 2).filter(([, mean]) => mean >= 0.02).forEach(([label]) => showGenes(parts, labels, cells, label));
  }
  if (one < 0 && data.clusters) frequent(parts, "Clusters", columnOf(data.clusters.key), cells);
  if (one >= 0) {
    const all = part(parts, "All columns");
    for (const column of columns) if (!column.computed) row(all, { name: column.name, figure: textOf(column, one) ?? "NA" });
  }
}
