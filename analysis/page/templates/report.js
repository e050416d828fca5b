
"use strict";
for (const short of document.querySelectorAll("td summary")) short.title = short.nextSibling.textContent;
const full = (cell) => cell.querySelector("summary")?.title || cell.textContent;
for (const table of document.querySelectorAll("table[data-table]")) {
  const name = table.dataset.table, body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const input = document.querySelector(`input[data-filter="${name}"]`), count = document.querySelector(`[data-count="${name}"]`);
  const words = rows.map((row) => [...row.cells].map(full).join(" ").toLowerCase());
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, i) => {
      row.hidden = !wanted.every((word) => words[i].includes(word));
      left += row.hidden ? 0 : 1;
    });
    count.textContent = left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
  });
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === (head.classList.contains("n") ? "descending" : "ascending");
    const order = head.classList.contains("n") !== down ? "descending" : "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => {
      const cell = row.cells[column];
      if (!cell.hasChildNodes()) return null;
      return cell.dataset.v === undefined ? full(cell) : Number(cell.dataset.v || cell.textContent);
    };
    const keyed = rows.map((row, i) => [key(row), i, row]);
    keyed.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j;  // unknown numbers stay last
      const less = typeof a === typeof b ? a < b : typeof a === "number", more = typeof a === typeof b ? a > b : !less;
      return less ? -sign : more ? sign : i - j;
    });
    body.append(...keyed.map(([, , row]) => row));
  }));
}
for (const link of document.querySelectorAll("a[data-row]")) {
  link.addEventListener("click", () => {
    document.querySelectorAll("tr.hit").forEach((row) => row.classList.remove("hit"));
    const table = document.querySelector(`table[data-table="${CSS.escape(link.getAttribute("href").slice(1))}"]`);
    const rows = table ? [...table.tBodies[0].rows] : [];
    // evidence names a row by its first columns ("step", "setting dtype"), by "kernel in range", or several rows ("range + range")
    const parts = new Set([link.dataset.row, ...link.dataset.row.split(" + "), ...link.dataset.row.split(" in ")]);
    const keys = table ? [...table.tHead.rows[0].cells].flatMap((head, i) => /^(kernel|range|step)$/.test(head.textContent.trim()) ? [i] : []) : [];
    const named = (cell) => parts.has(full(cell));
    const leads = (row) => [1, 2, 3, 4].some((n) => [...row.cells].slice(0, n).map(full).join(" ") === link.dataset.row);
    const hits = rows.filter((row) => leads(row) || keys.length && (keys.every((i) => named(row.cells[i])) || full(row.cells[keys[0]]) === link.dataset.row));
    hits.forEach((row) => row.classList.add("hit"));
    if (hits.length) hits[0].parentElement.parentElement.parentElement.scrollTop = hits[0].offsetTop - 80;
  });
}
