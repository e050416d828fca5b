// The timeline on a canvas. Where operations are narrower than a pixel, a column shows how busy its stretch of time was,
// so that drawing costs as much for 100,000 operations as for a hundred.
const LANE = 26, RANGE_ROW = 17, MOST_LEVELS = 6, AXIS = 22, LABELS = 92;

const loadOperations = () => {
  const of = table("operations"), count = of.rows, start = Float64Array.from(of.named.get("start_ns").numbers), extent = Float64Array.from(of.named.get("extent_ns").numbers);
  const busy = of.named.get("busy_ns").numbers, lanes = new Map(), bounds = new Map();
  for (const node of program.ranges.values()) {
    for (const one of node.children) if (one.kind === "kernel" && isBetterKnown(one, bounds.get(one.kernel))) bounds.set(one.kernel, one);
  }
  for (let row = 0; row < count; row++) {
    const name = of.at("lane", row);
    if (!lanes.has(name)) lanes.set(name, { name, rows: [], busy: [0], longest: 0 });
    const lane = lanes.get(name);
    lane.rows.push(row);
    lane.busy.push(lane.busy.at(-1) + busy[row]);
    lane.longest = Math.max(lane.longest, extent[row]);
  }
  let end = 1;
  for (let row = 0; row < count; row++) end = Math.max(end, start[row] + extent[row]);
  return { of, count, start, extent, lanes: [...lanes.values()], end, bound: (row) => bounds.get(of.at("kernel", row))?.bound ?? (of.at("kind", row) === "kernel" ? "unknown" : "copy") };
};

// Stretches of time of nested ranges, a list a level: neighbouring operations of one range are one stretch.
const loadSpans = (ops) => {
  const levels = [], open = [], column = ops.of.named.get("range"), parts = new Map();
  for (let row = 0; row < ops.count; row++) {
    const place = column.place(row), step = ops.of.at("step", row) ?? "";
    if (!parts.has(place)) parts.set(place, place < 0 ? [] : column.at(row).split("/").slice(0, MOST_LEVELS));
    const path = parts.get(place);
    let same = true;
    for (let level = 0; level < MOST_LEVELS; level++) {
      const name = path[level], before = open[level];
      same = same && before && before.name === name && before.step === step;
      if (same) { before.end = Math.max(before.end, ops.start[row] + ops.extent[row]); before.last = row; continue; }
      open[level] = null;
      if (name === undefined) continue;
      open[level] = { name, step, path: path.slice(0, level + 1).join("/"), start: ops.start[row], end: ops.start[row] + ops.extent[row], first: row, last: row };
      (levels[level] ??= []).push(open[level]);
    }
  }
  return levels;
};
// What was sampled under the kernels: one lane for DRAM, tensor cores, schedulers, links and clock of each GPU.
const loadSampled = () => {
  const of = table("sampled_times"), lanes = new Map();
  if (!of.rows) return [];
  const start = of.named.get("start_ns").numbers, extent = of.named.get("extent_ns").numbers, share = of.named.get("share_frac").numbers;
  const gpus = new Set(of.named.get("gpu").numbers).size;
  for (let row = 0; row < of.rows; row++) {
    const name = gpus > 1 ? `GPU ${of.at("gpu", row)} ${of.at("lane", row)}` : of.at("lane", row);
    if (!lanes.has(name)) lanes.set(name, { name, start: [], extent: [], share: [] });
    const lane = lanes.get(name);
    lane.start.push(start[row]);
    lane.extent.push(extent[row]);
    lane.share.push(share[row] ?? 0);
  }
  return [...lanes.values()];
};
const firstAtOrAfter = (count, value, moment) => {
  let low = 0, high = count;
  while (low < high) { const middle = (low + high) >> 1; if (value(middle) < moment) low = middle + 1; else high = middle; }
  return low;
};

