// What is selected: a range of the program. Everything that shows rows of ranges follows it.
const selection = { path: "", listeners: [] };
const patterns = new Map();
// A folded range as a pattern: h.* stands for h.0, h.1 …
const patternOf = (path) => {
  if (!patterns.has(path)) {
    const text = path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\\\*/g, "(?:\\*|\\d+)");
    patterns.set(path, new RegExp(`^${text}(?:/|$)`));
  }
  return patterns.get(path);
};
const isInside = (range, path) => !path || (range !== null && patternOf(path).test(range));
const PLACES = ["range", "step"];
// Whether a row of a table lies in the selected range; a step also where the range lies in it. Other tables follow nothing,
// nor do those with a step's number.
const followed = (of) => PLACES.filter((name) => of.columns.some((one) => one.name === name && one.texts !== undefined));
const follower = (of, path) => {
  const places = path ? followed(of) : [];
  if (!places.length) return null;
  const known = new Map();
  const judge = (value) => {
    if (value === null) return false;
    const bare = value.replace(/#\d+$/, "");
    return value.split(" + ").some((part) => isInside(part, path)) || isInside(bare, path);
  };
  const stepAround = (value) => value !== null && isInside(path, value.replace(/#\d+$/, ""));
  return (row) => places.some((name) => {
    const value = of.at(name, row);
    if (!known.has(value)) known.set(value, judge(value) || (name === "step" && places.length === 1 && stepAround(value)));
    return known.get(value);
  });
};

const select = (path, { push = true } = {}) => {
  selection.path = path;
  if (push) {
    const hash = path ? `#range=${encodeURIComponent(path)}` : "#top";
    if (location.hash !== hash) history.pushState(null, "", hash);
    selection.hash = hash;
  }
  for (const listener of selection.listeners) listener(path);
};
// Opens what hides an element.
const reveal = (element) => { for (let box = element?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true; };
// A page without pages of kernels shows the kernel's rows.
const openKernel = (name) => {
  if ($("#kernel-page")) location.hash = `kernel=${encodeURIComponent(name)}`;
  else [...grids.values()].find((grid) => grid.of.has("kernel"))?.mark(JSON.stringify({ kernel: name }), true);
};
