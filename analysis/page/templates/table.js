// A table of the page: all rows of the data, filtered, sorted, drawn as far as one has scrolled.
const CHUNK = 60, COPIED = 60;  // rows drawn at a time, and copied

class Grid {
  constructor(element) {
    this.element = element;
    this.of = table(element.dataset.table);
    this.body = element.tBodies[0];
    this.heads = [...element.tHead.rows[0].cells];
    this.scroller = element.closest(".scroll");
    this.count = $(`[data-count="${CSS.escape(this.of.name)}"]`);
    this.input = $(`[data-filter="${CSS.escape(this.of.name)}"]`);
    this.sorted = null;
    this.drawn = 0;
    this.hits = new Set();
    this.rows = this.order();
    this.input.addEventListener("input", () => this.update());
    this.heads.forEach((head, column) => head.addEventListener("click", () => this.sort(column)));
    this.scroller.addEventListener("scroll", () => {
      if (this.scroller.scrollTop + this.scroller.clientHeight > this.scroller.scrollHeight - 300) this.more();
    }, { passive: true });
    this.body.addEventListener("click", (event) => {
      const name = event.target.closest("[data-kernel]");
      if (name) openKernel(name.dataset.kernel);
    });
  }
  // Whether a row holds a word: in a text anywhere, in a number where the word begins like one.
  holds(word) {
    const isIn = lowered().map((text) => text.includes(word)), texts = this.of.columns.filter((column) => column.texts !== undefined);
    const others = this.of.columns.filter((column) => column.mixed || (column.numbers && /^[\d.<−-]/.test(word)));
    return (row) => texts.some((column) => isIn[column.place(row)]) || others.some((column) => {
      const value = column.at(row);
      return value !== null && shown(column, value).toLowerCase().includes(word);
    });
  }
  order() {
    const wanted = this.input.value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => this.holds(word));
    const follows = follower(this.of, selection.path);
    const rows = [];
    for (let row = 0; row < this.of.rows; row++) {
      if ((!follows || follows(row)) && wanted.every((holds) => holds(row))) rows.push(row);
    }
    if (!this.sorted) return rows;
    const { column, sign } = this.sorted, keys = this.of.columns[column];
    const value = rows.map((row) => keys.at(row));
    const places = rows.map((_, place) => place);
    places.sort((i, j) => {
      const a = value[i], b = value[j];
      if (a === null || b === null) return (a === null) - (b === null) || i - j;  // unknown values stay last
      const less = typeof a === typeof b ? a < b : typeof a === "number", more = typeof a === typeof b ? a > b : !less;
      return less ? -sign : more ? sign : i - j;
    });
    return places.map((place) => rows[place]);
  }
  sort(column) {
    const head = this.heads[column], falling = head.classList.contains("n");
    const down = head.getAttribute("aria-sort") === (falling ? "descending" : "ascending");
    const order = falling !== down ? "descending" : "ascending";
    this.heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    this.sorted = { column, sign: order === "ascending" ? 1 : -1 };
    this.update();
  }
  update() {
    this.rows = this.order();
    this.redraw();
  }
  redraw(least = CHUNK) {
    const cell = this.body.contains(document.activeElement) ? document.activeElement.closest("td") : null;
    const [row, column] = [cell?.parentElement.sectionRowIndex, cell?.cellIndex];
    this.stale = false;
    this.body.replaceChildren();
    this.drawn = 0;
    this.more(Math.max(least, row + 1 || 0));
    if (cell) ($("summary, button", this.body.rows[row]?.cells[column] ?? this.body) ?? this.scroller).focus({ preventScroll: true });  // every row is drawn anew
    const all = this.of.rows, left = this.rows.length;
    const said = left === all ? `${grouped(all)} ${all === 1 ? "row" : "rows"}` : `${grouped(left)} of ${grouped(all)} rows`;
    const place = selection.path && followed(this.of).length ? ` in ${selection.path}` : "";
    this.count.textContent = said + place;
    if (!left) this.body.append(make("tr", {}, make("td", { class: "none", colspan: this.heads.length }, `no row${place}`)));
  }
  more(least = CHUNK) {
    const until = Math.min(this.rows.length, this.drawn + least), part = document.createDocumentFragment();
    for (; this.drawn < until; this.drawn++) part.append(this.row(this.rows[this.drawn]));
    this.body.append(part);
  }
  row(row) {
    const warned = page.untrusted && this.of.at("tier", row) === "counters";
    const line = make("tr", { class: [warned && "warned", this.hits.has(row) && "hit"].filter(Boolean).join(" ") || null });
    for (const column of this.of.columns) line.append(this.cell(column, row));
    return line;
  }
  cell(column, row) {
    const value = column.at(row), cell = document.createElement("td");
    if (value === null) return cell;
    if (typeof value === "number") {
      cell.className = ["n", column.style === "bar" && "bar", column.counted && "u"].filter(Boolean).join(" ");
      if (column.style === "bar") cell.style.setProperty("--f", `${Math.min(Math.max(value, 0), 1) * 100}%`);
      cell.textContent = shown(column, value);
    } else if (column.name === "tier") {
      cell.append(make("span", { class: `tier ${["static", "timing", "counters"].includes(value) ? value : ""}` }, value));
    } else if (column.name === "kernel" && kernelOrder().has(value)) {
      cell.append(make("button", { type: "button", class: "name", title: value, "data-kernel": value }, column.brief(row) ?? value));
    } else if (column.brief(row) !== null) {
      cell.append(make("details", {}, make("summary", { title: value }, column.brief(row)), value));
    } else {
      const prose = column.style === "prose" && value.length > 30;
      cell.className = column.right ? `n${column.counted ? " u" : ""}` : prose ? (value.length > 300 ? "prose long" : "prose") : "";
      cell.textContent = value;
    }
    return cell;
  }
  // A finding cites a row by its columns; a cited value may join several rows: "range + range".
  mark(cited, goes = false) {
    const keys = Object.entries(JSON.parse(cited)).filter(([name]) => this.of.has(name));
    const fits = (value, wanted) => value === wanted || wanted.split(" + ").includes(value);
    this.hits = new Set();
    for (let row = 0; row < this.of.rows; row++) if (keys.every(([name, wanted]) => fits(String(this.of.at(name, row) ?? ""), wanted))) this.hits.add(row);
    if (this.hits.size && !this.rows.some((row) => this.hits.has(row))) {
      this.input.value = "";
      select("", { push: false });
      this.rows = this.order();
    }
    const first = this.rows.findIndex((row) => this.hits.has(row));
    this.redraw(Math.max(CHUNK, first + 20));
    if (first >= 0) this.scroller.scrollTop = this.body.rows[first].offsetTop - 80;
    if (goes) this.scroller.scrollIntoView({ block: "center" });
  }
  markdown() {
    const columns = this.of.columns, rows = this.rows.slice(0, COPIED);
    const written = markdownTable(
      columns.map((column) => escaped(column.label)),
      rows.map((row) => columns.map((column) => this.marked(column, row))),
    );
    const more = rows.length < this.rows.length ? `The first ${COPIED} of ${grouped(this.rows.length)} rows.` : "";
    return `${[written, more, escaped(page.ran)].filter(Boolean).join("\n\n")}\n`;
  }
  // A cell as Markdown: a command stays a command, and a long name is short.
  marked(column, row) {
    const value = column.at(row);
    if (column.name === "recapture" && value !== null) return `\`${value.replace(/\|/g, "\\|")}\``;
    return escaped(column.brief(row) ?? shown(column, value));
  }
  // The file of the table, from the data of the page: base units, under the names of the columns.
  csv() {
    const quote = (value) => value === null ? "" : /[",\r\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value);
    const lines = [this.of.columns.map((column) => quote(column.name))];
    for (let row = 0; row < this.of.rows; row++) lines.push(this.of.columns.map((column) => quote(column.at(row))));
    save(`${this.of.name}.csv`, new Blob([lines.map((line) => `${line.join(",")}\n`).join("")], { type: "text/csv" }));
  }
  explain(control) {
    const list = $(`[data-columns="${CSS.escape(this.of.name)}"]`);
    list.hidden = !list.hidden;
    control.setAttribute("aria-expanded", String(!list.hidden));
    list.replaceChildren(...this.heads.map((head) => make("div", {}, make("dt", {}, head.textContent), make("dd", {}, head.title))));
  }
}