const timeline = {
  start() {
    this.box = $("[data-live=timeline]");
    if (!this.box || !table("operations").rows) return;
    this.canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": "Timeline of the GPU: arrows pan, plus and minus zoom; the table of operations below has the same as text" });
    this.choice = make("select", { "aria-label": "Step", onchange: () => this.show(this.choice.value) });
    this.said = make("p", { class: "question", "aria-live": "polite" });
    this.walls = make("div", { class: "walls" });
    this.box.replaceChildren(
      make("div", { class: "tools" }, make("label", {}, "step ", this.choice), button("+", () => this.zoom(0.5), { "aria-label": "Zoom in" }), button("−", () => this.zoom(2), { "aria-label": "Zoom out" }), button("whole", () => this.show(""), { "aria-label": "Show the whole timeline" })),
      this.walls, this.canvas, this.said,
    );
    whenSeen(this.box, () => this.ready());
    selection.listeners.push(() => { this.follow = true; renderIfSeen(this.box); });
  },
  ready() {
    if (!this.ops) this.load();
    if (this.follow) this.showRange(selection.path);
    this.follow = false;
    this.soon();
  },
  load() {
    this.ops = loadOperations();
    this.spans = loadSpans(this.ops);
    this.sampled = loadSampled();
    this.follow ||= Boolean(selection.path);
    const steps = [...new Set(table("gaps").columns.length ? Array.from({ length: table("gaps").rows }, (_, row) => table("gaps").at("step", row)) : [])].filter((name) => this.ops.of.where("step", name).length);
    this.choice.replaceChildren(make("option", { value: "" }, "whole capture"), ...steps.slice(0, 500).map((name) => make("option", { value: name }, name)));
    this.canvas.style.height = `${AXIS + this.spans.length * RANGE_ROW + (this.ops.lanes.length + this.sampled.length) * LANE}px`;
    [this.from, this.to] = [0, this.ops.end];
    let dragged = null;
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, from: this.from, to: this.to, moved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!dragged) return this.point(event);
      const by = (dragged.x - event.clientX) / this.width() * (dragged.to - dragged.from);
      dragged.moved ||= Math.abs(dragged.x - event.clientX) > 3;
      if (dragged.moved) this.view(dragged.from + by, dragged.to + by);
    });
    canvas.addEventListener("pointerup", (event) => { if (dragged && !dragged.moved) this.click(event); dragged = null; });
    canvas.addEventListener("pointercancel", () => { dragged = null; });
    canvas.addEventListener("pointerleave", () => tip.hide());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.moment(event));
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.25, this.moment(event)));
    canvas.addEventListener("keydown", (event) => {
      const by = (this.to - this.from) / 5, act = {
        ArrowLeft: () => this.view(this.from - by, this.to - by), ArrowRight: () => this.view(this.from + by, this.to + by),
        "+": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowUp: () => this.zoom(0.5), ArrowDown: () => this.zoom(2),
      }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  },
  width() { return Math.max(this.wide - LABELS, 50); },
  moment(event) { return this.from + (event.offsetX - LABELS) / this.width() * (this.to - this.from); },
  view(from, to) {
    const length = Math.min(Math.max(to - from, 50), this.ops.end * 1.02);
    this.from = Math.min(Math.max(from, -0.01 * this.ops.end), this.ops.end * 1.01 - length);
    this.to = this.from + length;
    this.soon();
  },
  soon() { this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); }); },
  zoom(by, around = (this.from + this.to) / 2) { this.view(around - (around - this.from) * by, around + (this.to - around) * by); },
  show(step) {
    if (!step) return this.view(0, this.ops.end);
    this.fit(this.ops.of.where("step", step));
  },
  showRange(path) {
    if (!path) return this.show("");
    const rows = [];
    for (const [range, of] of this.byRange()) if (isInside(range, path)) rows.push(...of);
    if (rows.length) this.fit(rows);
  },
  byRange() {
    if (!this.ranges) {
      this.ops.of.where("range", null);
      this.ranges = this.ops.of.index.get("range");
    }
    return this.ranges;
  },
  fit(rows) {
    let from = Infinity, to = 0;
    for (const row of rows) { from = Math.min(from, this.ops.start[row]); to = Math.max(to, this.ops.start[row] + this.ops.extent[row]); }
    this.view(from - 0.01 * (to - from), to + 0.01 * (to - from));
  },
  draw() {
    const { canvas, ops } = this;
    if (!ops || !canvas.clientWidth) return;
    this.wide = canvas.clientWidth;
    const scale = devicePixelRatio || 1, height = canvas.clientHeight;
    canvas.width = this.wide * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const colours = Object.fromEntries(["launch", "host", "memory", "compute", "latency", "unknown", "copy", "fg", "soft", "line", "card", "bg"].map((name) => [name, css(`--${name}`)]));
    this.axis(pen, colours, height);
    this.spans.forEach((spans, level) => this.drawSpans(pen, colours, spans, AXIS + level * RANGE_ROW));
    const top = AXIS + this.spans.length * RANGE_ROW;
    ops.lanes.forEach((lane, place) => this.drawLane(pen, colours, lane, top + place * LANE));
    this.sampled.forEach((lane, place) => this.drawSampled(pen, colours, lane, top + (ops.lanes.length + place) * LANE));
    this.describe();
  },
  x(moment) { return LABELS + (moment - this.from) / (this.to - this.from) * this.width(); },
  axis(pen, colours, height) {
    const length = this.to - this.from, rough = length / Math.max(this.width() / 120, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((by) => by * power).find((one) => one >= rough);
    pen.strokeStyle = colours.line;
    pen.fillStyle = colours.soft;
    for (let moment = Math.ceil(this.from / step) * step; moment <= this.to; moment += step) {
      const x = Math.round(this.x(moment)) + 0.5;
      pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, height); pen.stroke();
      pen.fillText(Math.abs(moment) < step / 1e6 ? "0" : show(moment, "ns"), x + 3, AXIS / 2);
    }
  },
  drawSpans(pen, colours, spans, top) {
    const begin = firstAtOrAfter(spans.length, (at) => spans[at].end, this.from);
    let reached = -1;
    for (let at = begin; at < spans.length && spans[at].start < this.to; at++) {
      const one = spans[at], left = Math.max(this.x(one.start), LABELS), right = Math.max(Math.min(this.x(one.end), LABELS + this.width()), left + 1);
      if (right <= reached + 0.5) {  // narrower than a pixel and drawn over: on to the next pixel
        at = Math.max(at, firstAtOrAfter(spans.length, (place) => spans[place].start, this.from + (reached + 1 - LABELS) / this.width() * (this.to - this.from)) - 1);
        continue;
      }
      reached = right;
      pen.fillStyle = colours.card;
      pen.fillRect(left, top + 1, right - left, RANGE_ROW - 2);
      pen.fillStyle = colours.line;
      pen.fillRect(left, top + 1, 1, RANGE_ROW - 2);
      if (right - left > 24) {
        pen.save(); pen.beginPath(); pen.rect(left, top, right - left - 2, RANGE_ROW); pen.clip();
        pen.fillStyle = colours.fg; pen.fillText(one.name.slice(0, 200), left + 4, top + RANGE_ROW / 2); pen.restore();
      }
    }
  },
  drawLane(pen, colours, lane, top) {
    const { ops } = this, width = this.width(), height = LANE - 4;
    pen.fillStyle = colours.soft;
    pen.fillText(lane.name.length > 15 ? `${lane.name.slice(0, 6)}…${lane.name.slice(-8)}` : lane.name, 2, top + LANE / 2);
    pen.fillStyle = colours.line;
    pen.fillRect(LABELS, top + LANE - 2, width, 1);
    const start = (at) => ops.start[lane.rows[at]], count = lane.rows.length;
    const begin = firstAtOrAfter(count, start, this.from - lane.longest), end = firstAtOrAfter(count, start, this.to);
    if (end - begin <= 2 * width) {
      for (let at = begin; at < end; at++) {
        const row = lane.rows[at], left = Math.max(this.x(ops.start[row]), LABELS), right = Math.min(this.x(ops.start[row] + ops.extent[row]), LABELS + width);
        if (right < LABELS) continue;
        const inside = !selection.path || isInside(this.foldedRange(row), selection.path);
        pen.globalAlpha = inside ? 1 : 0.25;
        pen.fillStyle = colours[ops.bound(row)];
        pen.fillRect(left, top + 2, Math.max(right - left, 0.7), height);
      }
      pen.globalAlpha = 1;
      return;
    }
    const length = (this.to - this.from) / width;
    let low = begin;
    for (let pixel = 0; pixel < width; pixel++) {
      const high = firstAtOrAfter(count, start, this.from + (pixel + 1) * length);
      if (high > low) {
        const share = Math.min((lane.busy[high] - lane.busy[low]) / length, 1);
        pen.fillStyle = colours[ops.bound(lane.rows[low])];
        pen.fillRect(LABELS + pixel, top + 2 + height * (1 - share), 1, height * share);
        low = high;
      }
    }
  },
  // The height is the mean share over each pixel's samples.
  drawSampled(pen, colours, lane, top) {
    const width = this.width(), height = LANE - 4, count = lane.start.length, length = (this.to - this.from) / width;
    pen.fillStyle = colours.soft;
    pen.fillText(lane.name.length > 15 ? `${lane.name.slice(0, 6)}…${lane.name.slice(-8)}` : lane.name, 2, top + LANE / 2);
    pen.fillStyle = colours.line;
    pen.fillRect(LABELS, top + LANE - 2, width, 1);
    pen.fillStyle = lane.name.includes("clock") ? colours.soft : lane.name.includes("tensor") || lane.name.includes("issue") ? colours.compute : colours.memory;
    for (let pixel = 0; pixel < width; pixel++) {
      const from = this.from + pixel * length, low = Math.max(firstAtOrAfter(count, (at) => lane.start[at] + lane.extent[at], from), 0);
      const high = Math.max(firstAtOrAfter(count, (at) => lane.start[at], from + length), low + 1);
      if (low >= count || lane.start[low] > from + length) continue;
      let sum = 0;
      for (let at = low; at < high; at++) sum += lane.share[at];
      const share = sum / (high - low);
      pen.fillRect(LABELS + pixel, top + 2 + height * (1 - share), 1, height * share);
    }
  },
  foldedRange(row) { return this.ops.of.at("range", row); },
  at(event) {
    const moment = this.moment(event), level = Math.floor((event.offsetY - AXIS) / RANGE_ROW);
    if (level >= 0 && level < this.spans.length) {
      const spans = this.spans[level], place = firstAtOrAfter(spans.length, (at) => spans[at].end, moment), one = spans[place];
      return one && one.start <= moment ? { span: one } : null;
    }
    const row = Math.floor((event.offsetY - AXIS - this.spans.length * RANGE_ROW) / LANE), lane = this.ops.lanes[row], sampled = this.sampled[row - this.ops.lanes.length];
    if (sampled && event.offsetX >= LABELS) {
      const at = firstAtOrAfter(sampled.start.length, (one) => sampled.start[one] + sampled.extent[one], moment);
      return at < sampled.start.length && sampled.start[at] <= moment ? { sampled, sample: at } : null;
    }
    if (!lane || event.offsetX < LABELS) return null;
    const near = 2 * (this.to - this.from) / this.width();
    let place = firstAtOrAfter(lane.rows.length, (at) => this.ops.start[lane.rows[at]], moment) - 1;
    for (let tries = 0; place >= 0 && tries < 50; place--, tries++) {
      const row = lane.rows[place];
      if (this.ops.start[row] + this.ops.extent[row] + near >= moment) return { row };
    }
    return null;
  },
  point(event) {
    const found = this.at(event);
    this.canvas.style.cursor = found && !found.sampled ? "pointer" : "grab";
    if (!found) return tip.hide();
    if (found.sampled) {
      const { sampled, sample } = found;
      return tip.show(event.clientX, event.clientY, sampled.name, [["sampled", show(sampled.share[sample], "frac")], ["start", show(sampled.start[sample], "ns")], ["over", show(sampled.extent[sample], "ns")]]);
    }
    const { of } = this.ops;
    if (found.span) return tip.show(event.clientX, event.clientY, found.span.path, [["on the GPU", show(found.span.end - found.span.start, "ns")], ["operations", grouped(found.span.last - found.span.first + 1)],
      ["host, no profiler", bareOf(foldOf(found.span.path)) === null ? null : `${show(bareOf(foldOf(found.span.path)), "ns")} a call`]]);
    const at = (name) => of.at(name, found.row);
    return tip.show(event.clientX, event.clientY, at("kernel"), [
      ["time", show(at("busy_ns"), "ns")], ["start", show(at("start_ns"), "ns")], ["range", at("range")], ["step", at("step")], ["launches", at("launches") > 1 ? `${grouped(at("launches"))} in one` : null],
    ]);
  },
  click(event) {
    const found = this.at(event);
    tip.hide();
    if (found?.span) select(foldOf(found.span.path));
    else if (found && !found.sampled && kernelOrder().has(this.ops.of.at("kernel", found.row))) openKernel(this.ops.of.at("kernel", found.row));
  },
  describe() {
    const { ops } = this;
    let busy = 0, gap = 0, reached = this.from;
    for (const lane of ops.lanes) {
      const start = (at) => ops.start[lane.rows[at]];
      const low = firstAtOrAfter(lane.rows.length, start, this.from), high = firstAtOrAfter(lane.rows.length, start, this.to);
      busy += high - low;
      if (ops.lanes.length > 1 || high - low > 20000) continue;
      for (let at = low; at < high; at++) { const row = lane.rows[at]; gap = Math.max(gap, ops.start[row] - reached); reached = Math.max(reached, ops.start[row] + ops.extent[row]); }
    }
    this.said.textContent = `${grouped(busy)} of ${grouped(ops.count)} rows in ${show(this.to - this.from, "ns")}${gap > 0 ? `; longest wait ${show(gap, "ns")}` : ""}. Drag to move, Ctrl and wheel or double click to zoom, click to open.`;
    this.compare();
  },
  // The wall time of the steps in view, with the profiler and without it.
  compare() {
    const gaps = table("gaps"), rows = [];
    for (let row = 0; row < gaps.rows; row++) {
      const ops = this.ops.of.where("step", gaps.at("step", row));
      if (!ops.length) continue;
      const start = this.ops.start[ops[0]], end = this.ops.start[ops.at(-1)];
      if (start < this.to && end > this.from) rows.push(row);
    }
    const first = rows.slice(0, 4), longest = Math.max(...first.map((row) => Math.max(gaps.at("wall_ns", row) ?? 0, gaps.at("bare_wall_ns", row) ?? 0)), 1);
    const key = first.join();
    if (key === this.compared) return;
    this.compared = key;
    const bar = (label, value, name) => make("div", { class: "wall" }, make("span", { class: "wall-name" }, label), value === null
      ? folded(make("span", { class: "missing" }, page.why.bare ?? "not measured"), label)
      : make("span", { class: `wall-bar ${name}`, style: { "--f": value / longest } }), value === null ? "" : make("span", {}, show(value, "ns")));
    this.walls.replaceChildren(...first.map((row) => make("div", { class: "wall-step" }, make("b", {}, gaps.at("step", row)),
      bar("with the profiler", gaps.at("wall_ns", row), "attached"), bar("without a profiler", gaps.at("bare_wall_ns", row), "bare"), bar("GPU busy", gaps.at("busy_ns", row), "busy"))),
    rows.length > 4 ? make("p", { class: "question" }, `and ${grouped(rows.length - 4)} more steps in view`) : "");
  },
};
// The folded range of a range of the timeline.
const foldOf = (path) => {
  const depth = path.split("/").length;
  return [...program.ranges.keys()].find((one) => one && one.split("/").length === depth && patternOf(one).test(path)) ?? path;
};
