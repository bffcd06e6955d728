// Beside the map: the colours, the labels at an error rate on their tree, and the tree of clusters.

function showLegend() {
  const into = byId("legend"), { column } = state;
  into.replaceChildren();
  byId("legend-title").textContent = column ? column.name : "Cells";
  if (!column) return;
  if (column.labels) {
    const counts = new Map(counted(column.values, null, column.labels.length));
    column.labels.forEach((name, code) => {
      if (!counts.has(code)) return;
      const count = counts.get(code);
      const made = row(into, { name, color: column.colors[code], figure: number(count), onClick: () => selectWhere((i) => column.values[i] === code, made) });
    });
    return;
  }
  const bar = element("div", "", into, "scale"), ends = element("div", "", into, "ends");
  bar.style.background = `linear-gradient(to right, ${data.scale.filter((_, i) => i % 15 === 0).join(",")})`;
  column.range.forEach((end) => element("span", String(Number(end.toPrecision(4))), ends));
}

// ---- labels at an error rate

// The slider goes from 0.1 % to 50 % in equal factors.
const LEAST = 0.001, MOST = 0.5, STEPS = 200;
const toRate = (at) => Number((LEAST * (MOST / LEAST) ** (at / STEPS)).toPrecision(2));
const toStep = (rate) => Math.round(STEPS * Math.log(Math.max(rate, LEAST) / LEAST) / Math.log(MOST / LEAST));

/** Rows of a tree from the root down, the largest branch first. */
function branches(parents, size) {
  const children = parents.map(() => []), found = [];
  parents.forEach((parent, node) => { if (parent !== node) children[parent].push(node); });
  const visit = (node, depth) => {
    found.push([node, depth]);
    children[node].sort((a, b) => size[b] - size[a]).forEach((child) => visit(child, depth + 1));
  };
  visit(parents.length - 1, 0);
  return found;
}

function showLabels() {
  const into = byId("labels"), { labels } = state;
  into.hidden = !labels;
  if (!labels) return;
  into.replaceChildren();
  element("h2", `Labels at an error rate`, into);
  if (allLabels.length > 1) {
    const choice = element("select", "", into);
    choice.id = "which-labels";
    allLabels.forEach((one, at) => { element("option", one.key, choice).value = at; });
    choice.value = allLabels.indexOf(labels);
    choice.addEventListener("change", () => { corrections.length = 0; state.labels = allLabels[choice.value]; changed("labels"); });
  }
  const line = element("label", "", into, "slider"), slider = element("input", "", line);
  Object.assign(slider, { type: "range", id: "rate", min: 0, max: STEPS, step: 1, value: toStep(labels.rate) });
  slider.setAttribute("aria-label", "Error rate");
  element("output", "", line).id = "rate-value";
  element("p", "", into, "hint").id = "rate-text";
  const rows = element("div", "", into, "rows tree"), given = new Uint32Array(labels.tree.names.length);
  for (let i = 0; i < n; i++) for (const node of labels.paths[labels.best(i)]) given[node]++;
  labels.rows = branches(labels.tree.parents, given).map(([node, depth]) => {
    const name = labels.tree.names[node], leaf = node < labels.names.length;
    const made = row(rows, {
      name, indent: depth, share: 0, below: leaf && given[node] ? 1 : null, color: leaf ? labels.colors[node] : null,
      onClick: () => selectWhere((i) => (leaf ? labels.best(i) === node : labels.nodes[i] === node), made),
      title: leaf ? name : `${name}: click to select the cells that end here`,
    });
    if (!leaf) made.classList.add("inner");
    return { node, made, given: given[node], leaf };
  });
  let waiting = 0;
  slider.addEventListener("input", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => { labels.rate = toRate(slider.value); changed("rate"); colorByComputed(keptColumn()); });
  });
  changed("rate");
}

/** What the slider says, without touching the rows themselves. */
function showRate() {
  const { labels } = state, counts = new Uint32Array(labels.tree.names.length);
  labels.nodes = nodesAt(labels, labels.rate);
  for (let i = 0; i < n; i++) counts[labels.nodes[i]]++;
  const kept = counts.subarray(0, labels.names.length).reduce((sum, count) => sum + count, 0), lost = counts[labels.root];
  byId("rate-value").textContent = `${rounded(100 * labels.rate)} %`;
  byId("rate-text").textContent = `${number(kept)} cells (${percent(kept / Math.max(1, n))}) keep their label, ${number(n - kept - lost)} get a coarser one, `
    + `${number(lost)} stay unresolved: then at most ${rounded(100 * labels.rate)} % of all cells are expected to be wrong.`;
  for (const { node, made, given, leaf } of labels.rows) {
    made.querySelector("u").style.width = `${100 * counts[node] / Math.max(1, leaf ? given : n)}%`;
    made.querySelector("small").textContent = leaf ? `${number(counts[node])} of ${number(given)}` : number(counts[node]);
    made.classList.toggle("empty", leaf ? !given : !counts[node]);
  }
}

/** The column of labels at the error rate, for the map. */
function keptColumn() {
  const { labels } = state, colors = nodeColors(labels);
  return { name: `labels at ${rounded(100 * labels.rate)} % errors`, computed: true, labels: labels.tree.names, colors, values: labels.nodes };
}

// ---- clusters

function showClusters() {
  const found = data.clusters, into = byId("clusters");
  into.hidden = !found;
  if (!found) return;
  const { names, joined, cut } = found, leaf = decode(found.leaves, Uint16Array), nLeaves = names.length - joined.length;
  const parents = names.map((_, node) => node), members = names.map(() => new Set());
  for (let one = 0; one < nLeaves; one++) members[one].add(one);
  joined.forEach((pair, at) => pair.forEach((child) => {
    parents[child] = nLeaves + at;
    members[child].forEach((one) => members[nLeaves + at].add(one));
  }));
  const size = new Uint32Array(names.length);
  for (let i = 0; i < n; i++) if (leaf[i] < nLeaves) for (let node = leaf[i]; ; node = parents[node]) { size[node]++; if (parents[node] === node) break; }
  const own = columnOf(found.key), isCut = new Set(cut), below = (node) => isCut.has(parents[node]) || (parents[node] !== node && below(parents[node]));
  element("h2", "Clusters", into);
  element("p", found.why, into, "hint");
  const rows = element("div", "", into, "rows tree"), fine = [];
  for (const [node, depth] of branches(parents, size)) {
    const code = own && own.labels ? own.labels.indexOf(names[node]) : -1, inner = node >= nLeaves && !isCut.has(node);
    const alike = node >= nLeaves ? `its two parts are told apart for ${percent(found.agreement[node - nLeaves])} of their cells` : names[node];
    const made = row(rows, {
      name: names[node], indent: Math.min(depth, 8), color: isCut.has(node) ? own?.colors?.[code] ?? null : null, figure: number(size[node]),
      onClick: () => selectWhere((i) => members[node].has(leaf[i]), made), title: alike,
    });
    if (inner || below(node)) made.classList.add("inner");
    if (below(node)) { made.hidden = true; fine.push(made); }
  }
  if (!fine.length) return;
  const more = button("Show their parts", into, () => {
    const hide = !fine[0].hidden;
    fine.forEach((one) => { one.hidden = hide; });
    more.textContent = hide ? "Show their parts" : "Hide their parts";
  }, "quiet");
}
