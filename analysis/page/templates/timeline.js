// The timeline on a canvas: pauses and findings, the host's threads, ranges on the GPU, streams, samples. Where boxes are
// narrower than a pixel, a column shows how busy its stretch of time was, so that drawing costs as much for 100,000 as for 100.
const LANE = 26, THIN = 17, AXIS = 22, LABELS = 104, MOST_LEVELS = 10, MOST_ARROWS = 200;
const WAITS = /Synchronize|Wait|Query/;

const firstAtOrAfter = (count, value, moment) => {
  let low = 0, high = count;
  while (low < high) { const middle = (low + high) >> 1; if (value(middle) < moment) low = middle + 1; else high = middle; }
  return low;
};

// A row of the timeline: boxes in the order of their start. `title`, `colour` and `tell` say what a box is.
class Lane {
  constructor(kind, label, height, start, end, more) {
    Object.assign(this, { kind, label, height, start, end, top: 0 }, more);
    this.count = start.length;
    this.longest = 0;
    for (let at = 0; at < this.count; at++) this.longest = Math.max(this.longest, end[at] - start[at]);
    if (this.dense) {
      this.busy = new Float64Array(this.count + 1);
      for (let at = 0; at < this.count; at++) this.busy[at + 1] = this.busy[at] + this.dense(at);
    }
  }
  after(moment) { return firstAtOrAfter(this.count, (at) => this.start[at], moment); }
  // The box at a moment, or -1: the one that began last.
  at(moment, near) {
    for (let at = this.after(moment + near) - 1, tries = 0; at >= 0 && tries < 50; at--, tries++) if (this.end[at] + near >= moment) return at;
    return -1;
  }
  nearest(moment) {
    const at = Math.min(this.after(moment), this.count - 1);
    return at > 0 && moment - this.start[at - 1] < this.start[at] - moment ? at - 1 : at;
  }
}

// Ranges that hold nothing but one other range are one with it: returns the ranges around a path, each with such a chain.
const chained = (stats) => {
  const only = new Map(), known = new Map();
  for (const path of stats.keys()) {
    const up = path.slice(0, Math.max(path.lastIndexOf("/"), 0));
    only.set(up, only.has(up) ? null : path);
  }
  const next = (path) => {
    const inner = only.get(path), own = stats.get(path), other = stats.get(inner);
    return inner && own && other.count === own.count && other.weight >= 0.9 * own.weight ? inner : null;
  };
  const inner = new Set([...stats.keys()].map(next));
  // A range that is called a/b lies directly in the one around it, so names begin where the known range around them ends.
  const chain = (path, begin) => {
    const names = [path.slice(begin)];
    let tail = path;
    while (next(tail)) { tail = next(tail); names.push(lastPart(tail)); }
    return { head: path, path: tail, name: names.length > 4 ? `${names[0]}/… ${names.length - 2} more …/${names.at(-1)}` : names.join("/") };
  };
  return (path) => {
    if (!known.has(path)) {
      const heads = [];
      for (let cut = path.indexOf("/"), begin = 0; ; cut = path.indexOf("/", cut + 1)) {
        const head = cut < 0 ? path : path.slice(0, cut);
        if (stats.has(head)) {
          if (!inner.has(head)) heads.push(chain(head, begin));
          begin = cut + 1;
        }
        if (cut < 0) break;
      }
      known.set(path, heads);
    }
    return known.get(path);
  };
};
const counted = (stats, path, count, weight) => {
  const one = stats.get(path);
  if (one) { one.count += count; one.weight += weight; } else stats.set(path, { count, weight });
};

// Lanes of streams, by their numbers, and what the rows of the table of operations are.
const loadOperations = () => {
  const of = table("operations"), count = of.rows, start = of.named.get("start_ns").numbers, extent = of.named.get("extent_ns").numbers;
  const busy = of.named.get("busy_ns").numbers, named = of.named.get("lane"), rows = new Map(), bounds = new Map(), end = new Float64Array(count);
  let last = 1;
  for (const node of program.ranges.values()) {
    for (const one of node.children) if (one.kind === "kernel" && isBetterKnown(one, bounds.get(one.kernel))) bounds.set(one.kernel, one);
  }
  for (let row = 0; row < count; row++) {
    const name = named.at(row);
    if (rows.has(name)) rows.get(name).push(row); else rows.set(name, [row]);
    last = Math.max(last, end[row] = start[row] + extent[row]);
  }
  const kinds = of.named.get("kind"), bound = (row) => bounds.get(of.at("kernel", row))?.bound ?? (kinds.at(row) === "kernel" ? "unknown" : "copy");
  const lanes = [...rows].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true })).map(([name, own]) => new Lane("operation", name, LANE,
    picked(own, (row) => start[row]), picked(own, (row) => end[row]), {
      rows: own, dense: (at) => busy[own[at]], colour: (at) => bound(own[at]), title: (at) => briefName(of.at("kernel", own[at])),
      faded: (at) => selection.path && !isInside(of.at("range", own[at]), selection.path),
    }));
  const names = of.named.get("kernel"), one = new Map();  // a row of each kernel
  for (let row = 0; row < count; row++) one.set(names.place(row), row);
  return { of, count, start, end, lanes, last, bounds: new Set([...one.values()].map(bound)) };
};