const grids = new Map();
const startTables = () => {
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const grid = grids.get(target.dataset.table);
      grid.visible = isIntersecting;
      if (isIntersecting && grid.stale) grid.update();
    }
  }, { rootMargin: "400px" });
  for (const element of $$("table[data-table]")) {
    const grid = new Grid(element);
    grid.stale = true;
    grids.set(element.dataset.table, grid);
    seen.observe(element);
  }
  selection.listeners.push(() => {
    for (const grid of grids.values()) {
      if (!followed(grid.of).length) continue;
      grid.stale = true;
      if (grid.visible) grid.update();
    }
  });
  for (const link of $$("a[data-row]")) {
    link.addEventListener("click", () => {
      const name = link.getAttribute("href").slice(1), grid = grids.get(name);
      reveal(document.getElementById(name));
      grid?.mark(link.dataset.row);
      grid?.scroller.focus({ preventScroll: true });
    });
  }
  for (const control of $$("[data-copy=table]")) {
    const grid = grids.get($("table[data-table]", control.closest(".table")).dataset.table);
    control.addEventListener("click", () => { if (grid.stale) grid.update(); copy(grid.markdown(), "Table"); });
  }
  for (const control of $$("[data-csv]")) control.addEventListener("click", () => grids.get(control.dataset.csv).csv());
  for (const control of $$("[data-explain]")) {
    control.setAttribute("aria-expanded", "false");
    $(`[data-columns="${CSS.escape(control.dataset.explain)}"]`).hidden = true;
    control.addEventListener("click", () => grids.get(control.dataset.explain).explain(control));
  }
};
