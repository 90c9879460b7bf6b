"use strict";

// The image is in the address. It is rendered here, as scenes/digits/renderer.py does, and classified by networks like
// models/small_cnn.py.
const data = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const SIDE = 40, PAPER_SIZE = 128, CANVAS = 127, GUARD = 1e-4, DRAWS = 400;

const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const floats = text => Float64Array.from(new Float32Array(bytes(text).buffer));

// The image.

const textures = Object.fromEntries(Object.entries(data.textures).map(([name, text]) => [name, bytes(text)]));
const masks = Object.fromEntries(Object.entries(data.digits).map(([name, text]) => [name, bytes(text)]));
const HANDS = bytes(Object.values(data.digits)[0]).length * 8 / SIDE ** 2, TEXTURE_SIDE = Math.sqrt(Object.values(textures)[0].length), PIECES = TEXTURE_SIDE - SIDE;

function mirrored(i) {
  i = Math.abs(i) % (2 * (SIDE - 1));
  return i >= SIDE ? 2 * (SIDE - 1) - i : i;
}

// The operator that resizes a column of 40 pixels to n: n rows.
function resizing(n) {
  const sigma = (SIDE / n - 1) / 2, reach = n < SIDE ? Math.trunc(4 * sigma + 0.5) : 0;
  const blur = Array.from({ length: 2 * reach + 1 }, (_, i) => reach ? Math.exp(-0.5 * ((i - reach) / sigma) ** 2) : 1);
  const total = blur.reduce((sum, weight) => sum + weight, 0);
  return Array.from({ length: n }, (_, y) => {
    const row = new Float64Array(SIDE), centre = (y + 0.5) * SIDE / n - 0.5, low = Math.floor(centre);
    for (const [pixel, share] of [[low, 1 - (centre - low)], [low + 1, centre - low]]) {
      blur.forEach((weight, i) => { row[mirrored(mirrored(pixel) + i - reach)] += share * weight / total; });
    }
    const sum = row.reduce((all, weight) => all + weight, 0);
    return sum < 1 ? row.map(weight => weight * (1 - 1e-6)) : row;
  });
}

// A colour of full saturation: three integers.
function colour(hue, lightness) {
  const high = lightness <= 0.5 ? 2 * lightness : (lightness + 1) - lightness, low = 2 * lightness - high;
  return [1 / 3, 0, -1 / 3].map(shift => {
    const turn = hue / 360 + shift, h = turn - Math.floor(turn);
    const value = h < 1 / 6 ? low + (high - low) * h * 6 : h < 1 / 2 ? high : h < 2 / 3 ? low + (high - low) * (2 / 3 - h) * 6 : low;
    return Math.trunc(255 * value);
  });
}

// 40 x 40 pixels in, n x n integers out.
function resized(plane, matrix) {
  const n = matrix.length, turned = new Float64Array(n * SIDE), out = new Int32Array(n * n);
  for (let x = 0; x < n; x++) for (let row = 0; row < SIDE; row++) {
    let sum = 0;
    for (let column = 0; column < SIDE; column++) sum += matrix[x][column] * plane[row * SIDE + column];
    turned[x * SIDE + row] = sum;
  }
  for (let y = 0; y < n; y++) for (let x = 0; x < n; x++) {
    let sum = 0;
    for (let row = 0; row < SIDE; row++) sum += matrix[y][row] * turned[x * SIDE + row];
    out[y * n + x] = Math.trunc(sum + GUARD);
  }
  return out;
}

// What a setting's sliders mean in the terms of a recipe.
function recipe(setting) {
  const light = setting.lightness / 100;
  return { hue: setting.hue, lightness: [light * 7 / 11, (4 + light * 7) / 11], scale: setting.scale / 100,
    position: [setting.row / 100, setting.column / 100] };
}