// The ranges around each operation.
const loadPaths = (ops) => {
  const column = ops.of.named.get("range"), stats = new Map(), times = new Map();
  for (let row = 0; row < ops.count; row++) times.set(column.place(row), (times.get(column.place(row)) ?? 0) + 1);
  for (const [place, count] of times) {
    for (let path = page.strings[place]; path; path = path.slice(0, Math.max(path.lastIndexOf("/"), 0))) counted(stats, path, count, count);
  }
  return chained(stats);
};

// Lanes of a GPU: stretches of time of nested ranges, a lane a level, where neighbouring operations of one range are one
// stretch; then its streams.
const loadGpu = (gpu, streams, ops, around) => {
  const levels = [], open = [], column = ops.of.named.get("range"), parts = new Map(), rows = streams.flatMap((lane) => lane.rows);
  for (const row of streams.length > 1 ? rows.sort((one, other) => one - other) : rows) {
    const place = column.place(row), step = ops.of.at("step", row) ?? "";
    if (!parts.has(place)) parts.set(place, place < 0 ? [] : around(column.at(row)).slice(0, MOST_LEVELS));
    const path = parts.get(place);
    let same = true;
    for (let level = 0; level < Math.max(path.length, open.length); level++) {
      const one = path[level], before = open[level];
      same = same && before && one && before.head === one.head && before.step === step;
      if (same) { before.end = Math.max(before.end, ops.end[row]); before.count++; continue; }
      open[level] = null;
      if (!one) continue;
      open[level] = { ...one, step, start: ops.start[row], end: ops.end[row], count: 1 };
      (levels[level] ??= []).push(open[level]);
    }
  }
  return [...levels.map((all, level) => new Lane("stretch", level ? "" : `${gpu || "GPU"}, ranges`, THIN, picked(all, (one) => one.start), picked(all, (one) => one.end), {
    all, colour: () => "line", title: (at) => all[at].name,
  })), ...streams];
};
const byGpu = (lanes) => {
  const found = new Map();
  for (const lane of lanes) {
    const gpu = lane.label.replace(/ ?stream \S+$/, "");
    if (found.has(gpu)) found.get(gpu).push(lane); else found.set(gpu, [lane]);
  }
  return [...found];
};

// Ranges and calls of each thread of the host.
const loadHost = (host, launching) => {
  const lanes = [], paths = host.ranges.name.map((place) => page.strings[place]), at = summed(host.ranges.start), begin = summed(host.calls.start), stats = new Map();
  paths.forEach((path, row) => counted(stats, path, 1, host.ranges.extent[row]));
  const around = chained(stats);
  host.threads.forEach((name, thread) => {
    const levels = [], calls = [];
    paths.forEach((path, row) => {
      const heads = around(path), one = heads.at(-1);
      if (host.ranges.thread[row] === thread && one.head === path && heads.length <= MOST_LEVELS) (levels[heads.length - 1] ??= []).push({ ...one, start: at[row], end: at[row] + host.ranges.extent[row] });
    });
    for (let row = 0; row < begin.length; row++) if (host.calls.thread[row] === thread) calls.push(row);
    [...levels].forEach((all = [], level) => lanes.push(new Lane("range", level ? "" : name, THIN, picked(all, (one) => one.start), picked(all, (one) => one.end), { all, colour: () => "line", title: (one) => all[one].name })));
    const title = (one) => page.strings[host.calls.name[calls[one]]], many = (one) => host.calls.count?.[calls[one]] ?? 1;
    const colour = (one) => launching.has(calls[one]) ? "launch" : WAITS.test(title(one)) ? "unknown" : many(one) > 1 ? "launch" : "host";
    if (calls.length) lanes.push(new Lane("call", levels.length ? "CUDA calls" : `${name}, calls`, LANE, picked(calls, (row) => begin[row]), picked(calls, (row) => begin[row] + host.calls.extent[row]), { rows: calls, dense: (one) => host.calls.extent[calls[one]], colour, title, many }));
  });
  return lanes;
};

// Pauses with their numbers, and findings: those of the same stretch are one box, and boxes that overlap get lanes of their own.
const loadMarks = (host) => {
  const pauses = host.pauses, byPlace = new Map(), lanes = [];
  for (const [rank, start, end, title] of host.findings) {
    const key = `${start}-${end}`;
    if (byPlace.has(key)) byPlace.get(key).ranks.push([rank, title]); else byPlace.set(key, { start, end, ranks: [[rank, title]] });
  }
  for (const one of [...byPlace.values()].sort((one, other) => one.start - other.start)) {
    const free = lanes.find((lane) => lane.at(-1).end <= one.start);
    if (free) free.push(one); else if (lanes.length < 4) lanes.push([one]);
  }
  return [
    ...pauses.length ? [new Lane("pause", "pauses", THIN, picked(pauses, ([start]) => start), picked(pauses, ([start, extent]) => start + extent), { colour: () => "latency", title: (at) => `${at + 1}` })] : [],
    ...lanes.map((all, level) => new Lane("finding", level ? "" : "findings", THIN, picked(all, (one) => one.start), picked(all, (one) => one.end), {
      all, colour: () => "bar", title: (at) => all[at].ranks.length === 1 ? `${all[at].ranks[0].join(". ")}` : all[at].ranks.map(([rank]) => rank).join(", ") })),
  ];
};

