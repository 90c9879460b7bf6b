// Tables sort by a column, by its head's button: numbers by the first in a cell, then texts and dates, then empty cells.
document.querySelectorAll("article table").forEach(table => {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    // 1,234 and < 5 are numbers, too; 2026-11-29 is none.
    const number = parseFloat(text.replace(/^[<>≤≥] */, "").replace(/(\d),(?=\d{3})/g, "$1"));
    if (text === "" || text === "-") return [2, ""];
    return isNaN(number) || /^\d{4}-\d\d-\d\d/.test(text) ? [1, text] : [0, number];
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.style.cssText = "all: unset; cursor: pointer; outline: revert;";
    button.append(...head.childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((one, other) => {
        const [a, x] = key(one, column), [b, y] = key(other, column);
        return a - b || sign * (a === 0 ? x - y : x.localeCompare(y, undefined, {numeric: true}));
      }));
    });
  });
});
