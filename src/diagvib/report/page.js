"use strict";

// Tables that sort by a column: numbers by the first number in a cell, then texts, then empty cells. The paper's row
// stays below ours.
for (const table of document.querySelectorAll(".results table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], pairs = [];
  for (const row of body.rows) {
    if (row.className === "paper" && pairs.length) pairs.at(-1).push(row);
    else pairs.push([row]);
  }
  const key = (pair, i) => {
    const text = pair[0].cells[i].textContent, number = parseFloat(text.replace(/^[≤≥<> ]+|,/g, ""));
    return text === "" || text === "-" ? [2, 0] : isNaN(number) ? [1, text] : [0, number];
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      pairs.sort((one, other) => {
        const [a, x] = key(one, i), [b, y] = key(other, i);
        return a - b || sign * (a === 1 ? x.localeCompare(y, undefined, {numeric: true}) : x - y);
      });
      body.append(...pairs.flat());
    });
  });
}

// Figures with tips: the text of a part that is pointed at or touched appears below the figure.
for (const figure of document.querySelectorAll("figure:has(.tip)")) {
  const text = document.createElement("p");
  text.className = "muted tip-text";
  text.setAttribute("aria-live", "polite");
  text.textContent = "Point at or touch a bar to see its numbers, or go there with the arrow keys.";
  const scroll = figure.querySelector(".scroll");
  let told = null;
  const tell = tip => {
    told?.classList.remove("told");
    told = tip;
    tip.classList.add("told");
    text.textContent = tip.querySelector("title").textContent;
  };
  scroll.after(text);
  for (const kind of ["pointerover", "click"]) {
    figure.addEventListener(kind, event => {
      const tip = event.target.closest(".tip");
      if (tip) tell(tip);
    });
  }
  scroll.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const tips = [...figure.querySelectorAll(".tip")].filter(tip => tip.getClientRects().length);
    const next = step && tips[tips.indexOf(told) + step];
    if (!next) return;
    event.preventDefault();
    tell(next);
  });
}
