// The parts of the page, put together.
const allLabels = data.labels.map((labels) => ({ ...withLevels(labels), rate: labels.alpha }));
const choice = byId("color");
state.labels = allLabels[0] ?? null;

/** Colour the map by a column. */
function colorBy(column) {
  state.column = column;
  showLegend();
  paint();
}

/** Colour the map by a column that the page computed; there is one of each kind. */
function colorByComputed(column) {
  const kind = column.name.split(" ")[0], old = columns.findIndex((one) => one.computed && one.name.split(" ")[0] === kind);
  const at = old < 0 ? columns.push(column) - 1 : old;
  columns[at] = column;
  const option = [...choice.options].find((one) => Number(one.value) === at) ?? element("option", "", choice);
  option.value = at;
  option.textContent = column.name;
  choice.value = at;
  colorBy(column);
}

columns.forEach((column, at) => { if (column.colors || !column.labels) element("option", column.name, choice).value = at; });
choice.addEventListener("change", () => { select(null); colorBy(columns[choice.value]); });

const switches = maps.map((map, at) => button(map.title, byId("maps"), () => show(at)));

function show(at) {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  Object.assign(now, { from: now.map, map: at, since: still ? -Infinity : performance.now() });
  switches.forEach((one, i) => one.setAttribute("aria-pressed", i === at));
  draw();
}

let lassoing = false, drag = null;

function useLasso(on) {
  lassoing = on;
  byId("lasso").setAttribute("aria-pressed", on);
  byId("move").setAttribute("aria-pressed", !on);
  canvas.classList.toggle("lasso", on);
}

byId("lasso").addEventListener("click", () => useLasso(true));
byId("move").addEventListener("click", () => useLasso(false));
byId("clear").addEventListener("click", () => select(null));
byId("reset").addEventListener("click", () => { Object.assign(view, { x: 0.5, y: 0.5, zoom: 1 }); draw(); });

canvas.addEventListener("pointerdown", (event) => {
  const at = pixelOf(event);
  drag = { first: at, last: at, loops: lassoing || event.shiftKey };
  if (drag.loops) loop = [at];
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return point(event);
  const at = pixelOf(event), [dx, dy] = [at[0] - drag.last[0], at[1] - drag.last[1]];
  if (drag.loops) loop.push(at);
  else { view.x -= dx / side(); view.y += dy / side(); }
  drag.last = at;
  tip.hidden = true;
  draw();
});
canvas.addEventListener("pointerup", () => {
  if (!drag) return;
  const still = Math.hypot(drag.last[0] - drag.first[0], drag.last[1] - drag.first[1]) < CLICK * ratio && (loop?.length ?? 0) < 4;
  const found = loop, start = drag.first;
  [drag, loop] = [null, null];
  if (still) {
    const cell = nearest(start);
    select(cell < 0 ? null : [drawn[cell]]);
  } else if (found) {
    select(inLoop(found));
  }
  draw();
});
canvas.addEventListener("pointerleave", () => { hovered = -1; tip.hidden = true; draw(); });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const [px, py] = pixelOf(event), dx = px - canvas.width / 2, dy = py - canvas.height / 2, before = side();
  view.zoom = Math.min(200, Math.max(0.5, view.zoom * Math.exp(-event.deltaY / 400)));
  // What is under the pointer stays there.
  view.x += dx / before - dx / side();
  view.y -= dy / before - dy / side();
  draw();
}, { passive: false });

listeners.selection.push(paint, showSelection, showCorrections);
listeners.rate.push(showRate);
listeners.labels.push(showLabels, showSelection, showCorrections);

byId("size").textContent = `${number(n)} cells${drawn.length < n ? ` (${number(drawn.length)} of them drawn)` : ""}, ${number(data.n_genes)} genes.`;
if (data.color >= 0) choice.value = data.color;
state.column = columns[choice.value] ?? null;
new ResizeObserver(resize).observe(canvas);
now.map = now.from = maps.length - 1;
resize();
show(maps.length - 1);
showLegend();
showLabels();
showClusters();
showSelection();
showCorrections();
showSections();
paint();
document.body.dataset.ready = "yes";
