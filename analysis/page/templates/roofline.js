// The roofline: points of the selected range at one memory level below measured roofs and those of the datasheet.
const MOST_POINTS = 600, TABBABLE = 30;
const PADDED = "FLOPs are those issued: a tile that a product does not fill counts whole, so a matrix times a vector may count 64 times its useful FLOPs.";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const keyOf = (kernel, range) => `${kernel}\n${range ?? ""}`;
const leafOf = new Map(), leavesOf = new Map();  // by kernel and range; by kernel, the longest first
for (const node of program.ranges.values()) {
  for (const one of node.children) {
    if (!one.kernel) continue;
    leafOf.set(keyOf(one.kernel, one.path), one);
    if (leavesOf.has(one.kernel)) leavesOf.get(one.kernel).push(one); else leavesOf.set(one.kernel, [one]);
  }
}
for (const leaves of leavesOf.values()) leaves.sort((a, b) => b.time - a.time);
const shareOf = (kernel, range) => {
  const leaf = leafOf.get(keyOf(kernel, range));
  return leaf ? program.of.at("share_frac", leaf.row) ?? 0 : 0;
};
const powers = (low, high) => Array.from({ length: Math.max(high - low + 1, 0) }, (_, place) => low + place);

// The SVG of points at a level. `points`: {kernel, range, x, y, share, bound, row}
const rooflineSvg = (points, level, { measured = true, datasheet = true, width = 1000, height = 430, marked = null, title }) => {
  const roofs = table("roof_lines"), lines = [];
  for (let row = 0; row < roofs.rows; row++) {
    for (const whose of [measured && "measured", datasheet && "datasheet"].filter(Boolean)) {
      const byte = roofs.at(`${whose}_byte_per_s`, row), flop = roofs.at(`${whose}_flop_per_s`, row), roof = roofs.at("roof", row);
      if ((byte !== null && roof === level) || flop !== null) lines.push({ whose, roof, byte, flop });
    }
  }
  const top = Math.max(...points.map((one) => one.y), ...lines.map((one) => one.flop ?? 0), 1);
  const xs = points.map((one) => one.x), ys = points.map((one) => one.y);
  const lowX = Math.floor(Math.log10(Math.min(...xs, 0.1))), highX = Math.ceil(Math.log10(Math.max(...xs, 1000)));
  const lowY = Math.floor(Math.log10(Math.min(...ys, top / 1e3))), highY = Math.ceil(Math.log10(top * 1.05));
  const left = 98, right = 22, head = 10, foot = 44;
  const x = (value) => left + (Math.log10(value) - lowX) / (highX - lowX) * (width - left - right);
  const y = (value) => height - foot - (Math.log10(value) - lowY) / (highY - lowY) * (height - foot - head);
  const ink = css("--fg"), soft = css("--soft"), line = css("--line"), text = { "font-size": 11, "font-family": "system-ui, sans-serif", fill: soft };
  const svg = draw("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title });
  svg.append(draw("rect", { width, height, fill: css("--bg") }));
  for (const power of powers(lowX, highX)) {
    svg.append(draw("line", { x1: x(10 ** power), x2: x(10 ** power), y1: head, y2: height - foot, stroke: line }));
    if ((power - lowX) % Math.ceil(44 * (highX - lowX) / (width - left - right)) === 0) svg.append(draw("text", { ...text, x: x(10 ** power), y: height - foot + 15, "text-anchor": "middle" }, String(Number((10 ** power).toPrecision(1)))));
  }
  for (const power of powers(lowY, highY)) {
    svg.append(draw("line", { x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), stroke: line }));
    svg.append(draw("text", { ...text, x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, power >= 15 ? `${grouped(10 ** (power - 12))} TFLOP/s` : show(10 ** power, "flop/s")));
  }
  svg.append(draw("text", { ...text, x: (left + width) / 2, y: height - 8, "text-anchor": "middle" }, `arithmetic intensity at ${level.toUpperCase()}, FLOP/byte`));
  const roofGroup = draw("g"), told = { ...text, fill: ink, stroke: css("--bg"), "stroke-width": 4, "paint-order": "stroke" };  // readable where lines cross it
  const narrow = width < 600, taken = [], peak = Math.max(...lines.map((one) => one.flop ?? 0), 0) || 10 ** highY;
  for (const one of lines) {
    const dash = one.whose === "datasheet" ? "5 4" : null;
    const y1 = one.flop ?? Math.max(one.byte * 10 ** lowX, 10 ** lowY), y2 = one.flop ?? Math.min(one.byte * 10 ** highX, peak);
    const x1 = one.flop === null ? y1 / one.byte : 10 ** lowX, x2 = one.flop === null ? y2 / one.byte : 10 ** highX;
    roofGroup.append(draw("line", { x1: x(x1), x2: x(x2), y1: y(y1), y2: y(y2), stroke: ink, "stroke-width": 1.4, "stroke-dasharray": dash }));
  }
  for (const [place, roof] of [...new Set(lines.map((one) => one.roof))].entries()) {  // one label a roof, each in a column of its own
    const both = lines.filter((one) => one.roof === roof), flops = both.map((one) => one.flop ?? 0), highest = Math.max(...flops);
    const crossed = lines.some((one) => one.roof !== roof && one.flop > highest && y(highest) - y(one.flop) < 16);  // then below its own lines
    const said = `${roof} ${both.slice(0, narrow ? 1 : 2).map((one) => `${show(one.flop ?? one.byte, one.flop === null ? "byte/s" : "flop/s")}${one.whose === "datasheet" ? " datasheet" : ""}`).join(", ")}`;
    const moment = 10 ** (lowX + (highX - lowX) * (narrow ? 0.25 : Math.min(240 / (width - left), 0.8)));
    let at = crossed ? y(Math.min(...flops)) + 13 : y(highest) - 5;
    while (narrow && taken.some((other) => Math.abs(other - at) < 12)) at += 12;
    if (highest) taken.push(at);
    roofGroup.append(highest
      ? draw("text", { ...told, x: width - right - 4 - (narrow ? 0 : (width - left) * 0.25 * Math.max(place - 1, 0)), y: at, "text-anchor": "end" }, said)
      : draw("text", { ...told, x: x(moment) + (narrow ? 8 : -6), y: y(Math.max(...both.map((one) => one.byte)) * moment) + (narrow ? 12 : -4), "text-anchor": narrow ? "start" : "end" }, said));
  }
  svg.append(roofGroup);
  points.slice(0, MOST_POINTS).forEach((one, place) => {
    const radius = marked ? 6 : 3 + 14 * Math.sqrt(one.share);
    const dot = draw("circle", {
      cx: x(one.x).toFixed(1), cy: y(one.y).toFixed(1), r: radius.toFixed(1), fill: css(`--${bindings[one.bound] ? one.bound : "unknown"}`),
      "fill-opacity": 0.75, stroke: ink, "stroke-width": 0.8, "data-at": place, tabindex: place < TABBABLE ? "0" : null, role: "link",
      "aria-label": `${one.kernel} in ${one.range ?? "the capture"}: ${show(one.y, "flop/s")}, reaches ${show(one.frac, "frac")} of its limit`,
    });
    svg.append(dot);
  });
  return svg;
};

const pointOf = (row) => {
  const of = table("roofline"), kernel = of.at("kernel", row), range = of.at("range", row);
  return { kernel, range, level: of.at("level", row), x: of.at("intensity_flop_per_byte", row), y: of.at("achieved_flop_per_s", row), share: shareOf(kernel, range), row, frac: of.at("roof_frac", row), bound: leafOf.get(keyOf(kernel, range))?.bound ?? null };
};
const pointsOf = (rows) => rows.map(pointOf).sort((a, b) => b.share - a.share || a.row - b.row);
const pointsAt = new Map();  // by level, made once
const pointsOfLevel = (level) => {
  if (!pointsAt.has(level)) pointsAt.set(level, pointsOf(table("roofline").where("level", level)));
  return pointsAt.get(level);
};
const isDrawn = (one) => one.x > 0 && one.y > 0;
const pointFacts = (one) => [
  ["range", one.range], ["achieved", show(one.y, "flop/s")], ["intensity", show(one.x, "flop/byte")], [`reaches, of its ${one.level.toUpperCase()} limit`, show(one.frac, "frac")],
  ["limit", bindings[one.bound] ?? MISSING], ["share of time", show(one.share, "frac")],
];
const answerPoints = (svg, points) => {
  const one = (event) => points[event.target.dataset?.at];
  svg.addEventListener("pointermove", (event) => { if (one(event)) tip.show(event.clientX, event.clientY, one(event).kernel, pointFacts(one(event))); else tip.hide(); });
  svg.addEventListener("pointerleave", () => tip.hide());
  svg.addEventListener("click", (event) => { if (one(event)) { tip.hide(); openKernel(one(event).kernel); } });
  svg.addEventListener("keydown", (event) => { if (event.key === "Enter" && one(event)) openKernel(one(event).kernel); });
};

const roofline = {
  start() {
    this.box = $("[data-live=roofline]");
    if (!this.box || !table("roofline").rows) return;
    const levels = ["dram", "l2", "l1"].filter((level) => table("roofline").where("level", level).length);
    const choose = (label, options) => {
      const field = make("select", { "aria-label": label, onchange: () => this.render() }, options.map(([value, word]) => make("option", { value }, word)));
      return [field, make("label", {}, `${label} `, field)];
    };
    const tick = (label) => {
      const field = make("input", { type: "checkbox", checked: true, onchange: () => this.render() });
      return [field, make("label", {}, field, ` ${label}`)];
    };
    const [level, levelLabel] = choose("level", levels.map((one) => [one, one.toUpperCase()]));
    const [least, leastLabel] = choose("kernels", [["0", "all"], ["0.001", "of 0.1 % of the time or more"], ["0.01", "of 1 % or more"], ["0.05", "of 5 % or more"]]);
    const [measured, measuredLabel] = tick("measured roofs");
    const [datasheet, datasheetLabel] = tick("datasheet roofs");
    Object.assign(this, { level, least, measured, datasheet, said: make("p", { class: "question" }), plot: make("div", { class: "plot" }) });
    this.box.replaceChildren(
      make("div", { class: "tools" }, levelLabel, leastLabel, measuredLabel, datasheetLabel, button("SVG", () => this.export("svg"), { "aria-label": "SVG: save the roofline" }), button("PNG", () => this.export("png"), { "aria-label": "PNG: save the roofline" })),
      this.plot, this.said,
    );
    whenSeen(this.box, () => this.render());
    selection.listeners.push(() => renderIfSeen(this.box));
  },
  render() {
    const level = this.level.value, least = Number(this.least.value), known = new Map();
    const inside = (range) => { if (!known.has(range)) known.set(range, isInside(range, selection.path)); return known.get(range); };
    const all = pointsOfLevel(level).filter((one) => one.share >= least && inside(one.range));
    const points = all.filter(isDrawn), left = all.length - points.length;
    const title = `Roofline at ${level.toUpperCase()}${selection.path ? `, ${selection.path}` : ""}: ${points.length} kernels`;
    const svg = rooflineSvg(points, level, { measured: this.measured.checked, datasheet: this.datasheet.checked, width: Math.max(this.plot.clientWidth, 320), title });
    answerPoints(svg, points);
    this.plot.replaceChildren(svg);
    this.said.textContent = `${grouped(points.length)} ${points.length === 1 ? "point" : "points"}, area by share of time, colour by what binds the kernel, solid roofs measured, dashed ones of the datasheet. `
      + (points.length > MOST_POINTS ? `The ${MOST_POINTS} with most time are drawn. ` : "") + (left ? `${grouped(left)} without floating-point operations ${left === 1 ? "is" : "are"} not drawn. ` : "") + (points.length ? PADDED : "");
  },
  export(kind) {
    const svg = $("svg", this.plot), name = `roofline-${this.level.value}`, source = new XMLSerializer().serializeToString(svg);
    if (kind === "svg") return save(`${name}.svg`, new Blob([source], { type: "image/svg+xml" }));
    const image = new Image(), canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [svg.clientWidth * 2, svg.clientHeight * 2];
    image.onload = () => {
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  },
};
