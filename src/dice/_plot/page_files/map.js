// The map. Points are stamped into one image by hand: that is quick on every machine, with or without a graphics card,
// and needs no library. Of many cells a sample is drawn; a lasso takes all.
const canvas = byId("map"), context = canvas.getContext("2d", { alpha: false }), tip = byId("tip");
const GREY = [228, 228, 228], MISSING = [184, 184, 184], MOVE_MS = 600, REACH = 10, CLICK = 4;
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const pack = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
const maps = data.maps.map((map) => ({ title: map.title, xy: decode(map.xy, Uint16Array) }));
const scale = data.scale.map(rgb);
const drawn = decode(data.drawn, Uint32Array);

// ---- colours

const ink = new Uint32Array(drawn.length);
let order = new Uint32Array(drawn.length);
// Labels are drawn in a fixed shuffle, so that none covers another wherever cells come in blocks.
const shuffle = new Float64Array(drawn.length).map((_, i) => (Math.sin(i + 1) * 43758.5453) % 1);

function paint() {
  const height = new Float64Array(drawn.length), { column, mask } = state;
  const palette = column && column.labels ? column.colors.map((hex) => pack(rgb(hex))) : [];
  const [low, high] = column && !column.labels ? column.range : [0, 1];
  for (let k = 0; k < drawn.length; k++) {
    const i = drawn[k], value = column ? column.values[i] : 0;
    const missing = column && (column.labels ? value >= column.labels.length : Number.isNaN(value));
    if (mask && !mask[i]) {
      [ink[k], height[k]] = [pack(GREY), -6 + shuffle[k]];
    } else if (missing) {
      [ink[k], height[k]] = [pack(MISSING), -3];
    } else if (!column || column.labels) {
      [ink[k], height[k]] = [column ? palette[value] : pack([0, 114, 178]), shuffle[k] + (column?.above?.[value] ?? 0)];
    } else {
      const share = high > low ? (value - low) / (high - low) : 0.5;
      [ink[k], height[k]] = [pack(scale[Math.round(share * (scale.length - 1))]), share + 1];
    }
  }
  order = Uint32Array.from(order.keys()).sort((a, b) => height[a] - height[b]);
  draw();
}

// ---- drawing

const view = { x: 0.5, y: 0.5, zoom: 1 };
let image, pixels, ratio = 1, hovered = -1, waiting = false, loop = null;
// Where the drawn cells are now, which lies between two maps while they move from one to the other.
const now = { x: new Float32Array(drawn.length), y: new Float32Array(drawn.length), map: 0, from: 0, since: -Infinity };

function resize() {
  ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  image = context.createImageData(canvas.width, canvas.height);
  pixels = new Uint32Array(image.data.buffer);
  draw();
}

/** Pixels of a point and how much of each it covers, from 0 to 256. */
function makeStamp(radius) {
  const reach = Math.ceil(radius), found = [];
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(dx, dy)));
      if (cover > 0.05) found.push({ dx, dy, cover: Math.round(cover * 256) });
    }
  }
  return found;
}

function place(time) {
  const share = Math.min(1, (time - now.since) / MOVE_MS), eased = share * share * (3 - 2 * share);
  const a = maps[now.from].xy, b = maps[now.map].xy;
  for (let k = 0; k < drawn.length; k++) {
    const i = drawn[k];
    now.x[k] = (a[i] + (b[i] - a[i]) * eased) / UNIT;
    now.y[k] = (a[n + i] + (b[n + i] - a[n + i]) * eased) / UNIT;
  }
  return share < 1;
}

const side = () => Math.min(canvas.width, canvas.height) * 0.94 * view.zoom;

