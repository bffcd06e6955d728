"use strict";
// What Python prepared. Arrays arrive as base64 of little-endian numbers. Text from the data only ever becomes the text
// of an element, never its markup.
const data = JSON.parse(document.getElementById("data").textContent);
const n = data.n;
const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
const UNIT = 65535;

function decode(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
const rounded = (value) => String(Number(value.toPrecision(3)));

/** A new element with some text, at the end of its parent. */
function element(name, text = "", parent = null, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  if (parent) parent.append(made);
  return made;
}

function button(text, parent, action, kind = "") {
  const made = element("button", text, parent, kind);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

const columns = data.columns.map((c) => ({ ...c, values: decode(c.values, ARRAYS[c.dtype]) }));
const columnOf = (name) => columns.find((column) => column.name === name);

/** Value of a cell in a column, as text; null where it is missing. */
function textOf(column, i) {
  const value = column.values[i];
  if (column.labels) return value < column.labels.length ? column.labels[value] : null;
  return Number.isNaN(value) ? null : String(Number(value.toPrecision(4)));
}

/** How often each code occurs among some cells (all, if null), as [code, count] from the most frequent down. */
function counted(values, cells, nCodes) {
  const counts = new Uint32Array(nCodes + 1);
  if (cells) for (const i of cells) counts[Math.min(values[i], nCodes)]++;
  else for (let i = 0; i < values.length; i++) counts[Math.min(values[i], nCodes)]++;
  return Array.from(counts, (count, code) => [code, count]).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
}

/** A row with a dot, a name, a bar and a figure. */
function row(parent, { name, color = null, share = null, figure = "", indent = 0, below = null, onClick = null, title = name }) {
  const made = onClick ? button("", parent, onClick, "row") : element("div", "", parent, "row");
  if (onClick) made.setAttribute("aria-pressed", "false");
  made.title = title;
  made.style.paddingLeft = `${0.4 + 0.75 * indent}rem`;
  if (color) element("i", "", made).style.background = color;
  element("span", name, made);
  if (share !== null) {
    const bar = element("b", "", made, "bar");
    if (below !== null) element("em", "", bar).style.width = `${100 * below}%`;
    element("u", "", bar).style.width = `${100 * share}%`;
  }
  element("small", figure, made);
  return made;
}

/** What the page shows now. Parts listen by adding a function to `onChange` of "selection", "rate" or "labels". */
const state = { column: null, selection: null, mask: null, source: null, labels: null };
const listeners = { selection: [], rate: [], labels: [] };
const changed = (what) => listeners[what].forEach((listener) => listener());

/** Select cells (a sorted array), or none; `source` is the row that was clicked. */
function select(cells, source = null) {
  if (state.source) state.source.setAttribute("aria-pressed", "false");
  state.selection = cells && cells.length ? cells : null;
  state.source = state.selection ? source : null;
  state.mask = null;
  if (state.selection) {
    state.mask = new Uint8Array(n);
    for (const i of state.selection) state.mask[i] = 1;
  }
  if (state.source) state.source.setAttribute("aria-pressed", "true");
  changed("selection");
}

/** Select all cells that pass, or none if the row was selected before. */
function selectWhere(test, source) {
  if (state.source === source) return select(null);
  const found = [];
  for (let i = 0; i < n; i++) if (test(i)) found.push(i);
  return select(found, source);
}
