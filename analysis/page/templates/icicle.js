// The program as an icicle: width is GPU time, a step's idle time beside it; colour is what binds a part.
const ROW = 34, DEEPEST = 9;
const NARROW = 4;  // pixels: nobody reads or reaches a narrower part, so its colour stands in one element with those beside it
// The colour of a part; report.css draws an idle one that is wide enough.
const toneOf = (node) => {
  const side = { slower: "--host", faster: "--sky" }[node.bound];
  if (side) return `color-mix(in srgb, var(${side}) ${25 + (program.of.at("tone_frac", node.row) ?? 0) * 75}%, #fff)`;
  return `var(--${{ idle: "line", same: "card" }[node.bound] ?? node.bound ?? "unknown"})`;
};

const program = (() => {
  const of = table("program"), root = { path: "", name: page.whole ?? "whole capture", kind: "program", row: -1, time: 0, idle: 0, children: [], depth: 0, up: null };
  const ranges = new Map([["", root]]);
  for (let row = 0; row < of.rows; row++) {
    const kind = of.at("kind", row), path = of.at("range", row) ?? "", kernel = of.at("kernel", row);
    const isLeaf = kernel !== null, node = kind === "program" ? root : { children: [] };
    const up = kind === "program" ? null : ranges.get(isLeaf ? path : path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "") ?? root;
    Object.assign(node, {
      row, kind, path, up, kernel, name: kind === "program" ? root.name : kernel ?? lastPart(path), time: of.at("time_ns", row) ?? 0,
      idle: of.at("idle_ns", row) ?? 0, depth: up ? up.depth + 1 : 0, bound: of.at("bound", row),
    });
    if (!isLeaf) ranges.set(path, node);
    up?.children.push(node);
  }
  for (const node of ranges.values()) {
    if (node.row >= 0 && node.idle && of.at("idle_from", node.row) !== null) {
      node.children.push({ kind: "idle", name: "idle", path: node.path, up: node, time: 0, idle: node.idle, row: node.row, depth: node.depth + 1, bound: "idle", children: [] });
    }
  }
  return { root, ranges, of, total: root.time + root.idle };
})();

// How long a range is open on the host without a profiler, median of its calls; null where that was not timed.
const bareOf = (range) => {
  const rows = table("bare_times").where("range", range);
  return rows.length ? table("bare_times").at("bare_p50_ns", rows[0]) : null;
};
const IDLE_FROM = { bare: "without a profiler", attached: "with the profiler attached" };
const factsOf = (node) => {
  const of = program.of, at = (name) => of.at(name, node.row);
  if (node.kind === "idle") return [["idle", show(node.idle, "ns")], ["measured", IDLE_FROM[at("idle_from")] ?? at("idle_from")]];
  if (of.has("a_ns")) return [["A", show(at("a_ns"), "ns")], ["B", show(at("b_ns"), "ns")], ["difference", show(at("difference_ns"), "ns")], ["cause", at("cause")]];
  return [
    ["GPU time", show(node.time, "ns")], ["share", show(at("share_frac"), "frac")], ["launches", show(at("launches"))],
    ["DRAM bytes", show(at("dram_bytes"), "byte")], ["must move", at("minimum_bytes") === null ? null : show(at("minimum_bytes"), "byte")],
    ["reaches, of its limit", show(at("roof_frac"), "frac")], ["limit", bindings[at("bound")] ?? at("bound")], ["idle inside", node.idle ? show(node.idle, "ns") : null],
    ["host, no profiler", node.kernel || bareOf(node.path) === null ? null : `${show(bareOf(node.path), "ns")} a call`],
  ];
};
const spoken = (node) => `${node.kind === "idle" ? "idle" : node.kind === "kernel" ? briefName(node.name) : node.name}: ${factsOf(node).filter(([, value]) => value !== null && value !== MISSING).map(([word, value]) => `${word} ${value}`).join(", ")}`;
// Of two places of a kernel the one whose bound is known, else the longer one.
const isBetterKnown = (one, other) => !other || ((one.bound === "unknown") === (other.bound === "unknown") ? one.time > other.time : other.bound === "unknown");
const briefName = (name) => briefNames().get(name) ?? name;
let briefOf = null;  // a Map, as a kernel may be called "constructor"
const briefNames = () => {
  if (briefOf) return briefOf;
  const of = table("kernels"), column = of.named.get("kernel");
  briefOf = new Map();
  for (let row = 0; row < of.rows; row++) briefOf.set(column.at(row), column.brief(row) ?? column.at(row));
  return briefOf;
};

