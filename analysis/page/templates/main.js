// Start: parts below the first screen are drawn when they come near it.
const route = () => {
  const [, kind, value] = /^#(kernel|range|time)=(.*)$/s.exec(location.hash) ?? [];
  let name = null;
  try { name = value === undefined ? null : decodeURIComponent(value); } catch { /* a link cut short */ }
  tip.hide();
  if (kind === "kernel" && name !== null) kernelPage.show(name);
  else {
    kernelPage.hide();
    if (kind === "range" && name !== null) { select(name, { push: false }); bring("where"); }
    else if (kind === "time" && name !== null) { bring("timeline"); timeline.go?.(name); }
    else if (document.getElementById(location.hash.slice(1))?.closest("details")) bring(location.hash.slice(1));
    else if (["", "#", "#top"].includes(location.hash)) { if (selection.path) select("", { push: false }); }
    else arrive(document.getElementById(location.hash.slice(1)));
  }
};

// Shows a section or a closed table, as a link to it would.
const bring = (id) => {
  const section = document.getElementById(id);
  reveal(section);
  section?.scrollIntoView();
  section?.focus({ preventScroll: true });
  hold(section);
};

// The focus goes where a link leads, so that Tab goes on from there.
const arrive = (target) => {
  if (!target) return;
  if (target.tabIndex < 0) target.tabIndex = -1;
  if (!target.contains(document.activeElement)) target.focus({ preventScroll: true });
  hold(target);
};

// Parts above a place that a link named are drawn as they come near the screen: the place stays until the reader acts.
const HOLD = 1500;
const hold = (target) => {
  if (!target || target === document.body) return;
  const over = new AbortController(), grown = new ResizeObserver(() => target.scrollIntoView());
  const end = () => { grown.disconnect(); over.abort(); };
  for (const name of ["wheel", "touchstart", "pointerdown", "keydown", "focusin", "hashchange"]) addEventListener(name, end, { signal: over.signal, passive: true, capture: true });
  grown.observe($("main"));
  setTimeout(end, HOLD);
};

const setTheme = (name) => {
  if (name) document.documentElement.dataset.theme = name;
  try { if (name) localStorage.setItem("kernel-ledger-theme", name); } catch { /* a file may have no storage */ }
  for (const box of $$("[data-live]")) renderIfSeen(box);
};
const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

const keys = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  const typing = event.target.matches?.("input, select, textarea");
  if (event.key === "Escape") {
    if (typing && event.target.value) { event.target.value = ""; event.target.dispatchEvent(new Event("input")); }
    else if (typing) event.target.blur();
    else if (kernelPage.name !== null) kernelPage.leave();
    else if (selection.path) select(program.ranges.get(selection.path)?.up?.path ?? "");
    tip.hide();
    return;
  }
  if (typing) return;
  if (event.key === "/") { event.preventDefault(); $("#search").focus(); }
  else if (event.key === "?") $("#keys").showModal();
  else if (kernelPage.name !== null && ["n", "p"].includes(event.key)) kernelPage.step(event.key === "n" ? 1 : -1);
};

document.documentElement.classList.add("on");
try { const theme = localStorage.getItem("kernel-ledger-theme"); if (theme) document.documentElement.dataset.theme = theme; } catch { /* none */ }
startTables();
for (const one of [icicle, roofline, stalls, timeline, listings, search]) one.start();
for (const control of $$("[data-copy=finding]")) control.addEventListener("click", () => copy(page.issues[control.value], "Finding"));
$("#theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
$("#help").addEventListener("click", () => $("#keys").showModal());
document.addEventListener("keydown", keys);
// What opens can move what stands above it, such as a card that takes a row of its own: its summary stays in its place.
document.addEventListener("click", (event) => {
  const summary = event.target.closest?.("summary"), before = summary?.getBoundingClientRect().top;
  if (summary) requestAnimationFrame(() => scrollBy({ top: summary.getBoundingClientRect().top - before, behavior: "instant" }));
}, true);
addEventListener("scroll", () => tip.hide(), { passive: true });
addEventListener("beforeprint", () => { for (const box of $$("[data-live]")) seenBoxes.get(box)?.render(); });
// The event of a link may come after a selection that followed it: then nothing is left to do, and the focus stays.
const follow = () => {
  if (location.hash === selection.hash) return;
  selection.hash = null;
  route();
};
addEventListener("popstate", follow);
addEventListener("hashchange", follow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(null));
route();

// What a click would have to wait for is made ready while nobody does anything.
const idly = globalThis.requestIdleCallback ?? ((act) => setTimeout(act, 50));
const waiting = [lowered, kernelOrder, () => search.items(), stallRows, ...["dram", "l2", "l1"].map((level) => () => pointsOfLevel(level)), ...[...tables.values()].filter((of) => of.has("kernel")).map((of) => () => of.where("kernel", ""))];
const warm = () => { waiting.shift()?.(); if (waiting.length) idly(warm); };
idly(warm);