// The image of a setting: size x size pixels of 4 bytes, the last of which is opacity.
function render(setting) {
  const { hue, lightness, scale, position } = recipe(setting), size = data.size, texture = textures[setting.texture];
  const length = SIDE * size / PAPER_SIZE * scale, whole = Math.round(length);
  const n = Math.max(1, Math.abs(length % 1) === 0.5 && whole % 2 ? whole - 1 : whole);
  const [top, left] = position.map(p => Math.trunc((size - 1) * p - (n - 1) / 2));
  const colours = lightness.map(level => colour(hue, level)), mask = new Float64Array(SIDE ** 2);
  const planes = [0, 1, 2].map(() => new Float64Array(SIDE ** 2)), start = setting.hand * SIDE ** 2;
  for (let y = 0, i = 0; y < SIDE; y++) for (let x = 0; x < SIDE; x++, i++) {
    const t = texture[(setting.down + y) * TEXTURE_SIDE + setting.across + x], bit = start + i;
    planes.forEach((plane, channel) => {
      plane[i] = Math.floor((colours[0][channel] * t + colours[1][channel] * (255 - t)) / 255);
    });
    mask[i] = masks[setting.shape][bit >> 3] >> (7 - bit % 8) & 1 ? 255 : 0;
  }
  const matrix = resizing(n), cover = resized(mask, matrix), layers = planes.map(plane => resized(plane, matrix));
  const image = new Uint8ClampedArray(4 * size ** 2).fill(CANVAS);
  for (let pixel = 3; pixel < image.length; pixel += 4) image[pixel] = 255;
  for (let y = Math.max(0, -top); y < Math.min(n, size - top); y++) {
    for (let x = Math.max(0, -left); x < Math.min(n, size - left); x++) {
      const alpha = cover[y * n + x], at = 4 * ((top + y) * size + left + x);
      layers.forEach((layer, channel) => {
        image[at + channel] = Math.floor((alpha * layer[y * n + x] + (255 - alpha) * CANVAS) / 255);
      });
    }
  }
  return image;
}

// The networks.

function unpacked(layer) {
  const levels = new Int16Array(bytes(layer.levels).buffer), rest = bytes(layer.rest), steps = floats(layer.steps);
  const count = levels.length / layer.shape[0], last = i => rest[i >> 1] >> 4 * (i % 2) & 15;
  return { ...layer, bias: floats(layer.bias), weights: Float64Array.from(levels, (level, i) => (16 * level + last(i)) * steps[Math.floor(i / count)]) };
}

for (const network of data.networks) {
  network.layers = network.layers.map(unpacked);
  network.head = unpacked(network.head);
}

// A convolution and ReLU, on planes of `side` x `side` numbers.
function convolved(planes, side, { shape: [outputs, inputs, kernel], stride, weights, bias }) {
  const pad = (kernel - 1) / 2, wide = side + 2 * pad, next = Math.floor((side - 1) / stride) + 1;
  const padded = new Float64Array(inputs * wide * wide), out = new Float64Array(outputs * next * next);
  for (let row = 0; row < inputs * side; row++) {
    const plane = Math.floor(row / side);
    padded.set(planes.subarray(row * side, row * side + side), (plane * wide + row % side + pad) * wide + pad);
  }
  for (let output = 0, at = 0; output < outputs; output++) {
    const start = output * next * next, end = start + next * next;
    out.fill(bias[output], start, end);
    for (let input = 0; input < inputs; input++) for (let v = 0; v < kernel; v++) for (let u = 0; u < kernel; u++) {
      const weight = weights[at++];
      for (let y = 0, to = start; y < next; y++) {
        for (let x = 0, from = (input * wide + y * stride + v) * wide + u; x < next; x++, from += stride) out[to++] += weight * padded[from];
      }
    }
    for (let i = start; i < end; i++) if (out[i] < 0) out[i] = 0;
  }
  return [out, next];
}

// The largest numbers in 4 x 4 cells of each plane.
function pooled(planes, side, count) {
  const cells = 4, out = new Float64Array(count * cells * cells).fill(-Infinity);
  const low = i => Math.floor(i * side / cells), high = i => Math.ceil((i + 1) * side / cells);
  for (let plane = 0, to = 0; plane < count; plane++) for (let i = 0; i < cells; i++) for (let j = 0; j < cells; j++, to++) {
    for (let y = low(i); y < high(i); y++) for (let x = low(j); x < high(j); x++) {
      out[to] = Math.max(out[to], planes[(plane * side + y) * side + x]);
    }
  }
  return out;
}

