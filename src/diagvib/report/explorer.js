"use strict";

// The state is in the address: study, binding, sample, a, b (baselines), show, changed, image. A dataset's file calls
// `loaded` with its data.
const index = JSON.parse(document.getElementById("index").textContent);
const element = id => document.getElementById(id), kinds = ["right", "misled", "other"];
const cue = () => data.cues.length === 1 ? `the ${data.cues[0]}` : "a cue";
const words = (kind, n = 1) => ({ right: "right", misled: `follow${n === 1 ? "s" : ""} ${cue()}`, other: "wrong otherwise" })[kind];
const list = names => names.join(" and ");
const known = {};
const hint = element("detail").firstElementChild;
let state = {}, data, pending;

function make(tag, text = "", facts = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  return made;
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => make("option", text, { value })));
  select.value = chosen;
}

// Take the state from the address; what is not known there becomes the first choice.
function read() {
  const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const same = one => ["study", "binding", "sample"].every(key => !(key in asked) || String(one[key]) === asked[key]);
  const cued = index.filter(one => one.binding.includes("-"));  // these show more
  const found = [...cued, ...index].find(same) || index[0];
  const a = found.runs.includes(asked.a) ? asked.a : found.runs[0];
  const b = found.runs.includes(asked.b) && asked.b !== a ? asked.b : "";
  state = { dataset: index.indexOf(found), a, b, show: kinds.includes(asked.show) ? asked.show : "",
    changed: asked.changed === "1", image: "image" in asked ? Number(asked.image) : -1 };
  fill(element("dataset"), index.map((one, i) => [i, `${one.title}, ${one.binding}, ${one.sample}`]), state.dataset);
  fill(element("a"), found.runs.map(name => [name, name]), state.a);
  fill(element("b"), [["", "none"], ...found.runs.filter(name => name !== state.a).map(name => [name, name])], state.b);
  element("show").value = state.show;
  element("changed").checked = state.changed;
  element("changed").disabled = !state.b;
  load(found.file);
}

function address() {
  const { study, binding, sample } = index[state.dataset], { a, b, show, image } = state;
  const all = { study, binding, sample, a, b, show, changed: state.changed ? 1 : "", image: image < 0 ? "" : image };
  const kept = Object.entries(all).filter(([, value]) => value !== "");
  return "#" + new URLSearchParams(kept);
}

function write() {
  history.replaceState(null, "", address());
}

function load(file) {
  pending = file;
  if (known[file]) return draw(known[file]);
  const script = make("script", "", { src: encodeURIComponent(file) });
  script.onerror = () => {
    element("grid").replaceChildren();
    element("summary").textContent = `${file} is missing. Make the page again.`;
  };
  document.head.append(script);
}

function loaded(found) {
  const file = decodeURIComponent(document.currentScript.src.split("/").at(-1));
  known[file] = found;
  if (file === pending) draw(found);
}

const truth = cell => data.rows[Math.floor(cell / data.columns.length)];

function outcome(run, i) {
  const predicted = data.classes[data.runs[run].predicted[i]], cell = data.cells[i];
  return predicted === truth(cell) ? "right" : data.points[cell].includes(predicted) ? "misled" : "other";
}

function shown(i) {
  const a = outcome(state.a, i), b = state.b && outcome(state.b, i), runs = data.runs;
  return (!state.show || a === state.show || b === state.show) &&
    !(state.changed && state.b && runs[state.a].predicted[i] === runs[state.b].predicted[i]);
}

function thumbnail(style, i, side) {
  const at = side / data.side;
  style.backgroundSize = `${data.side * data.across * at}px auto`;
  style.backgroundPosition = `${-side * (i % data.across)}px ${-side * Math.floor(i / data.across)}px`;
}

function says(run, i) {
  const { predicted, percent } = data.runs[run];
  return `${run}: ${data.classes[predicted[i]]}${percent.length ? `, ${percent[i]} %` : ""}, ${words(outcome(run, i))}`;
}

function picture(i) {
  const runs = [state.a, state.b].filter(Boolean), label = runs.map(run => says(run, i)).join("; ");
  const button = make("button", "", { type: "button", "data-image": i, tabindex: -1, title: label,
    "aria-label": `Image ${data.numbers[i]}, ${data.target} ${truth(data.cells[i])}. ${label}`,
    class: `a-${outcome(state.a, i)} b-${outcome(state.b || state.a, i)}` });
  thumbnail(button.style, i, 38);
  return button;
}

const counted = (run, cell) => {
  const [right, misled, other] = data.runs[run].counts[cell];
  return `${right} right, ${misled} cue, ${other} other`;
};