// What was sampled under the kernels: one lane for DRAM, tensor cores, schedulers, links and clock of each GPU.
const loadSampled = () => {
  const of = table("sampled_times"), rows = new Map();
  if (!of.rows) return [];
  const start = of.named.get("start_ns").numbers, extent = of.named.get("extent_ns").numbers, share = of.named.get("share_frac").numbers;
  const gpus = new Set(of.named.get("gpu").numbers).size;
  for (let row = 0; row < of.rows; row++) {
    const name = gpus > 1 ? `GPU ${of.at("gpu", row)} ${of.at("lane", row)}` : of.at("lane", row);
    if (rows.has(name)) rows.get(name).push(row); else rows.set(name, [row]);
  }
  return [...rows].map(([name, own]) => new Lane("sample", name, LANE, own.map((row) => start[row]), own.map((row) => start[row] + extent[row]), {
    share: own.map((row) => share[row]), title: () => name, colour: () => name.includes("clock") ? "soft" : name.includes("tensor") || name.includes("issue") ? "compute" : "memory",
  }));
};

// 1 for each box that begins inside the one before and ends after it: Perfetto drops it from the same track.
const beside = (lane) => {
  const sides = new Uint8Array(lane.count);
  for (let at = 1; at < lane.count; at++) sides[at] = lane.start[at] < lane.end[at - 1] && lane.end[at] > lane.end[at - 1] ? 1 - sides[at - 1] : 0;
  return sides;
};

