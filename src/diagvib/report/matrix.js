"use strict";

// The matrix: choose study and baseline; point at a cell, touch it, or go there with the arrow keys.
const data = JSON.parse(document.getElementById("matrix-data").textContent);
const chosen = {study: document.getElementById("matrix-study"), baseline: document.getElementById("matrix-baseline")};
const table = document.getElementById("matrix-table"), detail = document.getElementById("matrix-detail");
let at = null;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function cellsOf(study) {
  return (data.cells[study] ?? {})[chosen.baseline.value] ?? {};
}

function aloneOf() {
  return data.studies[chosen.study.value].alone;
}

function titleOf(study) {
  return data.studies[study].title;
}

function describe(target, cue) {
  return cue ? `${target}, cue ${cue}` : `${target}, no cue (${titleOf(aloneOf())})`;
}

function drawCell(target, cue, study) {
  const found = cellsOf(study)[`${target} ${cue}`.trim()];
  const cell = element("td", undefined, {role: "gridcell", tabindex: "-1", "data-target": target, "data-cue": cue});
  if (cue === "") cell.classList.add("alone");
  let label = "not configured";
  if (!found) cell.classList.add("blank");
  else if (found.value === null) {
    cell.classList.add("missing");
    label = `missing, 0 of ${found.expected} samples`;
  } else {
    const [fill, ink] = data.studies[study].colours[Math.round(found.value)];
    cell.style.backgroundColor = fill;
    cell.style.color = ink;
    cell.append(found.whole);
    if (found.n < found.expected) cell.append(element("small", `n=${found.n}/${found.expected}`));
    label = `${found.text} %, n = ${found.n}`;
  }
  cell.setAttribute("aria-label", `${describe(target, cue)}: ${label}`);
  return cell;
}

function drawMatrix() {
  const study = chosen.study.value, alone = aloneOf(), {factors, cues: own} = data.studies[study];
  const cues = [...(alone ? [""] : []), ...own];
  const head = element("tr"), body = element("tbody");
  head.append(element("td", undefined, {class: "name"}));
  for (const cue of cues) {
    const column = element("th", undefined, {scope: "col", ...(cue === "" ? {class: "alone"} : {})});
    column.append(element("span", cue || titleOf(alone)));
    head.append(column);
  }
  for (const target of factors) {
    const row = element("tr");
    row.append(element("th", target, {scope: "row"}));
    for (const cue of cues) row.append(cue === target ? element("td") : drawCell(target, cue, cue ? study : alone));
    body.append(row);
  }
  const thead = element("thead"), caption = element("caption", data.studies[study].title);
  caption.append(element("small", data.studies[study].meaning));
  thead.append(head);
  table.replaceChildren(caption, thead, body);
  table.style.maxWidth = `${5 + 4.5 * cues.length}rem`;
  document.getElementById("matrix-blank").hidden = !table.querySelector(".blank");
  const again = at && find(at.target, at.cue);
  const cells = [...table.querySelectorAll("[role=gridcell]")];
  const full = cells.filter(cell => cell.textContent);
  choose(again ?? full.find(cell => cell.dataset.cue) ?? full[0] ?? cells[0]);
}

function find(target, cue) {
  return table.querySelector(`[data-target="${target}"][data-cue="${cue}"]`);
}

function choose(cell, focus = false) {
  for (const other of table.querySelectorAll("[tabindex='0']")) {
    other.tabIndex = -1;
    other.removeAttribute("aria-selected");
  }
  cell.tabIndex = 0;
  cell.setAttribute("aria-selected", "true");
  at = {target: cell.dataset.target, cue: cell.dataset.cue};
  if (focus) cell.focus();
  drawDetail();
}

function drawDetail() {
  const {target, cue} = at, study = cue ? chosen.study.value : aloneOf(), baseline = chosen.baseline.value;
  const found = cellsOf(study)[`${target} ${cue}`.trim()], facts = element("dl");
  const fact = (name, text) => facts.append(element("dt", name), element("dd", text));
  const shown = [element("h3", describe(target, cue)), element("p", `${titleOf(study)}, ${baseline}`)];
  if (!found) shown.push(element("p", "Not configured."));
  else {
    const value = found.value === null ? "missing" : `${found.value.toFixed(1)} %`;
    shown.push(element("p", value, {class: "value"}));
    const spread = found.n === 1 ? "with the interval over its images" : "mean ± standard error";
    if (found.value !== null) fact(spread, `${found.text} %`);
    fact("n", `${found.n} of ${found.expected} ${data.samples}`);
    if (found.id) fact("in distribution", `${found.id} %`);
    fact("chance", `${data.studies[study].chance.toFixed(1)} %`);
    if (found.missing.length) fact("missing", found.missing.join("; "));
  }
  shown.push(facts, ...drawExamples(target, cue, study));
  detail.replaceChildren(...shown);
}

function drawExamples(target, cue, study) {
  const {train, ood, scene, classes} = data.studies[study];
  const [rows, columns] = [classes[0][target], classes[1]?.[cue]];
  const address = data.examples[`${scene}-${target}-${cue}-${rows?.length}x${columns?.length}`];
  if (!address) return [];
  const figure = element("figure"), grid = element("div", undefined, {class: "examples"});
  grid.style.gridTemplateColumns = `max-content repeat(${columns.length}, minmax(0, 6rem))`;
  grid.append(element("span"), ...columns.map(name => element("span", name, {class: "column"})));
  rows.forEach((name, i) => {
    grid.append(element("span", name));
    columns.forEach((other, j) => {
      const share = train[`${i} ${j}`], tested = ood.includes(`${i} ${j}`);
      const words = `${share ? `${share} % of training` : "never trained"}${tested ? ", tested as ood" : ""}`;
      const picture = element("i", undefined, {role: "img", title: words, "aria-label": `${target} ${name}, ${cue} ${other}: ${words}`,
        class: tested ? "ood" : share ? "trained" : "unused"});
      picture.style.backgroundImage = `url("${address}")`;
      picture.style.backgroundSize = `${100 * columns.length}% ${100 * rows.length}%`;
      picture.style.backgroundPosition = `${100 * j / (columns.length - 1)}% ${100 * i / (rows.length - 1)}%`;
      grid.append(picture);
    });
  });
  figure.append(grid, element("figcaption", `Rows ${target}, columns ${cue} (dataset sample 0). Solid border: trained on; dashed: `
    + "the cue misleads, tested as ood; faded: neither."));
  return [figure];
}

const STEPS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
table.addEventListener("keydown", event => {
  const cell = event.target.closest("[role=gridcell]"), step = STEPS[event.key];
  if (!cell || !step) return;
  event.preventDefault();
  const rows = [...table.tBodies[0].rows];
  let row = rows.indexOf(cell.parentElement), column = cell.cellIndex;
  do {
    row += step[0];
    column += step[1];
  } while (rows[row]?.cells[column] && !rows[row].cells[column].dataset.target && column > 0);
  const next = rows[row]?.cells[column];
  if (next?.dataset.target) choose(next, true);
});
for (const kind of ["pointerover", "focusin", "click"]) {
  table.addEventListener(kind, event => {
    const cell = event.target.closest("[role=gridcell]");
    if (cell && cell.getAttribute("aria-selected") !== "true") choose(cell);
  });
}
chosen.study.addEventListener("change", drawMatrix);
chosen.baseline.addEventListener("change", drawMatrix);
drawMatrix();
