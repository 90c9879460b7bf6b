"use strict";

// Tables that sort by a column: empty cells last, numbers as numbers.
for (const table of document.querySelectorAll(".results")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent;
  const compare = (a, b) => a === b ? 0 : isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  heads.forEach((head, i) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const empty = row => key(row, i) === "";
    body.append(...[...body.rows].sort((a, b) =>
      empty(a) || empty(b) ? empty(a) - empty(b) : sign * compare(key(a, i), key(b, i))));
  }));
}