const icicle = {
  start() {
    this.box = $("#icicle");
    if (!this.box || !program.of.rows) return;
    this.crumbs = make("nav", { class: "crumbs", "aria-label": "Selected range" });
    this.legend = make("p", { class: "legend" });
    this.parts = make("div", { class: "parts", role: "group", "aria-label": "The program by GPU time: arrows move, Enter zooms" });
    this.box.replaceChildren(this.crumbs, this.parts, this.legend);
    this.parts.addEventListener("click", (event) => this.act(this.nodeOf(event)));
    this.parts.addEventListener("pointermove", (event) => {
      const node = this.nodeOf(event);
      if (node) tip.show(event.clientX, event.clientY, node.kind === "idle" ? "idle" : node.kernel ?? (node.path || node.name), factsOf(node)); else tip.hide();
    });
    this.parts.addEventListener("pointerleave", () => tip.hide());
    this.parts.addEventListener("focusin", (event) => {
      const node = this.nodeOf(event), { left, bottom } = event.target.getBoundingClientRect();
      if (node && event.target.matches(":focus-visible")) tip.show(left, bottom - 20, node.kernel ?? (node.path || node.name), factsOf(node));
    });
    this.parts.addEventListener("focusout", () => tip.hide());
    this.parts.addEventListener("keydown", (event) => this.move(event));
    selection.listeners.push((path) => this.render(path));
    let width = this.parts.clientWidth;
    new ResizeObserver(() => {
      const now = this.parts.clientWidth;  // 0 behind the page of a kernel
      if (now && now !== width) { width = now; this.render(selection.path); }
    }).observe(this.parts);
    this.render(selection.path);
  },
  nodeOf(event) {
    const part = event.target.closest?.(".part");
    if (part?.matches("i")) {
      const { left, width } = this.parts.getBoundingClientRect(), at = (event.clientX - left) / width;
      const run = this.runs[part.dataset.run];
      return (run.findLast((one) => one.left <= at) ?? run[0]).node;  // a click counts whole pixels
    }
    return part ? this.shown[part.dataset.at] : null;
  },
  act(node) {
    if (!node || node.kind === "idle") return;
    tip.hide();
    if (node.kind === "kernel") openKernel(node.kernel);
    else if (node.kind !== "copy") {
      select(node.path === selection.path && node.up ? node.up.path : node.path);
    }
  },
  render(path) {
    const focus = program.ranges.get(path) ?? program.root, size = focus.time + focus.idle || 1, width = this.parts.clientWidth || 1000;
    const focused = this.shown?.[document.activeElement?.dataset?.at];
    const wasFocused = focused?.element === document.activeElement && focused;
    this.shown = [];
    this.runs = [];  // of narrow parts, side by side in one row
    const part = document.createDocumentFragment(), last = [];
    let deepest = 0;
    const put = (node, left, level) => {
      const share = (node.kind === "idle" ? node.idle : node.time + node.idle) / size;
      if (share * width < 0.8 || level >= DEEPEST) return;
      deepest = Math.max(deepest, level);
      if (share * width < NARROW) {
        if (!last[level] || left - last[level].at(-1).right > 0.8 / width) this.runs.push(last[level] = Object.assign([], { level }));
        last[level].push({ node, left, right: left + share });
      } else {
        node.element = make("button", {
          type: "button", tabindex: this.shown.length ? "-1" : "0", "aria-label": spoken(node),
          class: `part ${node.bound} is-${node.kind}`, "data-at": this.shown.length,
          style: { background: node.kind === "idle" ? null : toneOf(node), left: `${left * 100}%`, width: `${share * 100}%`, top: `${level * ROW}px` },
        }, share * width > 26 ? make("span", {}, node.kind === "kernel" ? briefName(node.name) : node.name) : "");
        this.shown.push(node);
        part.append(node.element);
      }
      let at = left;
      for (const child of node.children) {
        put(child, at, level + 1);
        at += (child.kind === "idle" ? child.idle : child.time + child.idle) / size;
      }
    };
    for (const node of program.ranges.values()) node.element = null;
    put(focus, 0, 0);
    part.append(...this.runs.map((run, at) => {
      const { left } = run[0], size = run.at(-1).right - left, place = (of) => `${(of - left) / size * 100}%`;
      const stops = run.map((one) => `${toneOf(one.node)} ${place(one.left)} ${place(one.right)}`);
      return make("i", { class: "part", "data-run": at, style: { left: `${left * 100}%`, width: `${size * 100}%`, top: `${run.level * ROW}px`, background: `linear-gradient(to right, ${stops})` } });
    }));
    this.parts.replaceChildren(part);
    if (wasFocused) this.focus(wasFocused.element ? wasFocused : focus);  // every part is drawn anew
    this.parts.style.height = `${(deepest + 1) * ROW}px`;
    this.trail(focus);
    this.explain(focus);
  },
  trail(focus) {
    const trail = [];
    for (let node = focus; node; node = node.up) trail.unshift(node);
    this.crumbs.replaceChildren(...trail.flatMap((node, place) => [
      place ? " / " : "",
      node === focus ? make("b", {}, node.name) : button(node.name, () => select(node.path)),
    ]), focus.up ? button("whole capture ✕", () => select(""), { class: "clear", "aria-label": "whole capture ✕: clear the selection" }) : "");
  },
  explain(focus) {
    const sums = {};
    const count = (node) => {
      const apart = program.of.at("difference_ns", node.row);  // of two sides
      if (!node.children.length) sums[node.bound] = (sums[node.bound] ?? 0) + (apart !== null ? Math.abs(apart) : node.kind === "idle" ? node.idle : node.time);
      node.children.forEach(count);
    };
    count(focus);
    const whence = [...new Set(focus.idle ? [...program.ranges.values()].filter((node) => isInside(node.path, focus.path) || isInside(focus.path, node.path)).map((node) => program.of.at("idle_from", node.row)).filter(Boolean) : [])];
    this.legend.replaceChildren(...[...Object.keys(bindings), "idle"].filter((name) => sums[name]).map((name) => make("span", {},
      make("i", { class: `swatch ${name}`, "aria-hidden": "true" }), ` ${bindings[name] ?? name} ${show(sums[name], "ns")}${name === "idle" ? ` (${whence.map((one) => IDLE_FROM[one]).join("; ")})` : ""}`)));
  },
  move(event) {
    const node = this.nodeOf(event);
    if (!node) return;
    const row = this.shown.filter((one) => one.depth === node.depth), place = row.indexOf(node);
    const to = {
      ArrowLeft: row[place - 1], ArrowRight: row[place + 1], ArrowUp: node.up?.element ? node.up : null,
      ArrowDown: node.children.find((one) => one.element),
    }[event.key];
    if (event.key.startsWith("Arrow")) event.preventDefault();
    if (to?.element) this.focus(to);
  },
  focus(node) {
    this.shown.forEach((one) => one.element.setAttribute("tabindex", "-1"));
    node.element.setAttribute("tabindex", "0");
    node.element.focus({ preventScroll: true });
    node.element.scrollIntoView({ block: "nearest" });
  },
};
