// What warps wait for: one bar a kernel, its parts by reason, the largest first.
const STALL_BARS = 12, STALL_COLOURS = ["--memory", "--launch", "--compute", "--latency", "--sky", "--yellow", "--vermilion"];

const stallColour = (() => {
  let known = null;
  return (reason) => {
    if (!known) {
      const of = table("stalls"), sums = new Map();
      for (let row = 0; row < of.rows; row++) sums.set(of.at("reason", row), (sums.get(of.at("reason", row)) ?? 0) + of.at("share_frac", row));
      known = new Map([...sums].sort((a, b) => b[1] - a[1]).map(([name], place) => [name, STALL_COLOURS[place]]));
    }
    return known.get(reason) ? `var(${known.get(reason)})` : "var(--unknown)";
  };
})();

let rowsOfStalls = null;
const stallRows = () => {
  if (rowsOfStalls) return rowsOfStalls;
  const of = table("stalls"), found = new Map();
  for (let row = 0; row < of.rows; row++) {
    const key = keyOf(of.at("kernel", row), of.at("range", row));
    if (!found.has(key)) found.set(key, { kernel: of.at("kernel", row), range: of.at("range", row), parts: [] });
    found.get(key).parts.push([of.at("reason", row), of.at("share_frac", row)]);
  }
  return rowsOfStalls = [...found.values()];
};
const stallBar = ({ kernel, range, parts }) => make(
  "div", { class: "stall-bar", role: "img", "aria-label": `${kernel}${range ? ` in ${range}` : ""} waits: ${parts.slice(0, 5).map(([reason, share]) => `${reason} ${show(share, "frac")}`).join(", ")}` },
  parts.map(([reason, share]) => make("span", { style: { width: `${share * 100}%`, background: stallColour(reason) }, title: `${reason} ${show(share, "frac")}` }, share > 0.12 ? reason : "")),
);

const stalls = {
  start() {
    this.box = $("[data-live=stalls]");
    if (!this.box || !table("stalls").rows) return;
    whenSeen(this.box, () => this.render());
    selection.listeners.push(() => renderIfSeen(this.box));
  },
  render() {
    const inside = stallRows().filter((one) => isInside(one.range, selection.path)), first = inside.slice(0, STALL_BARS);
    const reasons = [...new Set(first.flatMap((one) => one.parts.slice(0, 4).map(([reason]) => reason)))].filter((reason) => stallColour(reason) !== "var(--unknown)");
    this.box.replaceChildren(
      make("p", { class: "legend" }, reasons.map((reason) => make("span", {}, make("i", { class: "swatch", style: { background: stallColour(reason) } }), ` ${reason}`)), make("span", {}, make("i", { class: "swatch unknown" }), " others")),
      ...first.map((one) => make("div", { class: "stall-row" }, make("div", { class: "stall-name" }, button(briefName(one.kernel), () => openKernel(one.kernel), { class: "name", title: one.kernel }), one.range ? make("small", {}, one.range) : ""), stallBar(one))),
      make("p", { class: "question" }, inside.length ? `The ${first.length} longest of ${grouped(inside.length)} kernels${selection.path ? ` in ${selection.path}` : ""}.` : `No stall reasons are known ${selection.path ? `in ${selection.path}` : "here"}.`),
    );
  },
};
