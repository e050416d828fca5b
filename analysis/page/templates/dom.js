// What every part of the page is built with. Text is only ever set as text.
const $ = (selector, inside = document) => inside.querySelector(selector);
const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];

const fill = (element, values, children) => {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return element;
};
const make = (tag, values = {}, ...children) => fill(document.createElement(tag), values, children);
const draw = (tag, values = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), values, children);
const button = (label, onclick, values = {}) => make("button", { type: "button", onclick, ...values }, label);

// A sentence with what stands in backticks as code.
const coded = (said) => (said ?? "").split("`").map((one, at) => at % 2 ? make("code", {}, one) : one);

const say = (sentence) => { $("#status").textContent = sentence; };

const copy = async (written, what) => {
  try {
    await navigator.clipboard.writeText(written);
  } catch {  // from a file, or where the browser asks first
    const area = make("textarea", { "aria-hidden": "true", class: "offscreen" });
    area.value = written;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied as Markdown`);
};

const save = (name, blob) => {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

// One tip for everything that is pointed at: a title and pairs of a word and a value.
const tip = {
  show(x, y, title, pairs) {
    const box = $("#tip");
    const list = make("dl", {}, pairs.filter(([, value]) => value !== null).map(([word, value]) => make("div", {}, make("dt", {}, word), make("dd", {}, value))));
    box.replaceChildren(make("b", {}, title.length > 300 ? `${title.slice(0, 297)}…` : title), list);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    box.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
  },
  hide() { $("#tip").hidden = true; },
};

const bindings = {
  launch: "launch-bound", host: "host-bound", memory: "memory-bound", compute: "compute-bound", latency: "latency-bound", unknown: "limit unknown", slower: "longer", faster: "shorter", same: "no difference",
};
const lastPart = (path) => path.slice(path.lastIndexOf("/") + 1);

// Draws a box when it comes near the screen, and again when what it shows has changed.
const seenBoxes = new WeakMap();
const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const state = seenBoxes.get(target);
    state.near = isIntersecting;
    if (isIntersecting && state.stale) { state.stale = false; state.render(); }
  }
}, { rootMargin: "300px" });
const whenSeen = (box, render) => { seenBoxes.set(box, { render, stale: true, near: false }); watcher.observe(box); };
const renderIfSeen = (box) => {
  const state = seenBoxes.get(box);
  if (!state) return;
  if (state.near) state.render(); else state.stale = true;
};
