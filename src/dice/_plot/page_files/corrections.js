// Labels that the reader gives to selected cells, as a csv file and as the Python lines that apply it.
const corrections = [];

/** For every cell the position of the last correction that holds it, or -1. */
function corrected() {
  const last = new Int32Array(n).fill(-1);
  corrections.forEach(({ cells }, at) => { for (const i of cells) last[i] = at; });
  return last;
}

const baseOf = (key) => `${key.replace(/_dice$/, "")}_corrected`;
/** Text that a spreadsheet does not take for a formula. The leading quote is removed when Python reads it. */
const plain = (text) => (/^('|[\s\p{C}]*[=+\-@\uff1d\uff0b\uff0d\uff20])/u.test(text) ? `'${text}` : text);
const quoted = (text) => `"${plain(String(text)).replaceAll('"', '""')}"`;

function csv() {
  const { labels } = state, last = corrected(), own = columnOf(labels.key), status = columnOf(`${labels.key}_status`);
  const head = ["cell", labels.key, `${labels.key}_status`, `${labels.key}_at_${rounded(100 * labels.rate)}_percent`, baseOf(labels.key)];
  const lines = [head.map(quoted).join(",")];
  for (let i = 0; i < n; i++) {
    const given = textOf(own, i) ?? "", final = last[i] < 0 ? given : corrections[last[i]].label;
    lines.push([data.names[i], given, status ? textOf(status, i) ?? "" : "", labels.tree.names[labels.nodes[i]], final].map(quoted).join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** Text in quotes as Python reads it. */
const literal = (text) => JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function pythonLines() {
  const name = baseOf(state.labels.key);
  return [
    "import pandas as pd",
    "",
    `table = pd.read_csv(${literal(fileName())}, dtype=str, keep_default_na=False)`,
    `table = table.replace("^'", "", regex=True).set_index("cell")  # the page marks formulas with a quote`,
    `adata.obs[${literal(name)}] = pd.Categorical(table.loc[adata.obs_names, ${literal(plain(name))}])`,
  ].join("\n");
}

/** A name that every file system takes. */
const fileName = () => `${baseOf(state.labels.key).replace(/[^A-Za-z0-9_.-]/g, "_")}.csv`;

function download(name, content, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The column of corrected labels, for the map. */
function correctedColumn() {
  const { labels } = state, own = columnOf(labels.key), last = corrected();
  const names = [...new Set([...own.labels, ...corrections.map(({ label }) => label)])];
  const spare = data.spare.filter((color) => !own.colors?.includes(color));
  const colors = names.map((_, code) => own.colors?.[code] ?? spare[(code - own.labels.length) % spare.length]);
  const values = Uint16Array.from({ length: n }, (_, i) => {
    if (last[i] >= 0) return names.indexOf(corrections[last[i]].label);
    return own.values[i] < own.labels.length ? own.values[i] : names.length;
  });
  return { name: "corrected labels", computed: true, labels: names, colors, values };
}

function applyCorrection(label) {
  if (!state.selection || !label.trim()) return;
  corrections.push({ cells: Uint32Array.from(state.selection), label: label.trim() });
  showCorrections();
  colorByComputed(correctedColumn());
}

function showCorrections() {
  const into = byId("corrections"), { labels, selection } = state;
  into.hidden = !labels;
  if (!labels) return;
  into.replaceChildren();
  element("h2", "Correct labels", into);
  const form = element("div", "", into, "form"), list = element("datalist", "", into);
  list.id = "known-labels";
  labels.names.forEach((name) => { element("option", "", list).value = name; });
  const input = element("input", "", form);
  input.id = "new-label";
  input.setAttribute("list", list.id);
  input.placeholder = "new label";
  input.setAttribute("aria-label", "New label of the selected cells");
  const apply = button(selection ? `Give to ${number(selection.length)} ${selection.length > 1 ? "cells" : "cell"}` : "Select cells first", form, () => applyCorrection(input.value), "main");
  apply.id = "apply-label";
  apply.disabled = !selection;
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") applyCorrection(input.value); });
  const rows = element("div", "", into, "rows");
  corrections.forEach(({ cells, label }, at) => {
    const line = row(rows, { name: `${number(cells.length)} ${cells.length > 1 ? "cells are" : "cell is"} ${label}` });
    button("undo", line, () => { corrections.splice(at, 1); showCorrections(); colorByComputed(correctedColumn()); }, "quiet");
  });
  button("Download csv", form, () => download(fileName(), csv(), "text/csv")).id = "download";
  const details = element("details", "", into, "lines");
  element("summary", "Python lines that apply the file", details);
  element("pre", pythonLines(), details).id = "python";
}
