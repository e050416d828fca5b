// The block of data: tables of columns. Numbers are in base units; a text is its place among the strings.
const page = JSON.parse(document.getElementById("data").textContent);

// A number for each of some rows: `Float64Array.from` takes ten times as long.
const picked = (rows, value) => { const found = new Float64Array(rows.length); for (let at = 0; at < found.length; at++) found[at] = value(rows[at]); return found; };
const summed = (steps) => { let at = 0; return picked(steps, (step) => at += step); };

// A list, also where it is stored as its runs.
const unpacked = (list) => {
  if (!list?.runs) return list;
  const found = [];
  for (let at = 0; at < list.runs.length; at += 2) for (let left = list.runs[at + 1]; left; left--) found.push(list.runs[at]);
  return found;
};

class Column {
  constructor(raw) {
    Object.assign(this, { name: "", label: "", unit: "", style: "" }, raw);
    this.label ||= this.name;
    for (const name of ["numbers", "steps", "texts", "mixed"]) this[name] = unpacked(this[name]);
    if (this.steps) this.numbers = summed(this.steps);
  }
  // A number, a text, or null where it is missing.
  at(row) {
    if (this.numbers) return this.numbers[row];
    if (this.mixed) return this.mixed[row];
    const place = this.place(row);
    return place < 0 ? null : page.strings[place];
  }
  place(row) {
    return this.texts[row];
  }
  brief(row) {
    const cut = this.short?.[this.place(row)];
    return cut === undefined ? null : page.strings[cut];
  }
}

class Table {
  constructor(raw) {
    this.name = raw.name;
    this.rows = raw.rows;
    this.total = raw.total;
    this.columns = raw.columns.map((one) => new Column(one));
    this.named = new Map(this.columns.map((one) => [one.name, one]));
  }
  has(column) { return this.named.has(column); }
  at(column, row) { return this.named.get(column)?.at(row) ?? null; }
  // The rows in which a column has this value, by an index that is made once.
  where(column, value) {
    this.index ??= new Map();
    if (!this.index.has(column)) {
      const found = new Map();
      for (let row = 0; row < this.rows; row++) {
        const key = this.at(column, row);
        if (found.has(key)) found.get(key).push(row); else found.set(key, [row]);
      }
      this.index.set(column, found);
    }
    return this.index.get(column).get(value) ?? [];
  }
}

let lower = null;
const lowered = () => lower ??= page.strings.map((text) => text.toLowerCase());

const tables = new Map(page.tables.map((raw) => [raw.name, new Table(raw)]));
const NONE = new Table({ name: "", rows: 0, total: 0, columns: [] });
const table = (name) => tables.get(name) ?? NONE;
