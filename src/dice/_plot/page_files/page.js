"use strict";
// The interactive map. Points are stamped into one image by hand: that is quick on every machine, with or without a
// graphics card, and needs no library. Text from the data only ever becomes the text of an element, never its markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("map"), context = canvas.getContext("2d", { alpha: false });
  const tip = document.getElementById("tip"), legend = document.getElementById("legend");
  const GREY = [228, 228, 228], MISSING = [184, 184, 184], MOVE_MS = 600, REACH = 10;

  // ---- data: arrays arrive as base64 of little-endian numbers

  const decode = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const pack = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
  const maps = data.maps.map((map) => ({ title: map.title, xy: decode(map.xy, Uint16Array) }));
  const columns = data.columns.map((c) => ({ ...c, values: decode(c.values, ARRAYS[c.dtype]) }));
  const scale = data.scale.map(rgb);
  const n = data.n;

  /** Value of a cell in a column, as text; null where it is missing. */
  function text(column, i) {
    const value = column.values[i];
    if (column.labels) return value < column.labels.length ? column.labels[value] : null;
    return Number.isNaN(value) ? null : String(Number(value.toPrecision(4)));
  }

  // ---- colours

  const ink = new Uint32Array(n);
  let order = new Uint32Array(n), column = columns[0];
  const chosen = new Set();
  // Labels are drawn in a fixed shuffle, so that none covers another wherever cells come in blocks.
  const shuffle = new Float64Array(n).map((_, i) => (Math.sin(i + 1) * 43758.5453) % 1);

  function paint() {
    const height = new Float64Array(n);
    const palette = column && column.labels ? column.colors.map((hex) => pack(rgb(hex))) : [];
    const [low, high] = column && !column.labels ? column.range : [0, 1];
    for (let i = 0; i < n; i++) {
      const value = column ? column.values[i] : 0;
      const missing = column && (column.labels ? value >= column.labels.length : Number.isNaN(value));
      if (missing) {
        [ink[i], height[i]] = [pack(MISSING), -3];
      } else if (!column || column.labels) {
        const aside = chosen.size && !chosen.has(value);
        [ink[i], height[i]] = [aside ? pack(GREY) : column ? palette[value] : pack([0, 114, 178]), aside ? -6 : shuffle[i]];
      } else {
        const share = high > low ? (value - low) / (high - low) : 0.5;
        [ink[i], height[i]] = [pack(scale[Math.round(share * (scale.length - 1))]), share + 1];
      }
    }
    order = Uint32Array.from(order.keys()).sort((a, b) => height[a] - height[b]);
    draw();
  }

  // ---- drawing

  const view = { x: 0.5, y: 0.5, zoom: 1 };
  let image, pixels, ratio = 1, stamp = [], hovered = -1, waiting = false;
  // Where the cells are now, which lies between two maps while they move from one to the other.
  const now = { x: new Float32Array(n), y: new Float32Array(n), map: 0, from: 0, since: -Infinity };

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
    for (let i = 0; i < n; i++) {
      now.x[i] = (a[i] + (b[i] - a[i]) * eased) / 65535;
      now.y[i] = (a[n + i] + (b[n + i] - a[n + i]) * eased) / 65535;
    }
    return share < 1;
  }

  const side = () => Math.min(canvas.width, canvas.height) * 0.94 * view.zoom;
  const toScreen = (i) => [canvas.width / 2 + (now.x[i] - view.x) * side(), canvas.height / 2 - (now.y[i] - view.y) * side()];

  function render(time) {
    waiting = false;
    const start = performance.now(), { width, height } = canvas;
    const moving = place(time), size = side();
    const radius = Math.min(4, Math.max(1.2, 90 / Math.sqrt(n))) * ratio * Math.min(2, Math.sqrt(view.zoom));
    stamp = makeStamp(radius);
    const reach = Math.ceil(radius), { x, y } = now;
    const left = width / 2 - view.x * size, top = height / 2 + view.y * size;
    let drawn = 0;
    pixels.fill(0xffffffff);
    for (let k = 0; k < n; k++) {
      const i = order[k], px = Math.round(left + x[i] * size), py = Math.round(top - y[i] * size);
      if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
      drawn++;
      const color = ink[i], at = py * width + px;
      for (let s = 0; s < stamp.length; s++) {
        const { dx, dy, cover } = stamp[s], p = at + dy * width + dx;
        pixels[p] = cover === 256 ? color : blend(pixels[p], color, cover);
      }
    }
    context.putImageData(image, 0, 0);
    if (hovered >= 0) ring(radius);
    canvas.dataset.drawn = drawn;
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

  function ring(radius) {
    const [x, y] = toScreen(hovered);
    context.lineWidth = 1.5 * ratio;
    context.beginPath();
    context.arc(x, y, radius + 3 * ratio, 0, 2 * Math.PI);
    context.stroke();
  }

  function draw() {
    if (!waiting) requestAnimationFrame(render);
    waiting = true;
  }

  // ---- pointing

  function nearest(px, py) {
    const size = side(), x = view.x + (px - canvas.width / 2) / size, y = view.y - (py - canvas.height / 2) / size;
    let best = -1, least = (REACH * ratio / size) ** 2;
    // From the top down, so that of equal distances the visible cell wins.
    for (let k = n - 1; k >= 0; k--) {
      const i = order[k], distance = (now.x[i] - x) ** 2 + (now.y[i] - y) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  const element = (name, content = "", parent = null) => {
    const made = document.createElement(name);
    made.textContent = content;
    if (parent) parent.append(made);
    return made;
  };

  function point(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const found = nearest(x * ratio, y * ratio);
    if (found !== hovered) draw();
    hovered = found;
    tip.hidden = found < 0;
    if (found < 0) return;
    tip.replaceChildren();
    element("b", data.names[found], tip);
    for (const shown of new Set([column, ...data.hover.map((at) => columns[at])])) {
      if (!shown) continue;
      const row = element("div", "", tip);
      element("span", shown.name, row);
      element("span", text(shown, found) ?? "NA", row);
    }
    tip.style.left = `${Math.min(x + 14, Math.max(0, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.min(y + 14, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { hovered = -1; tip.hidden = true; draw(); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return point(event);
    view.x -= (event.clientX - drag.x) * ratio / side();
    view.y += (event.clientY - drag.y) * ratio / side();
    drag = { x: event.clientX, y: event.clientY };
    draw();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    const dx = (event.clientX - box.left) * ratio - canvas.width / 2, dy = (event.clientY - box.top) * ratio - canvas.height / 2;
    const before = side();
    view.zoom = Math.min(200, Math.max(0.5, view.zoom * Math.exp(-event.deltaY / 400)));
    // What is under the pointer stays there.
    view.x += dx / before - dx / side();
    view.y -= dy / before - dy / side();
    draw();
  }, { passive: false });

  // ---- controls

  const switches = maps.map((map, at) => {
    const button = element("button", map.title, document.getElementById("maps"));
    button.type = "button";
    button.addEventListener("click", () => show(at));
    return button;
  });

  function show(at) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    Object.assign(now, { from: now.map, map: at, since: still ? -Infinity : performance.now() });
    switches.forEach((button, i) => button.setAttribute("aria-pressed", i === at));
    draw();
  }

  const select = document.getElementById("color");
  columns.forEach((c, at) => { if (c.colors || !c.labels) element("option", c.name, select).value = at; });
  select.addEventListener("change", () => { chosen.clear(); column = columns[select.value]; explain(); paint(); });
  document.getElementById("reset").addEventListener("click", () => { Object.assign(view, { x: 0.5, y: 0.5, zoom: 1 }); draw(); });

  function explain() {
    legend.replaceChildren();
    if (!column) return;
    if (column.labels) return explainLabels();
    const bar = element("div", "", legend), ends = element("div", "", legend);
    bar.className = "bar";
    bar.style.background = `linear-gradient(to right, ${data.scale.filter((_, i) => i % 15 === 0).join(",")})`;
    ends.className = "ends";
    column.range.forEach((end) => element("span", String(Number(end.toPrecision(4))), ends));
  }

  function explainLabels() {
    const counts = new Array(column.labels.length + 1).fill(0);
    column.values.forEach((value) => { counts[Math.min(value, column.labels.length)]++; });
    column.labels.forEach((name, code) => {
      if (!counts[code]) return;
      const entry = element("button", "", legend);
      entry.type = "button";
      entry.setAttribute("aria-pressed", "false");
      element("i", "", entry).style.background = column.colors[code];
      element("span", name, entry);
      element("small", counts[code].toLocaleString("en"), entry);
      entry.addEventListener("click", () => {
        if (!chosen.delete(code)) chosen.add(code);
        entry.setAttribute("aria-pressed", chosen.has(code));
        paint();
      });
    });
  }

  if (data.color >= 0) select.value = data.color;
  column = columns[select.value];
  new ResizeObserver(resize).observe(canvas);
  now.map = now.from = maps.length - 1;
  resize();
  show(maps.length - 1);
  explain();
  paint();
})();