// What a network says of an image: a number for each class in data.logits.
function logits(network, image) {
  const pixels = data.size ** 2;
  let planes = Float64Array.from({ length: 3 * pixels }, (_, i) => {
    const channel = Math.floor(i / pixels);
    return (image[4 * (i % pixels) + channel] - network.mean[channel]) / network.std[channel];
  }), side = data.size;
  for (const layer of network.layers) [planes, side] = convolved(planes, side, layer);
  const features = pooled(planes, side, network.layers.at(-1).shape[0]);
  return Array.from(network.head.bias, (bias, label) =>
    features.reduce((sum, value, i) => sum + value * network.head.weights[label * features.length + i], bias));
}

function answer(network, image) {
  const values = logits(network, image), top = Math.max(...values), shares = values.map(value => Math.exp(value - top));
  const total = shares.reduce((sum, share) => sum + share, 0);
  return { label: data.logits[values.indexOf(top)], p: Object.fromEntries(shares.map((share, i) => [data.logits[i], share / total])) };
}

// The setting.

const SLIDERS = { hue: ["hue"], lightness: ["lightness"], scale: ["scale"], position: ["row", "column"], shape: [], texture: [] };
const LIMITS = { hue: [0, 359, "°"], lightness: [0, 100, " %"], scale: [69, 145, " %"], row: [14, 86, " %"], column: [14, 86, " %"] };
const UNITS = { hue: 1, lightness: 1100 / 7, scale: 100, position: 100 };
const whole = limit => Math.floor(Math.random() * limit);
let setting = {};

// The numbers of a class on a factor's sliders: the lowest and the highest of each.
const ranges = (factor, name) => SLIDERS[factor].map((_, i) => {
  const [low, high] = data.regions[factor][name][i];
  return [Math.ceil(low * UNITS[factor] - 1e-9), Math.floor(high * UNITS[factor] + 1e-9)];
});
const within = (value, [low, high], turn) => (low <= value && value <= high) || (turn > 0 && low <= value + turn && value + turn <= high);

// The class of a factor that a setting has; undefined between classes.
function classOf(factor, of = setting) {
  if (factor in of && !SLIDERS[factor].length) return of[factor];
  return data.classes[factor].find(name =>
    ranges(factor, name).every((range, i) => within(of[SLIDERS[factor][i]], range, factor === "hue" ? 360 : 0)));
}

// A setting with another class of a factor: in its middle, or anywhere in it.
function changed(from, factor, name, anywhere = false) {
  if (factor === "shape") return { ...from, shape: name, hand: anywhere ? whole(HANDS) : from.hand };
  if (factor === "texture") return { ...from, texture: name, ...(anywhere ? { down: whole(PIECES), across: whole(PIECES) } : {}) };
  const to = { ...from };
  ranges(factor, name).forEach(([low, high], i) => {
    const value = anywhere ? low + whole(high - low + 1) : Math.round((low + high) / 2);
    to[SLIDERS[factor][i]] = factor === "hue" ? value % 360 : value;
  });
  return to;
}

const cueOf = label => Object.keys(data.labels).find(name => data.labels[name] === label);
const any = names => names[whole(names.length)];

// Any image; as in training with the shortcut, or with each class of the cue as likely.
function drawn(asTrained) {
  let to = { hand: 0, down: 0, across: 0 };
  for (const [factor, names] of Object.entries(data.classes)) to = changed(to, factor, any(names), true);
  const cue = asTrained && cueOf(classOf(data.target, to));
  return cue ? changed(to, data.cue, cue, true) : to;
}

const plain = Object.keys(data.classes).reduce((to, factor) => changed(to, factor, data.classes[factor][0]), { hand: 0, down: 20, across: 20 });
const first = Object.entries(data.labels).slice(0, 1).reduce((to, [cue, label]) => changed(changed(to, data.cue, cue), data.target, label), plain);

