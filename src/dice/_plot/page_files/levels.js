// Labels at an error rate: every cell gets the smallest node of the tree, on the path of its most likely label, whose
// probability exceeds a threshold; the threshold is the smallest at which the probabilities expect at most that share of
// wrong labels. It is the rule of `LabelTree.nodes` and `LabelTree.expected` (dice/_labels/tree.py), and tests compare.

/** Labels of the page with their tree, decoded. */
function withLevels(labels) {
  const codes = decode(labels.codes, Uint16Array), given = decode(labels.probabilities, Uint16Array), k = labels.kept;
  const { names, parents } = labels.tree, root = names.length - 1, nLabels = labels.names.length;
  const path = (node) => (parents[node] === node ? [node] : [node, ...path(parents[node])]);
  const paths = labels.names.map((_, label) => path(label));
  const depth = Math.max(...paths.map((one) => one.length));
  const inside = names.map(() => new Uint8Array(nLabels));
  paths.forEach((one, label) => one.forEach((node) => { inside[node][label] = 1; }));
  // Probabilities of the nodes on the path of every cell; the root fills the rest of its row.
  const along = new Float64Array(n * depth).fill(1);
  for (let i = 0; i < n; i++) {
    paths[codes[i * k]].forEach((node, at) => {
      if (node === root) return;
      let sum = 0;
      for (let j = 0; j < k; j++) if (inside[node][codes[i * k + j]]) sum += given[i * k + j];
      along[i * depth + at] = sum / UNIT;
    });
  }
  const views = labels.views && {
    ...labels.views,
    codes: decode(labels.views.codes, Uint16Array),
    probabilities: decode(labels.views.probabilities, Uint16Array),
  };
  const own = columnOf(labels.key), shade = new Map(own ? own.labels.map((name, code) => [name, own.colors?.[code]]) : []);
  const colors = labels.names.map((name) => shade.get(name) ?? "#b8b8b8");
  return { ...labels, views, codes, given, root, paths, depth, inside, along, colors, best: (i) => codes[i * k] };
}

/** Step on the path of cell i at which its probability exceeds the threshold. */
function stepAt(labels, i, threshold) {
  const last = labels.paths[labels.best(i)].length - 1, start = i * labels.depth;
  let at = 0;
  while (at < last && labels.along[start + at] <= threshold) at++;
  return at;
}

function expectedError(labels, threshold) {
  let right = 0;
  for (let i = 0; i < n; i++) right += labels.along[i * labels.depth + stepAt(labels, i, threshold)];
  return 1 - right / n;
}

function thresholdAt(labels, alpha) {
  let low = 0, high = 1;
  for (let step = 0; step < 40 && n; step++) {
    const middle = (low + high) / 2;
    if (expectedError(labels, middle) > alpha) low = middle; else high = middle;
  }
  return high;
}

/** The node of every cell at an error rate. */
function nodesAt(labels, alpha) {
  const threshold = thresholdAt(labels, alpha), nodes = new Uint16Array(n);
  for (let i = 0; i < n; i++) nodes[i] = labels.paths[labels.best(i)][stepAt(labels, i, threshold)];
  return nodes;
}

/** Colours of nodes: labels have their own, joined labels the mean of theirs, and what is unresolved is grey. */
function nodeColors(labels) {
  return labels.tree.names.map((_, node) => {
    if (node === labels.root) return "#dcdcdc";
    const own = labels.colors.filter((_, label) => labels.inside[node][label]);
    const mean = [1, 3, 5].map((at) => own.reduce((sum, hex) => sum + parseInt(hex.slice(at, at + 2), 16), 0) / own.length);
    return `#${mean.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
  });
}