function box(cell, pictures) {
  const made = make("td"), runs = [state.a, state.b].filter(Boolean);
  const n = data.runs[state.a].counts[cell].reduce((sum, one) => sum + one, 0);
  if (!n) return make("td", "none", { class: "empty" });
  const misleading = data.misleading[cell];
  if (misleading.length) made.append(make("small", `${list(misleading)} mislead${misleading.length > 1 ? "" : "s"}`, { class: "misleading" }));
  else if (data.points.some(labels => labels.length)) made.append(make("small", data.cues.length > 1 ? "no cue misleads" : `${data.cues[0]} does not mislead`));
  made.append(make("small", `${n} images`));
  runs.forEach((run, at) => made.append(make("small", `${state.b ? "AB"[at] + ": " : ""}${counted(run, cell)}`)));
  const images = make("div", "", { class: "images" });
  images.append(...pictures.map(picture));
  made.append(images);
  return made;
}

function draw(found) {
  data = found;
  document.documentElement.style.setProperty("--sprite", `url("${data.sprite}")`);
  const by = data.points.map(() => []), all = data.cells.map((_, i) => i), some = all.filter(shown);
  some.forEach(i => by[data.cells[i]].push(i));
  const head = make("tr"), width = data.columns.length;
  head.append(make("th", data.cues.length ? `target ${data.target} \\ ${data.cues.length > 1 ? "cues" : "cue"} ${list(data.cues)}` : data.target));
  if (data.cues.length) head.append(...data.columns.map(name => make("th", name, { scope: "col" })));
  const body = make("tbody");
  data.rows.forEach((name, at) => {
    const row = make("tr");
    row.append(make("th", name, { scope: "row" }));
    for (let i = 0; i < width; i++) row.append(box(at * width + i, by[at * width + i]));
    body.append(row);
  });
  const top = make("thead");
  top.append(head);
  element("grid").replaceChildren(top, body);
  const total = data.runs[state.a].counts.flat().reduce((sum, one) => sum + one, 0);
  const sums = run => kinds.map((kind, at) => {
    const n = data.runs[run].counts.reduce((sum, one) => sum + one[at], 0);
    return `${n} ${words(kind, n)}`;
  }).join(", ");
  element("summary").textContent = [`${some.length} of ${total} test images shown${some.length < all.length ? ` (of ${all.length} here)` : ""}`,
    ...[state.a, state.b].filter(Boolean).map(run => `${run}: ${sums(run)}`)].join(". ") + ".";
  const first = element("grid").querySelector(`[data-image="${state.image}"]`) || element("grid").querySelector("button");
  if (first) first.tabIndex = 0;
  if (first && Number(first.dataset.image) === state.image) return choose(first), write();
  state.image = -1;
  element("detail").replaceChildren(hint);
  write();
}

function choose(button) {
  const i = Number(button.dataset.image), runs = [state.a, state.b].filter(Boolean);
  element("grid").querySelectorAll(".chosen, [tabindex='0']").forEach(old => { old.classList.remove("chosen"); old.tabIndex = -1; });
  button.classList.add("chosen");
  button.tabIndex = 0;
  const image = make("i"), text = make("div"), cell = data.cells[i], column = data.columns[cell % data.columns.length];
  image.style.width = image.style.height = "84px";
  thumbnail(image.style, i, 84);
  text.append(make("p", `Image ${data.numbers[i]}: ${data.target} ${truth(cell)}${column ? `, ${column}` : ""}`));
  text.append(...runs.map(run => make("p", says(run, i))), make("p", data.about[i], { class: "muted" }));
  element("detail").replaceChildren(image, text);
  state.image = i;
}

for (const kind of ["pointerover", "focusin", "click"]) {
  element("grid").addEventListener(kind, event => {
    const button = event.target.closest("button");
    if (button) choose(button);
    if (button && kind !== "pointerover") write();
  });
}
// Left and right: the next image; up and down: the first image of the cell above or below.
element("grid").addEventListener("keydown", event => {
  const button = event.target.closest("button"), all = [...element("grid").querySelectorAll("button")];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!button || !(step || down)) return;
  event.preventDefault();
  let next = step && all[all.indexOf(button) + step], cell = button.closest("td"), row = cell.parentNode;
  while (down && !next && (row = down > 0 ? row.nextElementSibling : row.previousElementSibling)) {
    next = row.cells[cell.cellIndex].querySelector("button");
  }
  if (next) next.focus();
});
element("controls").addEventListener("change", event => {
  state[event.target.id] = event.target.type === "checkbox" ? event.target.checked : event.target.value;
  state.image = -1;
  if (event.target.id === "dataset") {
    location.hash = address();  // "back" returns to the dataset before; `read` follows
    return;
  }
  write();
  read();
});
element("controls").addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", read);
read();
