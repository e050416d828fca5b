// What warps wait for: one bar a kernel, its parts by reason, the largest first.
const STALL_BARS = 12;

// The colour and hatch of a reason are the same in every report; an unknown reason is grey.
const stallStyle = (reason) => {
  const [colour, hatched] = page.stalls[reason] ?? ["var(--unknown)", false];
  return { "background-color": colour, "background-image": hatched ? "repeating-linear-gradient(45deg, transparent 0 3px, #fff8 3px 5px)" : "none" };
};

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
  parts.map(([reason, share]) => make("span", { class: page.stalls[reason]?.[2] ? "dark" : null, style: { width: `${share * 100}%`, ...stallStyle(reason) }, title: `${reason} ${show(share, "frac")}` }, share > 0.12 ? make("b", {}, reason) : "")),
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
    const reasons = [...new Set(first.flatMap((one) => one.parts.slice(0, 4).map(([reason]) => reason)))].filter((reason) => page.stalls[reason]);
    this.box.replaceChildren(
      make("p", { class: "legend" }, reasons.map((reason) => make("span", {}, make("i", { class: "swatch", style: stallStyle(reason) }), ` ${reason}`)), make("span", {}, make("i", { class: "swatch unknown" }), " others")),
      ...first.map((one) => make("div", { class: "stall-row" }, make("div", { class: "stall-name" }, button(briefName(one.kernel), () => openKernel(one.kernel), { class: "name", title: one.kernel }), one.range ? make("small", {}, one.range) : ""), stallBar(one))),
      make("p", { class: "question" }, inside.length ? `The ${first.length} longest of ${grouped(inside.length)} kernels${selection.path ? ` in ${selection.path}` : ""}.` : `No stall reasons are known ${selection.path ? `in ${selection.path}` : "here"}.`),
    );
  },
};
