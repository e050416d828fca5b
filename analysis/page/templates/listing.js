// The source of a kernel: its lines on the left, the instructions of the compiler on the right, both with heat.
const HEATS = [["share_frac", "samples"], ["inst_executed", "executed"], ["l2_bytes", "bytes (L2)"]];
let heat = HEATS[0][0];  // the same in every listing

const listed = (kernel) => {
  const of = table("listing"), found = new Map();
  for (const row of of.where("kernel", kernel)) {
    const language = of.at("language", row);
    if (!found.has(language)) found.set(language, []);
    found.get(language).push(row);
  }
  return found;
};
const placeOf = (row) => `${table("listing").at("file", row)}:${table("listing").at("line", row)}`;

const pane = (language, rows) => {
  const of = table("listing"), known = HEATS.map(([name]) => rows.map((row) => of.at(name, row) ?? 0)), most = known.map((values) => Math.max(...values, 0));
  const column = of.named.get(heat), at = HEATS.findIndex(([name]) => name === heat);
  let file = null;
  const lines = rows.flatMap((row, place) => {
    const value = of.at(heat, row), number = of.at("instruction", row) ?? of.at("line", row), stall = of.at("stall", row);
    const told = [[HEATS[0][1], show(of.at("share_frac", row), "frac")], ["most wait for", stall], ["executed", show(of.at("inst_executed", row))], ["L2 bytes", of.at("l2_bytes", row) === null ? null : show(of.at("l2_bytes", row), "byte")], ["sectors over ideal", of.at("sectors_over_ideal", row) === null ? null : show(of.at("sectors_over_ideal", row), "ratio")]];
    const spokenRow = told.filter(([, one]) => one !== null && one !== MISSING).map(([word, one]) => `${word} ${one}`).join(", ");
    const head = of.at("instruction", row) === null && of.at("file", row) !== file ? [make("div", { class: "source-file" }, file = of.at("file", row))] : [];
    return [...head, make("div", { class: "source-row", "data-place": placeOf(row), title: spokenRow, style: { "--h": most[at] ? known[at][place] / most[at] : 0 } },
      make("span", { class: "n" }, number === null ? "" : String(number)), make("span", { class: "n heat" }, value ? shown(column, value) : ""), make("code", {}, of.at("text", row) ?? ""), make("small", {}, value && at === 0 ? stall ?? "" : ""))];
  });
  return make("div", { class: "pane", role: "region", tabindex: "0", "aria-label": `${language}, ${lines.length} rows` }, make("b", { class: "language" }, language), ...lines);
};

const inView = (row, one) => row.offsetTop >= one.scrollTop && row.offsetTop + row.offsetHeight <= one.scrollTop + one.clientHeight;

// Panes whose rows of one line light up together, where it is pointed at or pressed.
const listing = (kernel) => {
  const box = make("div", { class: "listing" });
  const render = () => {
    const found = listed(kernel), choose = make("select", { "aria-label": "Heat", onchange: (event) => { heat = event.target.value; render(); $("select", box).focus(); } }, HEATS.map(([value, word]) => make("option", { value, selected: value === heat }, word)));
    box.replaceChildren(make("div", { class: "tools" }, make("label", {}, "heat ", choose), make("span", {}, "click a line, or choose one with ↑ ↓, to see its instructions; an instruction to see its line")), make("div", { class: "panes" }, [...found].map(([language, rows]) => pane(language, rows))));
    const hottest = $$(".pane", box).map((one) => $$(".source-row", one).sort((a, b) => b.style.getPropertyValue("--h") - a.style.getPropertyValue("--h"))[0]);
    requestAnimationFrame(() => hottest.forEach((row) => { if (row) row.parentElement.scrollTop = row.offsetTop - 80; }));
  };
  const light = (row) => {
    for (const one of $$(".source-row", box)) one.classList.toggle("lit", one.dataset.place === row.dataset.place);
    for (const one of $$(".pane", box)) {
      const first = one === row.parentElement ? row : $(".lit", one);
      if (first && (one !== row.parentElement || !inView(first, one))) one.scrollTop = first.offsetTop - 80;
    }
    box.at = row;
  };
  box.addEventListener("click", (event) => {
    const row = event.target.closest(".source-row");
    if (row) light(row);
  });
  box.addEventListener("keydown", (event) => {
    const rows = $$(".source-row", event.target), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !event.target.matches(".pane") || !rows.length) return;
    event.preventDefault();
    const at = rows.indexOf(box.at), from = at < 0 ? rows.findIndex((row) => inView(row, event.target)) - by : at;
    light(rows[Math.min(Math.max(from + by, 0), rows.length - 1)]);
    say(`${$("code", box.at).textContent}, ${box.at.title}`);
  });
  render();
  return box;
};

const listings = {
  start() {
    this.box = $("[data-live=listing]");
    if (!this.box || !table("listing").rows) return;
    whenSeen(this.box, () => this.render());
    selection.listeners.push(() => renderIfSeen(this.box));
  },
  render() {
    const of = table("listing"), names = [...new Set(Array.from({ length: of.rows }, (_, row) => of.at("kernel", row)))];
    const inside = names.filter((name) => (leavesOf.get(name) ?? [{ path: "" }]).some((leaf) => isInside(leaf.path, selection.path)));
    const shownNames = inside.length ? inside : names, first = shownNames.includes(this.name) ? this.name : shownNames[0];
    const choose = make("select", { "aria-label": "Kernel", onchange: (event) => { this.name = event.target.value; this.render(); $("select", this.box).focus(); } }, shownNames.map((name) => make("option", { value: name, selected: name === first }, toldApart(name))));
    this.box.replaceChildren(make("div", { class: "tools" }, make("label", {}, "kernel ", choose), button("open its page", () => openKernel(first))), listing(first));
  },
};
