// Tables sort by a click on a head: by the first number in a cell, or by the text.
document.querySelectorAll("article table").forEach(table => {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    let up = false;
    head.style.cursor = "pointer";
    head.tabIndex = 0;
    const sort = () => {
      up = !up;
      const key = row => {
        const text = row.cells[column].textContent.trim();
        // 1,234 and < 5 are numbers, too.
        const number = parseFloat(text.replace(/^[<>≤≥] */, "").replace(/(\d),(?=\d{3})/g, "$1"));
        return isNaN(number) ? text : number;
      };
      const compare = (a, b) =>
        typeof a === typeof b ? (a > b) - (a < b) : typeof a === "number" ? -1 : 1;
      body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(key(a), key(b))));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => event.key === "Enter" && sort());
  });
});
