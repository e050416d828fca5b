// Search over kernels, ranges, findings, tables and what is missing: all words must occur.
const MOST_FOUND = 40;

const search = {
  start() {
    this.field = $("#search");
    this.list = $("#found");
    this.list.replaceChildren();
    this.list.hidden = true;
    this.field.value = "";
    this.field.addEventListener("input", () => this.find());
    this.field.addEventListener("focus", () => { if (this.field.value) this.find(); });
    this.field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.field.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); this.choose(this.chosen + step); }
      if (event.key === "Enter" && this.found.length) this.go(this.found[Math.max(this.chosen, 0)]);
    });
    this.list.addEventListener("pointerdown", (event) => {
      const item = event.target.closest("li[data-at]");
      if (item) { event.preventDefault(); this.go(this.found[item.dataset.at]); }
    });
  },
  items() {
    if (this.all) return this.all;
    const to = (hash) => () => { location.hash = hash; };
    const jump = (id) => () => {
      const element = document.getElementById(id);
      kernelPage.hide();
      history.pushState(null, "", `#${id}`);
      reveal(element);
      element.scrollIntoView();
      ($("summary", element) ?? element).focus({ preventScroll: true });
    };
    this.all = [
      ...$$(".card h3").map((head, place) => ({ kind: "finding", text: head.textContent, also: $(".kind", head.closest(".card")).textContent, more: "", act: jump(`finding-${place + 1}`) })),
      ...[...kernelOrder().values()].map((one) => ({ kind: "kernel", text: one.name, also: bindings[boundOf(one.name)] ?? "", brief: toldApart(one.name), more: one.time ? show(one.time, "ns") : "", act: () => openKernel(one.name) })),
      ...[...program.ranges.values()].filter((node) => node.path).map((node) => ({ kind: node.kind, text: node.path, more: show(node.time, "ns"), act: to(`range=${encodeURIComponent(node.path)}`) })),
      ...[...tables.keys()].filter((name) => document.getElementById(name)).map((name) => ({ kind: "table", text: name.replace(/_/g, " "), more: "", act: jump(name) })),
      ...$$("#missing tbody tr").map((row) => ({ kind: "missing", text: row.cells[0].textContent, more: "", act: jump("missing") })),
    ].map((item) => ({ ...item, lower: `${item.kind} ${item.text} ${item.also ?? ""} ${(item.also ?? "").replace("-", " ")}`.toLowerCase() }));
    return this.all;
  },
  find() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.close();
    const matching = this.items().filter((item) => words.every((word) => item.lower.includes(word)));
    this.found = matching.slice(0, MOST_FOUND);
    this.chosen = -1;
    this.list.replaceChildren(...this.found.map((item, at) => make("li", { role: "option", id: `found-${at}`, "data-at": at, "aria-selected": "false" },
      make("span", { class: "badge" }, item.kind), make("span", { class: "text", title: item.text.slice(0, 2000) }, (item.brief ?? item.text).slice(0, 300)), make("small", {}, item.more))),
    ...(this.found.length ? [] : [make("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "nothing found")]),
    ...(matching.length > this.found.length ? [make("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, `and ${grouped(matching.length - this.found.length)} more`)] : []));
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    return undefined;
  },
  choose(at) {
    if (!this.found?.length) return;
    this.chosen = (at + this.found.length) % this.found.length;
    $$("li[data-at]", this.list).forEach((item, place) => item.setAttribute("aria-selected", String(place === this.chosen)));
    this.field.setAttribute("aria-activedescendant", `found-${this.chosen}`);
    $(`#found-${this.chosen}`).scrollIntoView({ block: "nearest" });
  },
  go(item) {
    this.close();
    this.field.value = "";
    this.field.blur();
    item.act();
  },
  close() {
    this.list.hidden = true;
    this.found = [];
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
    return undefined;
  },
};