function render(time) {
  waiting = false;
  const start = performance.now(), { width, height } = canvas;
  const moving = place(time), size = side();
  const radius = Math.min(4, Math.max(1.2, 90 / Math.sqrt(drawn.length))) * ratio * Math.min(2, Math.sqrt(view.zoom));
  const stamp = makeStamp(radius), reach = Math.ceil(radius), { x, y } = now;
  const left = width / 2 - view.x * size, top = height / 2 + view.y * size;
  let shown = 0;
  pixels.fill(0xffffffff);
  for (let at = 0; at < order.length; at++) {
    const k = order[at], px = Math.round(left + x[k] * size), py = Math.round(top - y[k] * size);
    if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
    shown++;
    const color = ink[k], middle = py * width + px;
    for (let s = 0; s < stamp.length; s++) {
      const { dx, dy, cover } = stamp[s], p = middle + dy * width + dx;
      pixels[p] = cover === 256 ? color : blend(pixels[p], color, cover);
    }
  }
  context.putImageData(image, 0, 0);
  outline(hovered >= 0 ? [left + x[hovered] * size, top - y[hovered] * size] : null, radius + 3 * ratio);
  canvas.dataset.drawn = shown;
  canvas.dataset.milliseconds = (performance.now() - start).toFixed(2);
  if (moving) draw();
}

/** Red and blue, then green, of two colours mixed at once. */
function blend(below, above, cover) {
  const rest = 256 - cover;
  const redBlue = ((above & 0xff00ff) * cover + (below & 0xff00ff) * rest) >>> 8 & 0xff00ff;
  const green = ((above & 0x00ff00) * cover + (below & 0x00ff00) * rest) >>> 8 & 0x00ff00;
  return (0xff000000 | redBlue | green) >>> 0;
}

/** A ring around the cell under the pointer, and the loop that is being drawn. */
function outline(cell, radius) {
  context.strokeStyle = "#1a1a1a";
  context.lineWidth = 1.5 * ratio;
  context.beginPath();
  if (cell) context.arc(...cell, radius, 0, 2 * Math.PI);
  context.stroke();
  if (!loop) return;
  context.beginPath();
  loop.forEach(([x, y]) => context.lineTo(x, y));
  context.closePath();
  context.fillStyle = "#0072b21a";
  context.fill();
  context.strokeStyle = "#0072b2";
  context.stroke();
}

function draw() {
  if (!waiting) requestAnimationFrame(render);
  waiting = true;
}

// ---- pointing and choosing

/** From pixels of the canvas to coordinates of the map. */
const toMap = ([px, py]) => [view.x + (px - canvas.width / 2) / side(), view.y - (py - canvas.height / 2) / side()];

function nearest(pixel) {
  const [x, y] = toMap(pixel);
  let best = -1, least = (REACH * ratio / side()) ** 2;
  // From the top down, so that of equal distances the visible cell wins.
  for (let at = order.length - 1; at >= 0; at--) {
    const k = order[at], distance = (now.x[k] - x) ** 2 + (now.y[k] - y) ** 2;
    if (distance < least) [best, least] = [k, distance];
  }
  return best;
}

/** All cells inside a loop of pixels, by the even-odd rule. */
function inLoop(path) {
  const corners = path.map(toMap), { xy } = maps[now.map], found = [];
  const low = [0, 1].map((axis) => corners.reduce((least, corner) => Math.min(least, corner[axis]), Infinity));
  const high = [0, 1].map((axis) => corners.reduce((most, corner) => Math.max(most, corner[axis]), -Infinity));
  for (let i = 0; i < n; i++) {
    const x = xy[i] / UNIT, y = xy[n + i] / UNIT;
    if (x < low[0] || x > high[0] || y < low[1] || y > high[1]) continue;
    let inside = false;
    for (let a = 0, b = corners.length - 1; a < corners.length; b = a++) {
      const [ax, ay] = corners[a], [bx, by] = corners[b];
      if ((ay > y) !== (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)) inside = !inside;
    }
    if (inside) found.push(i);
  }
  return found;
}

const pixelOf = (event) => {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
};

function point(event) {
  const found = nearest(pixelOf(event)), box = canvas.getBoundingClientRect();
  if (found !== hovered) draw();
  hovered = found;
  tip.hidden = found < 0;
  if (found < 0) return;
  tip.replaceChildren();
  element("strong", data.names[drawn[found]], tip);
  for (const shown of new Set([state.column, ...data.hover.map((at) => columns[at])])) {
    if (!shown) continue;
    const line = element("div", "", tip);
    element("span", shown.name, line);
    element("span", textOf(shown, drawn[found]) ?? "NA", line);
  }
  tip.style.left = `${Math.min(event.clientX - box.left + 14, Math.max(0, box.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.min(event.clientY - box.top + 14, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
}