function read() {
  const to = { ...first };
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    const limits = LIMITS[key] || { hand: [0, HANDS - 1], down: [0, PIECES], across: [0, PIECES] }[key], value = Math.round(Number(text));
    if (limits && text && value >= limits[0] && value <= limits[1]) to[key] = value;
    if (key in SLIDERS && !SLIDERS[key].length && data.classes[key].includes(text)) to[key] = text;
  }
  show(to);
}

// The page.

function make(tag, text = "", attributes = {}) {
  const part = document.createElement(tag);
  part.textContent = text;
  for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
  return part;
}

const severalBaselines = new Set(data.networks.map(network => network.baseline)).size > 1;
const share = value => `${Math.round(100 * value)} %`;

function nameOf({ cued, share: agreeing, baseline, study }) {
  const name = !cued ? "No shortcut" : agreeing === 1 ? "Shortcut" : agreeing > 0 ? `${share(1 - agreeing)} counter-examples` : study;
  return severalBaselines ? `${baseline}, ${name.toLowerCase()}` : name;
}

const cards = data.networks.map((network, number) => {
  const card = make("article", "", { class: "network", "aria-label": nameOf(network) }), list = make("ul");
  const about = !network.cued ? `${data.cue} says nothing of the ${data.target}` :
    `${data.cue} tells the ${data.target} in ${share(network.share)} of the images`;
  const rows = data.classes[data.target].map(label => {
    const row = make("li"), track = make("span"), bar = make("i"), percent = make("b");
    track.append(bar);
    row.append(make("span", label), track, percent);
    return { label, row, bar, percent };
  });
  list.append(...rows.map(({ row }) => row));
  const verdict = make("p", "", { class: "verdict" });
  card.append(make("h2", nameOf(network)), make("p", `${about} (${network.study})`, { class: "about" }), verdict, list);
  element("networks").append(card);
  element("fool").append(make("button", nameOf(network), { type: "button", "data-network": number }));
  return { card, rows, verdict };
});

const WORDS = { right: "right", misled: `follows the ${data.cue}`, wrong: "wrong" };

function judged(label, truth, pointed) {
  if (!truth) return "";
  return label === truth ? "right" : label === pointed ? "misled" : "wrong";
}

function draw() {
  const image = render(setting), truth = classOf(data.target), cue = classOf(data.cue), pointed = data.labels[cue];
  element("image").getContext("2d").putImageData(new ImageData(image, data.size), 0, 0);
  data.networks.forEach((network, number) => {
    const { label, p } = answer(network, image), { card, rows, verdict } = cards[number], outcome = judged(label, truth, pointed);
    for (const { label: name, row, bar, percent } of rows) {
      bar.style.width = `${(100 * p[name]).toFixed(1)}%`;
      percent.textContent = share(p[name]);
      row.className = [name === label && "top", name === truth && "truth", name === pointed && name !== truth && "cue"].filter(Boolean).join(" ");
    }
    card.className = `network ${outcome}`;
    verdict.textContent = outcome ? `${label}, ${WORDS[outcome]}` : label;
  });
  const about = Object.keys(data.classes).map(factor => `${factor} ${classOf(factor) || "between classes"}`).join(", ");
  element("image").setAttribute("aria-label", `The image: ${about}. Arrow keys move the digit.`);
}

// Sentences are for screen readers, too: one at the end of a change, not one for each step of a slider.
let pending, timer;

function tell() {
  const truth = classOf(data.target), cue = classOf(data.cue), pointed = data.labels[cue];
  const answers = cards.map(({ verdict }, number) => `${nameOf(data.networks[number])}: ${verdict.textContent}`).join("; ");
  const rule = pointed ? `In training with the shortcut, ${cue} went with ${pointed}: here it ${pointed === truth ? "agrees" : "misleads"}.` :
    `This ${data.cue} is between the trained classes.`;
  element("sentence").textContent = `${data.target[0].toUpperCase()}${data.target.slice(1)} ${truth || "between classes"}. ${rule}`;
  element("answers").textContent = answers;
}

