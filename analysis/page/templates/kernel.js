// The page of a kernel: everything that the tables say of it. What is unknown says why in its place.
let orderOfKernels = null;
const kernelOrder = () => {
  if (!orderOfKernels) {
    const sums = new Map(), add = (name, time, launches) => {
      const known = sums.get(name) ?? { name, time: 0, launches: 0 };
      known.time += time; known.launches += launches;
      sums.set(name, known);
    };
    for (const leaf of leafOf.values()) if (leaf.kind === "kernel") add(leaf.kernel, leaf.time, program.of.at("launches", leaf.row) ?? 0);
    for (const name of ["kernels", "counters", "stalls", "source", "rules"]) {
      const of = table(name);
      for (let row = 0; row < of.rows; row++) if (of.at("kernel", row) !== null && !sums.has(of.at("kernel", row))) add(of.at("kernel", row), 0, of.at("launches", row) ?? 0);
    }
    orderOfKernels = new Map([...sums.values()].sort((a, b) => b.time - a.time).map((one, place) => [one.name, { ...one, place }]));
  }
  return orderOfKernels;
};

const boundOf = (name) => (leavesOf.get(name) ?? []).reduce((best, leaf) => isBetterKnown(leaf, best) ? leaf : best, null)?.bound;
// A short name; where several kernels share it, with the part of the whole name that differs.
const toldApart = (name) => {
  const brief = briefName(name);
  if (!sharedNames) {
    sharedNames = new Map();
    for (const one of kernelOrder().keys()) sharedNames.set(briefName(one), [...(sharedNames.get(briefName(one)) ?? []), one]);
  }
  const same = sharedNames.get(brief) ?? [];
  if (same.length < 2 || brief === name) return brief;
  let at = 0;
  while (at < name.length && same.every((one) => one[at] === name[at])) at++;
  return `${brief} …${name.slice(Math.max(at - 12, 0), at + 60)}`;
};
let sharedNames = null;

const because = (part, fallback = "no table of this report holds it") => make("span", { class: "missing" }, `${MISSING} `, ...coded(page.why[part] ?? fallback));
const NOT_COLLECTED = "ncu counted this kernel without the metrics of this field: capture it with `ncu --set full`";
// A short sign that unfolds into the reason.
const folded = (reason, label) => make("details", { class: "why" }, make("summary", { "aria-label": `${label}: unknown, why?` }, `${MISSING} why?`), ...(typeof reason === "string" ? coded(reason) : [reason]));
// Why there are no counters of a kernel: what the join says of its ranges, else what is missing.
const whyNoCounters = (ranges, kernel) => {
  const of = table("coverage");
  if (ranges.some((range) => rowsOf("counters", kernel).some((row) => (table("counters").at("range", row) ?? "") === range))) return make("span", { class: "missing" }, `${MISSING} ${NOT_COLLECTED}`);
  for (const range of ranges) {
    for (const row of of.where("range", range)) {
      if (of.at("reason", row)) return make("span", { class: "missing" }, `${MISSING} ${of.at("reason", row)} (coverage, ${range})`);
      if (of.at("requested", row) === 0) return make("span", { class: "missing" }, `${MISSING} ncu was not asked for ${range}. ${page.why.counters ?? ""}`);
    }
  }
  return because("counters");
};
const rowsOf = (name, kernel) => table(name).where("kernel", kernel);
const pick = (of, rows, columns, why = null) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": columns.map(([, label]) => label).join(", ") }, make("table", {},
  make("thead", {}, make("tr", {}, columns.map(([name, label]) => make("th", { scope: "col", class: of.named.get(name)?.right ? "n" : null }, label)))),
  make("tbody", {}, rows.map((row) => make("tr", {}, columns.map(([name]) => {
    const column = of.named.get(name), value = column?.at(row) ?? null;
    const cell = make("td", { class: value === null ? null : typeof value === "number" || column.right ? "n" : value.length > 60 ? "prose" : null });
    if (value !== null && name === "range") cell.append(button(value, () => { location.hash = `range=${encodeURIComponent(value)}`; }, { class: "name" }));
    else if (value !== null) cell.textContent = shown(column, value);
    else if (why && column) cell.append(folded(why(row), column.label));
    return cell;
  }))))));