const timeline = {
  start() {
    this.box = $("[data-live=timeline]");
    this.host = page.timeline ?? { zero: 0, origin: 0, threads: [], calls: { thread: [], start: [], extent: [], name: [] }, ranges: { thread: [], start: [], extent: [], name: [] }, called: [], pauses: [], findings: [], left: [0, 0] };
    if (!this.box || !table("operations").rows) return;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": "Timeline. Arrows up and down choose a lane, comma and full stop a box in it, Enter opens it; arrows left and right move, plus and minus zoom, n and p go to pauses, m measures. The table of operations has the same as text" });
    this.choice = make("select", { "aria-label": "Step", onchange: () => this.show(this.choice.value) });
    this.said = make("p", { class: "question" });
    this.about = make("div", { class: "about", role: "status" });
    this.load();  // at once, so that what stands below has its place
    const pauses = this.host.pauses.length, none = pauses ? {} : { disabled: true };
    this.box.replaceChildren(
      make("div", { class: "tools" }, make("label", {}, "step ", this.choice), button("+", () => this.zoom(0.5), { "aria-label": "Zoom in" }), button("−", () => this.zoom(2), { "aria-label": "Zoom out" }), button("whole", () => this.show(""), { "aria-label": "Show the whole timeline" }),
        button("‹ pause", () => this.pause(-1), { "aria-label": "Previous pause", ...none }), make("span", {}, `${pauses || "no"} pause${pauses === 1 ? "" : "s"}`), button("pause ›", () => this.pause(1), { "aria-label": "Next pause", ...none }),
        button("open in Perfetto", () => this.export(), { title: "Saves a trace. ui.perfetto.dev reads it in the browser." })),
      this.canvas, this.about, this.said,
      make("ul", { class: "legend", "aria-label": "Colours of calls and operations" }, this.legend().map(([name, said]) => make("li", {}, make("i", { class: "swatch", style: { background: `var(--${name})` } }), ` ${said}`))),
    );
    whenSeen(this.box, () => this.ready());
    selection.listeners.push(() => { this.follow = true; renderIfSeen(this.box); });
  },
  // What the colours of this capture mean, by the words that bind kernels.
  legend() {
    const { bounds } = this.ops, calls = this.lanes.some(({ kind }) => kind === "call");
    const said = { launch: [calls && "call that launches"], host: [calls && "other call"], unknown: [calls && "call that waits"], latency: [this.host.pauses.length && "pause"] };
    return ["launch", "host", "unknown", "memory", "compute", "latency", "copy"].map((name) => [name, [...said[name] ?? [], bounds.has(name) && (bindings[name] ?? name)].filter(Boolean).join("; ")]).filter(([, words]) => words);
  },
  ready() {
    if (this.follow) this.showRange(selection.path);
    this.follow = false;
    this.soon();
  },
  load() {
    const { host, canvas } = this;
    this.ops = loadOperations();
    for (const of of [host.calls, host.ranges]) for (const [name, list] of Object.entries(of)) of[name] = unpacked(list);
    this.called = summed(unpacked(host.called));
    const around = loadPaths(this.ops);
    this.lanes = [...loadMarks(host), ...loadHost(host, new Set(this.called)), ...byGpu(this.ops.lanes).flatMap(([gpu, streams]) => loadGpu(gpu, streams, this.ops, around)), ...loadSampled()];
    let top = AXIS;
    for (const lane of this.lanes) { lane.top = top; top += lane.height; }
    canvas.style.height = `${top}px`;
    this.first = 0;
    this.last = this.ops.last;
    for (const lane of this.lanes) if (lane.count && ["call", "range"].includes(lane.kind)) { this.first = Math.min(this.first, lane.start[0]); this.last = Math.max(this.last, lane.end[lane.count - 1]); }
    this.follow ||= Boolean(selection.path);
    const steps = [...new Set(Array.from({ length: table("gaps").rows }, (_, row) => table("gaps").at("step", row)))].filter((name) => this.ops.of.where("step", name).length);
    this.choice.replaceChildren(make("option", { value: "" }, "whole capture"), ...steps.slice(0, 500).map((name) => make("option", { value: name }, name)));
    [this.from, this.to] = [this.first, this.last];
    this.describe();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  },
  listen() {
    const { canvas } = this;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      const pans = event.shiftKey || event.button === 1 || event.offsetY < AXIS || event.offsetX < LABELS;
      held = { x: event.clientX, from: this.from, to: this.to, moved: false, edge: pans ? null : this.edge(event) };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.point(event);
      held.moved ||= Math.abs(held.x - event.clientX) > 3;
      if (!held.moved) return;
      if (held.edge === null) { const by = (held.x - event.clientX) / this.width() * (held.to - held.from); this.view(held.from + by, held.to + by); } else this.measure(held.edge, this.edge(event));
    });
    canvas.addEventListener("pointerup", (event) => { if (held && !held.moved) this.click(event); held = null; });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("pointerleave", () => { tip.hide(); this.hovered = null; this.soon(); });
    canvas.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
      if (!event.ctrlKey && !event.metaKey && !sideways) return;
      event.preventDefault();
      const by = sideways / this.width() * (this.to - this.from);
      if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.moment(event)); else this.view(this.from + by, this.to + by);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => { const found = this.at(event); if (found && found[0].kind !== "sample") this.fitBox(found); else this.zoom(0.25, this.moment(event)); });
    canvas.addEventListener("keydown", (event) => {
      const by = (this.to - this.from) / 5, act = event.ctrlKey || event.metaKey || event.altKey ? null : {
        ArrowLeft: () => this.view(this.from - by, this.to - by), ArrowRight: () => this.view(this.from + by, this.to + by),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.show(""),
        ArrowUp: () => this.walk(-1), ArrowDown: () => this.walk(1), ",": () => this.next(-1), ".": () => this.next(1),
        Enter: () => this.chosen && this.tell(this.chosen).open?.[1](), z: () => this.chosen && this.fitBox(this.chosen),
        n: () => this.pause(1), p: () => this.pause(-1), m: () => this.mark(),
        Escape: this.chosen || this.measured ? () => { this.measured = this.marked = null; this.choose(null); } : null,
      }[event.key];
      if (act) { event.preventDefault(); event.stopPropagation(); act(); }
    });
  },
  width() { return Math.max(this.wide - LABELS, 50); },
  moment(event) { return this.from + (event.offsetX - LABELS) / this.width() * (this.to - this.from); },
  near() { return 2 * (this.to - this.from) / this.width(); },
  view(from, to) {
    const whole = this.last - this.first, length = Math.min(Math.max(to - from, 50), whole * 1.02);
    this.from = Math.min(Math.max(from, this.first - 0.01 * whole), this.last + 0.01 * whole - length);
    this.to = this.from + length;
    this.soon();
  },
  soon() { this.pending ??= requestAnimationFrame(() => { this.pending = null; this.draw(); }); },
  zoom(by, around = (this.from + this.to) / 2) { this.view(around - (around - this.from) * by, around + (this.to - around) * by); },
  show(step) {
    this.choice.value = step;
    if (!step) return this.view(this.first, this.last);
    this.fit(this.ops.of.where("step", step));
  },
  showRange(path) {
    if (!path) return this.show("");
    const rows = [];
    for (const [range, of] of this.byRange()) if (isInside(range, path)) rows.push(...of);
    if (rows.length) this.fit(rows);
  },
  byRange() {
    this.ops.of.where("range", null);
    return this.ops.of.index.get("range");
  },
  around(from, to, beside = 0.01) { this.view(from - beside * (to - from), to + beside * (to - from)); },
  fit(rows) {
    let from = Infinity, to = -Infinity;
    for (const row of rows) { from = Math.min(from, this.ops.start[row]); to = Math.max(to, this.ops.end[row]); }
    this.around(from, to);
  },
  // Fills a third of the width with a box, or the width with a range.
  fitBox([lane, at]) { this.choose([lane, at]); this.around(lane.start[at], lane.end[at], ["operation", "call", "pause"].includes(lane.kind) ? 1 : 0.02); },
  // A stretch that a link names, on the clock of the capture.
  go(value) {
    const found = /^(-?\d+)-(-?\d+)$/.exec(value);
    if (!found || !this.canvas) return;
    this.follow = false;
    const [from, to] = [Number(found[1]) - this.host.zero, Number(found[2]) - this.host.zero];
    this.measured = [from, to];
    this.around(from, to, 0.05);
    this.choose(null);
    $("#timeline").scrollIntoView();
    this.canvas.focus({ preventScroll: true });
  },
  x(moment) { return LABELS + (moment - this.from) / (this.to - this.from) * this.width(); },
  // A time as the sentences write it, with digits for a thousandth of a length.
  clock(moment, length) { return `${((moment + this.host.origin) / 1e9).toFixed(Math.min(Math.max(3 - Math.floor(Math.log10(length / 1e9)), 3), 9))} s`; },
  draw() {
    const { canvas } = this;
    if (!canvas.clientWidth) return;
    this.wide = canvas.clientWidth;
    const scale = devicePixelRatio || 1, height = canvas.clientHeight;
    canvas.width = this.wide * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.colours = Object.fromEntries(["launch", "host", "memory", "compute", "latency", "unknown", "copy", "fg", "soft", "line", "card", "bg", "bar", "link"].map((name) => [name, css(`--${name}`)]));
    this.axis(pen, height);
    for (const lane of this.lanes) {
      pen.fillStyle = this.colours.soft;
      pen.fillText(lane.label.length > 17 ? `${lane.label.slice(0, 7)}…${lane.label.slice(-9)}` : lane.label, 2, lane.top + lane.height / 2);
      pen.fillStyle = this.colours.line;
      if (lane.height === LANE) pen.fillRect(LABELS, lane.top + LANE - 2, this.width(), 1);
      pen.save(); pen.beginPath(); pen.rect(LABELS, lane.top, this.width(), lane.height); pen.clip();
      if (lane.kind === "sample") this.drawSampled(pen, lane); else this.drawLane(pen, lane);
      pen.restore();
    }
    this.overlay(pen, height);
    this.describe();
  },
  axis(pen, height) {
    const length = this.to - this.from, rough = length / Math.max(this.width() / 120, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((by) => by * power).find((one) => one >= rough), { origin } = this.host;
    pen.strokeStyle = this.colours.line;
    pen.fillStyle = this.colours.soft;
    for (let moment = Math.ceil((this.from + origin) / step) * step - origin; moment <= this.to; moment += step) {
      const x = Math.round(this.x(moment)) + 0.5;
      pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, height); pen.stroke();
      pen.fillText(this.clock(moment, step * 100), x + 3, AXIS / 2);
    }
  },
  drawLane(pen, lane) {
    const { colours } = this, width = this.width(), top = lane.top + (lane.dense ? 2 : 1), height = lane.height - (lane.dense ? 4 : 2);
    const begin = lane.after(this.from - lane.longest), end = lane.after(this.to), ink = { launch: "#10151a", memory: "#fff", compute: "#08140f", host: "#10151a", latency: "#10151a", unknown: "#10151a", copy: "#10151a" };
    if (lane.dense && end - begin > 2 * width) {
      const length = (this.to - this.from) / width;
      for (let pixel = 0, low = begin; pixel < width; pixel++) {
        const high = lane.after(this.from + (pixel + 1) * length);
        if (high <= low) continue;
        const share = Math.min((lane.busy[high] - lane.busy[low]) / length, 1);
        let most = low;  // the longest of the first ones gives the colour
        for (let at = low; at < Math.min(high, low + 8); at++) if (lane.dense(at) > lane.dense(most)) most = at;
        pen.fillStyle = colours[lane.colour(most)];
        pen.fillRect(LABELS + pixel, top + height * (1 - share), 1, height * share);
        low = high;
      }
      return;
    }
    let reached = -1;
    for (let at = begin; at < end; at++) {
      const left = Math.max(this.x(lane.start[at]), LABELS), right = Math.max(Math.min(this.x(lane.end[at]), LABELS + width), left + 0.7);
      if (this.x(lane.end[at]) < LABELS) continue;
      if (!lane.dense && right <= reached + 0.5) {  // narrower than a pixel and drawn over: on to the next pixel
        at = Math.max(at, lane.after(this.from + (reached + 1 - LABELS) / width * (this.to - this.from)) - 1);
        continue;
      }
      reached = right;
      const name = lane.colour(at);
      pen.globalAlpha = lane.faded?.(at) ? 0.25 : 1;
      pen.fillStyle = colours[name];
      pen.fillRect(left, top, right - left, height);
      if (right - left > 3) { pen.fillStyle = colours.bg; pen.fillRect(left, top, 1, height); }
      if (right - left > (lane.kind === "pause" ? 7 : 24)) {
        pen.save(); pen.beginPath(); pen.rect(left, top, right - left - 2, height); pen.clip();
        pen.fillStyle = ink[name] ?? colours.fg; pen.fillText(lane.title(at).slice(0, 200), left + 4, top + height / 2); pen.restore();
      }
      pen.globalAlpha = 1;
    }
  },
  // The height is the mean share over each pixel's samples.
  drawSampled(pen, lane) {
    const width = this.width(), height = LANE - 4, length = (this.to - this.from) / width;
    pen.fillStyle = this.colours[lane.colour()];
    for (let pixel = 0; pixel < width; pixel++) {
      const from = this.from + pixel * length, low = firstAtOrAfter(lane.count, (at) => lane.end[at], from), high = Math.max(lane.after(from + length), low + 1);
      if (low >= lane.count || lane.start[low] > from + length) continue;
      const known = lane.share.slice(low, high).filter((one) => one !== null), share = known.reduce((sum, one) => sum + one, 0) / known.length;
      if (known.length) pen.fillRect(LABELS + pixel, lane.top + 2 + height * (1 - share), 1, height * share);
    }
  },
  // What is measured, pauses across all lanes, the chosen box, and arrows from a launch to its kernels.
  overlay(pen, height) {
    const { colours } = this, right = LABELS + this.width();
    pen.save(); pen.beginPath(); pen.rect(LABELS, 0, this.width(), height); pen.clip();
    if (this.measured && this.measured[1] > this.from && this.measured[0] < this.to) {
      const [from, to] = this.measured.map((moment) => this.x(moment)), said = show(this.measured[1] - this.measured[0], "ns");
      pen.fillStyle = colours.link; pen.globalAlpha = 0.12; pen.fillRect(from, 0, to - from, height); pen.globalAlpha = 1;
      pen.fillRect(from - 0.5, 0, 1, height); pen.fillRect(to - 0.5, 0, 1, height);
      const wide = pen.measureText(said).width + 8, at = Math.min(Math.max((from + to - wide) / 2, LABELS), right - wide);
      pen.fillRect(at, 2, wide, AXIS - 6); pen.fillStyle = colours.bg; pen.fillText(said, at + 4, AXIS / 2 - 1);
    }
    const pauses = this.lanes.find(({ kind }) => kind === "pause");
    pen.fillStyle = colours.latency; pen.globalAlpha = 0.1;
    for (let at = pauses?.after(this.from - pauses.longest) ?? 0; at < (pauses?.count ?? 0); at++) pen.fillRect(this.x(pauses.start[at]), AXIS, this.x(pauses.end[at]) - this.x(pauses.start[at]), height);
    pen.globalAlpha = 1;
    const drawn = new Set();
    for (const one of [this.hovered, this.chosen]) {
      if (!one || drawn.has(`${one[0].top} ${one[1]}`)) continue;
      drawn.add(`${one[0].top} ${one[1]}`);
      for (const [from, to] of this.arrows(one)) this.arrow(pen, from, to);
    }
    if (this.chosen) {
      const [lane, at] = this.chosen, left = this.x(lane.start[at]);
      pen.strokeStyle = colours.fg; pen.lineWidth = 2;
      pen.strokeRect(left - 1, lane.top + 1, Math.max(this.x(lane.end[at]) - left, 1) + 2, lane.height - 2);
    }
    pen.restore();
  },
  arrow(pen, [lane, at], [other, to]) {
    const x = this.x(lane.start[at]), y = lane.top + lane.height - 3, right = this.x(other.start[to]), low = other.top + 2, bend = (low - y) / 2;
    pen.strokeStyle = pen.fillStyle = this.colours.fg; pen.lineWidth = 1.2;
    pen.beginPath(); pen.moveTo(x, y); pen.bezierCurveTo(x, y + bend, right, low - bend, right, low - 5); pen.stroke();
    pen.beginPath(); pen.moveTo(right, low); pen.lineTo(right - 3.5, low - 7); pen.lineTo(right + 3.5, low - 7); pen.fill();
  },
  // The lane and the box of a row of the calls or the operations, or null.
  place(kind, row) {
    for (const lane of row < 0 ? [] : this.lanes) {
      if (lane.kind !== kind) continue;
      const at = firstAtOrAfter(lane.count, (one) => lane.rows[one], row);  // a lane's rows ascend
      if (lane.rows[at] === row) return [lane, at];
    }
    return null;
  },
  // The rows of the operations that a call launched.
  launched(call) {
    const rows = [];
    for (let row = 0; row < this.called.length; row++) if (this.called[row] === call) rows.push(row);
    return rows;
  },
  // Pairs of a launch and what it launched, for either of them.
  arrows([lane, at]) {
    const row = lane.rows?.[at], call = lane.kind === "operation" ? this.called[row] : lane.kind === "call" ? row : -1;
    const from = this.place("call", call), rows = lane.kind === "operation" ? [row] : from ? this.launched(call).slice(0, MOST_ARROWS) : [];
    return from ? rows.map((one) => [from, this.place("operation", one)]) : [];
  },
  laneAt(event) { return this.lanes.find((lane) => event.offsetY >= lane.top && event.offsetY < lane.top + lane.height); },
  at(event) {
    const lane = this.laneAt(event), at = lane && event.offsetX >= LABELS ? lane.at(this.moment(event), lane.kind === "sample" ? 0 : this.near()) : -1;
    return at < 0 ? null : [lane, at];
  },
  // The moment under the pointer, or the edge of a box that is near.
  edge(event) {
    const moment = this.moment(event), found = this.at(event), near = 3 * this.near();
    const edges = found ? [found[0].start[found[1]], found[0].end[found[1]]] : [];
    return edges.find((one) => Math.abs(one - moment) < near) ?? moment;
  },
  // What is known of a box: its title, pairs of words and values, and what Enter does.
  tell([lane, at]) {
    const start = lane.start[at], length = lane.end[at] - start, pairs = [["start", this.clock(start, length || 1000)]];
    if (lane.kind === "sample") return { title: lane.label, pairs: [["sampled", show(lane.share[at], "frac")], ...pairs, ["over", show(length, "ns")]] };
    if (lane.kind === "pause") return { title: `Pause ${at + 1} of ${lane.count}`, pairs: [["no GPU operation for", show(length, "ns")], ...pairs, ["the host then", this.during(start, lane.end[at])]] };
    if (lane.kind === "finding") {
      const [rank] = lane.all[at].ranks[0];
      return { title: lane.all[at].ranks.map(([one, title]) => `${one}. ${title}`).join("; "), pairs: [["length", show(length, "ns")], ...pairs], open: ["go to the finding", () => { location.hash = `finding-${rank}`; $(`#finding-${rank}`)?.focus(); }] };
    }
    if (lane.all) {
      const { path, count } = lane.all[at], bare = bareOf(foldOf(path));
      return { title: path, pairs: [[count ? "on the GPU" : "on the host", show(length, "ns")], ...pairs, ["operations", count ? grouped(count) : null], ["host, no profiler", bare === null ? null : `${show(bare, "ns")} a call`]], open: ["select this range", () => select(foldOf(path))] };
    }
    const row = lane.rows[at];
    if (lane.kind === "call") {
      const rows = this.launched(row), first = rows.reduce((least, one) => Math.min(least, this.ops.start[one]), Infinity);
      return { title: lane.title(at), pairs: [["time", show(length, "ns")], ...pairs, ["calls", lane.many(at) > 1 ? `${grouped(lane.many(at))} in one` : null], ["launches", rows.length ? grouped(rows.length) : null], ["first begins", rows.length ? `${show(first - start, "ns")} later` : null]], other: rows.length ? ["its kernel", this.place("operation", rows[0])] : null };
    }
    const value = (name) => this.ops.of.at(name, row), call = this.place("call", this.called[row]), name = value("kernel");
    return {
      title: name, pairs: [["time", show(value("busy_ns"), "ns")], ...pairs, ["range", value("range")], ["step", value("step")], ["launches", value("launches") > 1 ? `${grouped(value("launches"))} in one` : null], ["launched", call ? `${show(start - call[0].start[call[1]], "ns")} earlier` : null]],
      open: kernelOrder().has(name) ? ["open its page", () => openKernel(name)] : null, other: call ? ["its launch", call] : null,
    };
  },
  // The call, or else the range, in which the host spends most of a stretch.
  during(from, to) {
    for (const kind of ["call", "range"]) {
      const sums = new Map();
      for (const lane of this.lanes) {
        if (lane.kind !== kind) continue;
        for (let at = lane.after(from - lane.longest), end = lane.after(to); at < end; at++) {
          const part = Math.min(lane.end[at], to) - Math.max(lane.start[at], from);
          if (part > 0) sums.set(lane.title(at), (sums.get(lane.title(at)) ?? 0) + part);
        }
      }
      const [name, time] = [...sums].sort((one, other) => other[1] - one[1])[0] ?? [];
      if (time > 0.2 * (to - from)) return `${name}, ${percent(Math.min(time / (to - from), 1))} of it`;
    }
    return this.host.threads.length ? "in no known call or range" : null;
  },
  point(event) {
    const found = this.at(event), drags = event.offsetY < AXIS || event.offsetX < LABELS;
    this.canvas.style.cursor = drags ? "grab" : found && found[0].kind !== "sample" ? "pointer" : "crosshair";
    const before = this.hovered;
    this.hovered = found;
    if (before?.[0] !== found?.[0] || before?.[1] !== found?.[1]) if ([before, found].some((one) => one && this.arrows(one).length)) this.soon();
    if (!found) return tip.hide();
    const { title, pairs } = this.tell(found);
    tip.show(event.clientX, event.clientY, title, pairs);
  },
  click(event) {
    const found = this.at(event);
    tip.hide();
    this.measured = null;
    this.choose(found && found[0].kind !== "sample" ? found : null);
  },
  choose(one) {
    this.chosen = one;
    if (one) {
      const [lane, at] = one, length = this.to - this.from, begin = lane.start[at];
      if (lane.end[at] < this.from || begin > this.to) this.view(begin - length / 2, begin + length / 2);
    }
    this.inform();
    this.soon();
  },
  walk(by) {
    const lanes = this.lanes.filter((lane) => lane.count && lane.kind !== "sample"), at = lanes.indexOf(this.chosen?.[0]);
    const lane = lanes[at < 0 ? (by > 0 ? 0 : lanes.length - 1) : Math.min(Math.max(at + by, 0), lanes.length - 1)], middle = (this.from + this.to) / 2;
    const from = this.chosen?.[0].start[this.chosen[1]] ?? middle;
    this.choose([lane, lane.nearest(from >= this.from && from <= this.to ? from : middle)]);
  },
  next(by) {
    if (!this.chosen) return this.walk(1);
    const [lane, at] = this.chosen;
    this.choose([lane, Math.min(Math.max(at + by, 0), lane.count - 1)]);
  },
  pause(by) {
    const lane = this.lanes.find(({ kind }) => kind === "pause");
    if (!lane) return say("The timeline has no pause");
    const whole = this.to - this.from > (this.last - this.first) / 2, before = lane.after(whole ? -by * Infinity : (this.from + this.to) / 2);
    const at = this.chosen?.[0] === lane ? this.chosen[1] + by : by > 0 ? before : before - 1;
    this.fitBox([lane, (at + lane.count) % lane.count]);
  },
  // The first m measures the chosen box, the second from its start to the end of the box that is chosen then.
  mark() {
    if (!this.chosen) return say("Choose a box first");
    const [lane, at] = this.chosen, from = this.marked ?? lane.start[at];
    this.marked = this.marked === null || this.marked === undefined ? from : null;
    this.measure(from, from > lane.start[at] ? lane.start[at] : lane.end[at]);
  },
  measure(from, to) {
    this.measured = [Math.min(from, to), Math.max(from, to)];
    this.inform();
    this.soon();
  },
  // Below the canvas: what is chosen or measured, and what can be done with it.
  inform() {
    const parts = [];
    if (this.measured && this.measured[1] > this.from && this.measured[0] < this.to) {
      const [from, to] = this.measured;
      parts.push(make("p", {}, make("b", {}, `Measured ${show(to - from, "ns")}`), ` from ${this.clock(from, to - from || 1)}: the GPU works for ${percent(this.busy(from, to) / Math.max(to - from, 1))} of it. `, button("zoom to it", () => this.around(from, to)), " ", button("end", () => { this.measured = null; this.inform(); this.soon(); }, { "aria-label": "End the measurement" })));
    }
    if (this.chosen) {
      const { title, pairs, open, other } = this.tell(this.chosen);
      parts.push(make("p", {}, make("b", {}, title.slice(0, 300)), ` ${pairs.filter(([, value]) => value !== null).map(([word, value]) => `${word} ${value}`).join(" · ")} `,
        open && button(open[0], open[1]), " ", button("zoom to it", () => this.fitBox(this.chosen)), " ", other && button(`go to ${other[0]}`, () => this.choose(other[1]))));
    }
    this.about.replaceChildren(...parts);
  },
  // The time in a stretch in which any operation runs.
  busy(from, to) {
    let sum = 0, reached = from;
    const { start, end, count } = this.ops, longest = Math.max(...this.ops.lanes.map((lane) => lane.longest));
    for (let row = firstAtOrAfter(count, (at) => start[at], from - longest); row < count && start[row] < to; row++) {
      const begin = Math.max(start[row], reached), until = Math.min(end[row], to);
      if (until > begin) { sum += until - begin; reached = until; }
    }
    return sum;
  },
  describe() {
    const { start, count } = this.ops, inside = firstAtOrAfter(count, (at) => start[at], this.to) - firstAtOrAfter(count, (at) => start[at], this.from), [threads, ranges] = this.host.left;
    this.said.textContent = `${grouped(inside)} of ${grouped(count)} rows in ${show(this.to - this.from, "ns")}. Drag to measure, Shift and drag to move, Ctrl and wheel or double click to zoom, click to choose.${threads ? ` ${grouped(threads)} more threads are not shown.` : ""}${ranges ? ` ${grouped(ranges)} short ranges of the host are not shown.` : ""}${this.bare()}`;
  },
  // The profiler makes steps longer: how long the one that fills most of the view takes without it.
  bare() {
    const gaps = table("gaps");
    let most = 0, row = -1;
    for (let at = 0; at < gaps.rows; at++) {
      const ops = this.ops.of.where("step", gaps.at("step", at));
      if (!ops.length || gaps.at("bare_wall_ns", at) === null) continue;
      const inside = Math.min(this.ops.start[ops.at(-1)], this.to) - Math.max(this.ops.start[ops[0]], this.from);
      if (inside > most) [most, row] = [inside, at];
    }
    return row < 0 ? "" : ` ${gaps.at("step", row)} takes ${show(gaps.at("wall_ns", row), "ns")} here and ${show(gaps.at("bare_wall_ns", row), "ns")} without a profiler; the GPU works for ${show(gaps.at("busy_ns", row), "ns")} of it.`;
  },
  // The same as a Chrome trace, for ui.perfetto.dev and other viewers; `report.py --trace` writes more.
  export() {
    const events = [], zero = this.host.zero, kinds = { operation: "kernel", call: "cuda_runtime", range: "user_annotation", stretch: "gpu_user_annotation" };
    const groups = { pause: 0, finding: 0, call: 1, range: 1, stretch: 2, operation: 2, sample: 2 };
    ["findings and pauses", "host", "GPU"].forEach((name, pid) => events.push({ ph: "M", name: "process_name", pid, args: { name } }, { ph: "M", name: "process_sort_index", pid, args: { sort_index: pid } }));
    const us = (ns) => Number((ns / 1000).toFixed(3)), track = new Map();
    let thread = null;
    this.lanes.forEach((lane, number) => {
      const pid = groups[lane.kind], host = pid === 1;
      if (!host || lane.label && lane.label !== "CUDA calls") thread = number;
      const tid = host || lane.kind === "stretch" && !lane.label ? thread : number;
      const sides = beside(lane);
      track.set(lane, (at) => [pid, tid + sides[at] * 10000]);
      if (lane.kind !== "sample" && sides.includes(1)) events.push({ ph: "M", name: "thread_name", pid, tid: tid + 10000, args: { name: `${lane.label || "ranges"}, overlapping` } });
      if (lane.kind !== "sample" && tid === number) events.push({ ph: "M", name: "thread_name", pid, tid, args: { name: lane.label || "findings" } }, { ph: "M", name: "thread_sort_index", pid, tid, args: { sort_index: number } });
      for (let at = 0; at < lane.count; at++) {
        const ts = us(lane.start[at] + zero);
        if (lane.kind === "sample") { if (lane.share[at] !== null) events.push({ ph: "C", name: lane.label, pid, ts, args: { "%": lane.share[at] * 100 } }); continue; }
        const name = lane.kind === "pause" ? `pause ${at + 1}` : lane.kind === "operation" ? this.ops.of.at("kernel", lane.rows[at]) : lane.title(at);
        events.push({ ph: "X", cat: kinds[lane.kind] ?? lane.kind, name, pid, tid: track.get(lane)(at)[1], ts, dur: us(lane.end[at] - lane.start[at]) });
      }
    });
    this.called.forEach((call, row) => {
      const from = this.place("call", call), to = this.place("operation", row);
      if (!from) return;
      for (const [ph, [lane, at], more] of [["s", from, {}], ["f", to, { bp: "e" }]]) events.push({ ph, ...more, cat: "ac2g", name: "launch", id: row, pid: track.get(lane)(at)[0], tid: track.get(lane)(at)[1], ts: us(lane.start[at] + zero) });
    });
    save("trace.json", new Blob([JSON.stringify({ displayTimeUnit: "ns", traceEvents: events })], { type: "application/json" }));
    say("trace.json saved: open it at ui.perfetto.dev, which reads it in the browser");
  },
};
// The folded range of a range of the timeline.
const foldOf = (path) => {
  const depth = path.split("/").length;
  return [...program.ranges.keys()].find((one) => one && one.split("/").length === depth && patternOf(one).test(path)) ?? path;
};