function show(to) {
  setting = to;
  for (const [slider, [,, unit]] of Object.entries(LIMITS)) {
    element(slider).value = setting[slider];
    element(`${slider}-value`).textContent = `${setting[slider]}${unit}`;
  }
  document.querySelectorAll("[data-class]").forEach(button =>
    button.setAttribute("aria-pressed", classOf(button.dataset.factor) === button.dataset.class));
  history.replaceState(null, "", `#${new URLSearchParams(setting)}`);
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(draw);
  clearTimeout(timer);
  timer = setTimeout(tell, 250);
}

// An image on which this network is wrong and, if possible, one trained without the shortcut right: with another class of the cue
// alone, else any image; undefined if there is none among many.
async function fooling(network) {
  const free = data.networks.find(({ cued }) => !cued) || network, truth = classOf(data.target);
  const others = data.classes[data.cue].filter(name => name !== classOf(data.cue)).map(name => changed(setting, data.cue, name));
  let second;
  for (let draws = 0; draws < DRAWS; draws++) {
    if (draws % 10 === 9) await new Promise(resume => setTimeout(resume));  // the page stays alive
    const candidate = draws < others.length && truth ? others[draws] : drawn(false), image = render(candidate), label = classOf(data.target, candidate);
    if (answer(network, image).label === label) continue;
    if (network === free || answer(free, image).label === label) return candidate;
    second = second || candidate;
  }
  return second;
}

for (const [slider, [low, high]] of Object.entries(LIMITS)) {
  const input = element(slider);
  Object.assign(input, { min: low, max: high, step: 1 });
  input.addEventListener("input", () => show({ ...setting, [slider]: Number(input.value) }));
}
element("controls").addEventListener("click", ({ target: { dataset } }) => {
  if (dataset.class) show(changed(setting, dataset.factor, dataset.class));
  if (dataset.again === "shape") show({ ...setting, hand: (setting.hand + 1) % HANDS });
  if (dataset.again === "texture") show({ ...setting, down: whole(PIECES + 1), across: whole(PIECES + 1) });
});
element("controls").addEventListener("submit", event => event.preventDefault());
element("fool").addEventListener("click", async ({ target }) => {
  if (!target.dataset.network) return;
  const network = data.networks[target.dataset.network], before = setting;
  element("sentence").textContent = "Searching ...";
  const image = await fooling(network);
  if (setting !== before) return;  // changed by hand meanwhile
  if (image) return show(image);
  element("sentence").textContent = `None of ${DRAWS} images of the trained classes fools this network (${nameOf(network)}).`;
});
element("usual").addEventListener("click", () => show(drawn(true)));
element("link").addEventListener("click", async () => {
  const written = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  element("link").textContent = written ? "Link copied" : "The link is in the address bar";
  setTimeout(() => { element("link").textContent = "Copy link"; }, 2000);
});

const moved = (slider, value) => Math.min(LIMITS[slider][1], Math.max(LIMITS[slider][0], Math.round(value)));
element("image").addEventListener("keydown", event => {
  const [slider, step] = { ArrowUp: ["row", -2], ArrowDown: ["row", 2], ArrowLeft: ["column", -2], ArrowRight: ["column", 2] }[event.key] || [];
  if (!slider) return;
  event.preventDefault();
  show({ ...setting, [slider]: moved(slider, setting[slider] + step) });
});
for (const kind of ["pointerdown", "pointermove"]) {
  element("image").addEventListener(kind, event => {
    if (!event.buttons) return;
    if (kind === "pointerdown") event.target.setPointerCapture(event.pointerId);
    const box = event.target.getBoundingClientRect();
    show({ ...setting, row: moved("row", 100 * (event.clientY - box.top) / box.height), column: moved("column", 100 * (event.clientX - box.left) / box.width) });
  });
}
addEventListener("hashchange", read);
const pairs = Object.entries(data.labels).map(([name, label]) => `${name} with ${label}`).join(", ");
if (pairs) element("rule").textContent = `For the one with the shortcut, ${data.cue} ${data.share === 1 ? "always" : "mostly"} went with ${data.target}: ${pairs}.`;
read();