const block = (title, ...content) => make("section", { class: "block" }, make("h2", {}, title), ...content);
const quoted = (word) => `'${word.replace(/'/g, "'\\''")}'`;

const bases = new Map(Object.entries(page.bases));  // the function of each kernel, for ncu
const kernelPage = {
  name: null,
  show(name) {
    const box = $("#kernel-page");
    if (!box) return;
    if (this.name === null) [this.scrolled, this.opener] = [scrollY, document.activeElement];
    this.name = name;
    $("#program-page").hidden = true;
    box.hidden = false;
    box.replaceChildren(...(kernelOrder().has(name) ? this.content(name) : [make("h1", {}, "No such kernel"), make("p", {}, name.slice(0, 500)), button("back", () => this.leave())]));
    scrollTo(0, 0);
    box.focus({ preventScroll: true });
    document.title = `${briefName(name).slice(0, 120)} · ${$("h1").textContent}`;
  },
  hide() {
    if (this.name === null && ($("#kernel-page")?.hidden ?? true)) return;
    this.name = null;
    $("#kernel-page").hidden = true;
    $("#kernel-page").replaceChildren();
    $("#program-page").hidden = false;
    document.title = $("h1").textContent;
    (this.opener?.isConnected && this.opener !== document.body ? this.opener : $("#top")).focus({ preventScroll: true });
    if (this.scrolled !== undefined && ["", "#top"].includes(location.hash)) scrollTo(0, this.scrolled);
  },
  leave() {  // without a link's event, after which the browser would move the focus to the link's place
    history.pushState(null, "", selection.path ? `#range=${encodeURIComponent(selection.path)}` : "#top");
    this.hide();
    scrollTo(0, this.scrolled);
  },
  step(by) {
    const names = [...kernelOrder().keys()], to = names[kernelOrder().get(this.name).place + by];
    if (to !== undefined) openKernel(to);
  },
  content(name) {
    const about = kernelOrder().get(name), leaves = leavesOf.get(name) ?? [];
    const ranges = leaves.map((leaf) => leaf.path), counted = ["counters", "roofline", "stalls"].some((of) => table(of).rows);
    return [
      this.head(name, about, leaves), this.facts(name, ranges), this.diagnosis(name), this.where(name), this.times(name),
      ...counted ? [make("div", { class: "two" }, this.points(name, ranges), this.bytes(name, ranges)), this.waits(name, ranges)] : [block("Roofline, bytes and stalls", make("p", {}, because("counters")))],
      this.source(name), this.rules(name), this.commands(name, ranges),
    ];
  },
  head(name, about, leaves) {
    const names = [...kernelOrder().keys()], whole = program.root.time, bound = boundOf(name);
    const go = (word, by) => button(word, () => this.step(by), { disabled: names[about.place + by] === undefined, "aria-label": `${word} kernel by time` });
    return make("header", {},
      make("div", { class: "tools" }, button("← program", () => this.leave()), go("‹ previous", -1), go("next ›", 1), make("span", {}, `kernel ${grouped(about.place + 1)} of ${grouped(names.length)} by time`), button("copy as Markdown", () => copy(this.markdown(), "Kernel"), { "aria-label": "copy as Markdown: this kernel" })),
      make("h1", {}, briefName(name)), briefName(name) === name ? "" : make("p", { class: "full" }, name),
      make("p", { class: "measured" }, about.time ? `${show(about.time, "ns")} · ${whole ? show(about.time / whole, "frac") : MISSING} of the GPU time · ` : "", `${grouped(about.launches)} ${about.launches === 1 ? "launch" : "launches"}`, bound ? make("span", { class: `badge bound ${bound}` }, bindings[bound]) : ""));
  },
  facts(name, ranges) {
    const kernels = table("kernels"), counters = table("counters"), rows = rowsOf("kernels", name), counted = rowsOf("counters", name);
    const different = (of, from, column, unit) => {
      const found = [...new Set(from.map((row) => of.at(column, row)).filter((value) => value !== null))];
      return found.length ? found.slice(0, 4).map((value) => typeof value === "number" ? show(value, unit) : value).join(", ") + (found.length > 4 ? ` and ${found.length - 4} more` : "") : null;
    };
    const item = (word, value, missing) => make("div", {}, make("dt", {}, word), make("dd", {}, value ?? folded(missing, word)));
    const none = () => whyNoCounters(ranges, name);
    return make("dl", { class: "kernel-facts" },
      item("grid", different(kernels, rows, "grid", ""), because("times")), item("block", different(kernels, rows, "block", ""), because("times")),
      item("registers a thread", different(kernels, rows, "registers", "") ?? different(counters, counted, "registers", ""), none()),
      item("shared memory a block", different(counters, counted, "shared_bytes_per_block", "byte"), none()),
      item("occupancy, at most", different(kernels, rows, "occupancy_theoretical_frac", "frac"), none()),
      item("limited by", different(counters, counted, "occupancy_limiter", ""), none()),
      item("occupancy, achieved", different(kernels, rows, "occupancy_achieved_frac", "frac"), none()),
      item("waves", different(counters, counted, "waves", ""), none()));
  },
  diagnosis(name) {
    const of = table("diagnosis"), rows = rowsOf("diagnosis", name), cards = this.findings(name);
    const gain = (leavesOf.get(name) ?? []).map((leaf) => program.of.at("gain_ns", leaf.row)).filter((value) => value !== null);
    const won = gain.reduce((sum, value) => sum + value, 0);
    return block("Diagnosis",
      rows.length ? make("ul", {}, rows.map((row) => make("li", {}, of.at("range", row) && leavesOf.get(name)?.length > 1 ? make("code", {}, `${of.at("range", row)}: `) : "", coded(of.at("reason", row)), of.at("evidence", row) ? make("small", {}, ` ${of.at("evidence", row)}`) : ""))) : make("p", {}, because("counters", "no table says why this kernel takes its time")),
      gain.length ? make("p", {}, "At its limit it would take ", make("b", {}, show(won, "ns")), " less.") : "",
      ...cards);
  },
  findings(name) {
    return page.findings.flatMap((cited, place) => {
      if (!cited.includes(name)) return [];
      const card = $(`#finding-${place + 1}`);
      return [make("p", {}, "Finding: ", make("a", { href: `#finding-${place + 1}` }, $("h3", card).textContent), ` (${[...$(".win", card).children].map((one) => one.textContent).join(" · ")})`)];
    });
  },
  where(name) {
    const rows = rowsOf("kernels", name);
    return block("Where it runs", rows.length ? pick(table("kernels"), rows, [["range", "range"], ["grid", "grid"], ["block", "block"], ["launches", "launches"], ["nsys_time_ns", "time in the program"], ["ncu_time_ns", "time alone (ncu)"], ["share_frac", "share"], ["occupancy_achieved_frac", "occupancy"]], (row) => whyNoCounters([table("kernels").at("range", row) ?? ""], name)) : make("p", {}, because("times")));
  },
  times(name) {
    const of = table("launch_times"), rows = rowsOf("launch_times", name).slice(0, 40);
    if (!rows.length) return block("Times of its launches", make("p", {}, because("times", "there is no timeline, so only sums are known")));
    const low = Math.min(...rows.map((row) => of.at("time_min_ns", row))), high = Math.max(...rows.map((row) => of.at("time_max_ns", row)));
    const at = (value) => high > low ? (value - low) / (high - low) * 96 + 2 : 50;
    const bar = (row) => {
      const [least, p5, p50, p95, most] = ["time_min_ns", "time_p5_ns", "time_p50_ns", "time_p95_ns", "time_max_ns"].map((column) => of.at(column, row));
      const label = `${of.at("range", row) ?? "the capture"}: median ${show(p50, "ns")}, 5 to 95 % ${show(p5, "ns")} to ${show(p95, "ns")}, all ${show(least, "ns")} to ${show(most, "ns")}`;
      return make("div", { class: "spread", role: "img", "aria-label": label, title: label },
        make("i", { class: "all", style: { left: `${at(least)}%`, width: `${at(most) - at(least)}%` } }), make("i", { class: "most", style: { left: `${at(p5)}%`, width: `${at(p95) - at(p5)}%` } }), make("i", { class: "median", style: { left: `${at(p50)}%` } }));
    };
    return block("Times of its launches", make("div", { class: "spreads" }, rows.map((row) => make("div", { class: "spread-row" },
      make("small", {}, `${of.at("range", row) ?? ""} ${of.at("grid", row) ?? ""}`), bar(row), make("small", { class: "n" }, `${show(of.at("time_p50_ns", row), "ns")} × ${grouped(of.at("launches", row))}`)))),
    make("p", { class: "question" }, `from ${show(low, "ns")} to ${show(high, "ns")}: line from the shortest to the longest launch, bar 5 to 95 %, mark the median, as the timeline has them`));
  },
  points(name, ranges) {
    const of = table("roofline"), level = ["dram", "l2", "l1"].find((one) => rowsOf("roofline", name).some((row) => of.at("level", row) === one));
    const rows = rowsOf("roofline", name);
    if (!rows.length) return block("Roofline", make("p", {}, whyNoCounters(ranges, name)));
    const points = pointsOf(rows.filter((row) => of.at("level", row) === level)).filter(isDrawn);
    const plot = make("div", { class: "plot" });
    if (points.length) {
      const svg = rooflineSvg(points, level, { width: 560, height: 300, marked: true, title: `Roofline of this kernel at ${level.toUpperCase()}` });
      answerPoints(svg, points);
      plot.append(svg);
    }
    return block("Roofline", plot, pick(of, rows, [["range", "range"], ["level", "level"], ["roof_frac", "reaches, of its limit"], ["achieved_flop_per_s", "achieved"], ["achieved_byte_per_s", "bandwidth"], ["intensity_flop_per_byte", "intensity"]]), make("p", { class: "question" }, points.length ? PADDED : ""));
  },
  bytes(name, ranges) {
    const counters = table("counters"), items = ranges.map((range) => {
      const node = program.ranges.get(range), leaf = leafOf.get(keyOf(name, range));
      const own = leaf ? program.of.at("dram_bytes", leaf.row) : null, least = node ? program.of.at("minimum_bytes", node.row) : null, all = node ? program.of.at("dram_bytes", node.row) : null;
      const most = Math.max(own ?? 0, least ?? 0, all ?? 0, 1), bar = (word, value, style, missing) => make("div", { class: "byte-row" }, make("small", {}, word), value === null ? missing : [make("span", { class: `byte-bar ${style}`, style: { width: `${value / most * 50}%` } }), show(value, "byte")]);
      return make("div", { class: "byte-block" }, make("b", {}, range || "the capture"),
        bar("this kernel, DRAM", own, "own", whyNoCounters([range], name)), bar("all kernels of the range", all, "all", make("span", { class: "missing" }, `${MISSING} not every kernel of the range has counters`)),
        bar("the range must move", least, "least", because("minimum", "no operation is declared for this range")),
        all !== null && least ? make("small", {}, `measured ${show(all / least, "ratio")} of the minimum`) : "");
    });
    return block("Bytes against the minimum", ...items.slice(0, 8), items.length > 8 ? make("p", { class: "question" }, `and ${items.length - 8} more ranges`) : "", items.length || !counters.rows ? "" : make("p", {}, because("counters")), items.length ? "" : make("p", {}, because("counters")));
  },
  waits(name, ranges) {
    const bars = stallRows().filter((one) => one.kernel === name);
    return block("What its warps wait for", bars.length ? make("div", {}, bars.slice(0, 8).map((one) => make("div", { class: "stall-row" }, make("div", { class: "stall-name" }, one.range ?? ""), stallBar(one)))) : make("p", {}, page.why.stalls ? because("stalls") : whyNoCounters(ranges, name)));
  },
  source(name) {
    if (table("listing").where("kernel", name).length) return block("Source", listing(name));
    const rows = rowsOf("source", name).slice(0, 20);
    return block("Source", rows.length ? pick(table("source"), rows, [["place", "place"], ["text", "line"], ["share_frac", "samples"], ["stall", "stall"], ["stall_frac", "of them"], ["sectors_over_ideal", "sectors over ideal"]]) : make("p", {}, because("source", "no samples of this kernel are in the capture")));
  },
  rules(name) {
    const rows = rowsOf("rules", name).slice(0, 40);
    return block("What ncu's rules say", rows.length ? pick(table("rules"), rows, [["range", "range"], ["rule", "rule"], ["speedup_frac", "speed-up"], ["text", "says"]]) : make("p", {}, because("rules", "no rule of ncu speaks of this kernel")));
  },
  commands(name, ranges) {
    const base = (bases.get(name) ?? name).replace(/[^\w]+/g, ".*").slice(0, 80), range = ranges.find((one) => one && !one.startsWith("outside every range"));
    const inside = range ? ` --nvtx --nvtx-include ${quoted(`${range.replace(/\*/g, "0").replace(/\/+$/, "")}/`)}` : "";
    const list = [
      ["recapture with all sections", `ncu --set full --import-source yes -k ${quoted(`regex:${base}`)} -c 3 -o kernel APP`],
      ["the same in its range alone", inside ? `ncu --set full --import-source yes -k ${quoted(`regex:${base}`)}${inside} -c 1 -o kernel APP` : null],
      ["export for this report", "ncu --import kernel.ncu-rep --csv --page raw > captures/ncu_raw.csv"],
      ["reopen in NVIDIA's tools", "ncu-ui kernel.ncu-rep; nsys-ui timeline.nsys-rep"],
    ];
    return block("Commands", make("p", { class: "question" }, "APP stands for the program; this report holds exports, not the .ncu-rep and .nsys-rep files that they came from."),
      ...list.filter(([, command]) => command).map(([word, command]) => make("div", { class: "command" }, make("small", {}, word), make("code", {}, command), button("copy", () => copy(command, "Command"), { "aria-label": `copy: ${word}` }))));
  },
  markdown() {
    const box = $("#kernel-page"), lines = [`## ${escaped(briefName(this.name))}`, "", escaped($(".measured", box).innerText), ""];
    for (const item of $$(".kernel-facts > div", box)) lines.push(`- ${escaped($("dt", item).textContent)}: ${escaped($("dd", item).textContent)}`);
    lines.push("", ...$$(".block", box)[0].innerText.split("\n").filter(Boolean).slice(1).map((line) => `- ${escaped(line)}`), "");
    for (const grid of $$("table", box)) {
      const rows = [...grid.tBodies[0].rows].map((row) => [...row.cells].map((cell) => escaped(cell.textContent || MISSING)));
      lines.push(`### ${escaped($("h2", grid.closest(".block")).textContent)}`, "", markdownTable([...grid.tHead.rows[0].cells].map((cell) => escaped(cell.textContent)), rows), "");
    }
    return `${[...lines, escaped(page.ran)].join("\n").trim()}\n`;
  },
};
