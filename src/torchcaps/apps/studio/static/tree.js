// The room where the routing of one image is seen as a tree from its parts to its classes.

import { Newest } from "./ask.js";
import { bend, layout } from "./branches.js";
import { between, copy, follow, html, make, night, number, paint, picture, put } from "./shapes.js";
import { studio } from "./store.js";
import { Transport } from "./transport.js";

const find = (id) => document.getElementById(id);
const MOST = 12; // classes
const trees = new Newest();
let transport = null;
let tree = null;
let plan = null;
let lines = []; // of the edges, in their order
let marks = new Map(); // what stands for each capsule, by `class-LABEL` and `node-ID`
let held = null; // the node in focus, or under the pointer
let stop = null; // the node that Tab reaches
let told = null; // the iteration whose numbers are in bold

function grow(label = null) {
  if (studio.network.routing === null) {
    clear();
    return;
  }
  if (!studio.image) return;
  const question = { network: studio.network.name, pixels: studio.image.pixels, label };
  trees.replace("api/tree", question, (found) => {
    transport.resize(found.iterations);
    tree = found;
    for (const node of tree.nodes) if (node.kind === "class") node.index ??= tree.label;
    find("tree-transport").hidden = tree.iterations < 2;
    find("once").hidden = tree.iterations > 1;
    find("tree-about").replaceChildren(copy(studio.network.routing === "attention" ? "tree-attention" : "tree-softmax"));
    find("tree-name").textContent = `The way to ${name(tree.label)}`;
    find("share").textContent = `${percent(tree.shown_share)} of what reaches it is shown`;
    build();
  });
}

function clear() {
  trees.drop();
  tree = held = null;
  for (const id of ["stage", "numbers", "tree-about"]) find(id).replaceChildren();
  find("tree-transport").hidden = find("once").hidden = true;
  find("share").textContent = "This network has no routing, so it grows no tree.";
}

const name = (label) => studio.network.classes[label];
const short = (label) => (name(label).length > 12 ? `${name(label).slice(0, 11)}…` : name(label));

function percent(share) {
  return share < 0.001 ? "less than 0.1 %" : `${number(100 * share, share < 0.1 ? 1 : 0)} %`;
}

// A capsule in few words, with its place in pixels where it has one.
const named = (node) => (node.x === null ? node.name : `${node.name} at ${Math.round(node.x)}, ${Math.round(node.y)}`);

function shownLabels() {
  const labels = tree.classes.map((_, label) => label);
  if (labels.length <= MOST) return labels;
  const wanted = new Set(tree.nodes.filter((node) => node.kind === "class").map((node) => node.index));
  labels.sort((a, b) => wanted.has(b) - wanted.has(a) || tree.classes[b] - tree.classes[a]);
  return labels.slice(0, MOST).sort((a, b) => a - b);
}

function build() {
  const stage = find("stage");
  const width = stage.getBoundingClientRect().width;
  if (!tree || width < 120) return; // hidden, or on its way to its size
  const labels = shownLabels();
  plan = layout(tree.nodes, labels, labels.map(short), studio.network.shape, width);
  const focused = stage.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  stage.style.setProperty("--height", `${plan.height}px`);
  stage.replaceChildren();
  marks = new Map();
  const { image } = plan;
  const photo = html("canvas");
  paint(photo, studio.image.pixels);
  make("image", { ...image, href: photo.toDataURL(), preserveAspectRatio: "none", class: "photo" }, stage);
  if (!plan.down) for (const [x, said] of plan.captions) make("text", { class: "caption", x, y: 8 }, stage, said);
  const paths = make("g", { class: "lines" }, stage);
  lines = tree.edges.map((edge) => {
    const parent = tree.nodes.find((node) => node.id === edge.parent);
    const kind = parent.kind === "class" && parent.index !== tree.label ? "other" : "main";
    return make("path", { class: kind, d: bend(plan.spots.get(edge.child), plan.spots.get(edge.parent), plan.down) }, paths);
  });
  for (const node of tree.nodes) if (node.kind !== "class") addPart(node, stage);
  for (const label of plan.classes.keys()) addClass(label, stage);
  stop = `class-${tree.label}`;
  for (const [key, mark] of marks) mark.tabIndex = key === stop ? 0 : -1;
  draw();
  light(null);
  marks.get(focused)?.focus();
}

function addPart(node, stage) {
  const [x, y] = plan.spots.get(node.id);
  const mark = make("g", { class: "part", role: "img", "aria-label": words(node) }, stage);
  if (node.kind === "part" && plan.placed && node.x !== null) {
    const scale = plan.image.width / studio.network.shape[2];
    const size = { width: node.width * scale, height: node.height * scale };
    make("rect", { class: "field", x: plan.image.x + node.x * scale - size.width / 2, y: plan.image.y + node.y * scale - size.height / 2, rx: 6, ...size }, mark);
  }
  if (node.map) {
    const side = plan.thumb;
    const href = picture(studio.image.pixels, node.map).toDataURL();
    make("image", { x: x - side / 2, y: y - side / 2, width: side, height: side, href, class: "map" }, mark);
    make("rect", { class: "edge", x: x - side / 2, y: y - side / 2, width: side, height: side, rx: 4 }, mark);
  } else {
    make("circle", { class: "dot", cx: x, cy: y, r: 4 + 4 * Math.min(1, node.activation) }, mark);
  }
  addMark(`node-${node.id}`, mark);
}

function addClass(label, stage) {
  const [x, y] = plan.classes.get(label);
  const share = Math.min(1, Math.max(0, tree.classes[label]));
  const chosen = label === tree.label;
  const said = `class ${name(label)}, activation ${number(tree.classes[label])}`;
  const mark = make("g", { class: chosen ? "class chosen" : "class", role: "button", "aria-pressed": String(chosen), "aria-label": said }, stage);
  if (plan.down) {
    const half = Math.min(28, plan.width / plan.classes.size / 2 - 2);
    make("rect", { class: "back", x: x - half, y: y + 2, width: 2 * half, height: 98, rx: 6 }, mark);
    make("text", { x, y: y + 20, "text-anchor": "middle" }, mark, short(label).slice(0, Math.max(2, Math.floor(half / 4.5))));
    make("rect", { class: "track", x: x - 4, y: y + 30, width: 8, height: 62, rx: 4 }, mark);
    make("rect", { class: "fill", x: x - 4, y: y + 30 + 62 * (1 - share), width: 8, height: 62 * share, rx: 4 }, mark);
  } else {
    const end = x + plan.classWidth;
    make("rect", { class: "back", x: x + 2, y: y - 16, width: plan.classWidth, height: 32, rx: 8 }, mark);
    make("text", { x: x + 14, y: y + 5 }, mark, short(label));
    make("rect", { class: "track", x: end - 94, y: y - 4, width: 48, height: 8, rx: 4 }, mark);
    make("rect", { class: "fill", x: end - 94, y: y - 4, width: 48 * share, height: 8, rx: 4 }, mark);
    make("text", { class: "value", x: end - 6, y: y + 5, "text-anchor": "end" }, mark, number(tree.classes[label]));
  }
  mark.addEventListener("click", () => grow(label));
  addMark(`class-${label}`, mark);
}

function addMark(key, mark) {
  marks.set(key, mark);
  mark.dataset.key = key;
  mark.addEventListener("pointerenter", () => light(key));
  mark.addEventListener("pointerleave", () => light(document.activeElement.dataset.key ?? null));
  mark.addEventListener("focus", () => light(key));
  mark.addEventListener("blur", () => light(null));
  mark.addEventListener("keydown", (event) => press(event, key));
}

// Arrows go along a layer and across to the next one; Enter chooses a class.
function press(event, key) {
  const { key: pressed } = event;
  if (pressed === "Enter" || pressed === " ") {
    if (isClass(key)) grow(count(key));
    event.preventDefault();
    return;
  }
  const turn = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[pressed];
  if (!turn) return;
  event.preventDefault();
  const [x, y] = spot(key);
  let [best, found] = [Infinity, null];
  for (const other of marks.keys()) {
    const [u, v] = spot(other);
    const [along, aside] = turn[0] ? [(u - x) * turn[0], v - y] : [(v - y) * turn[1], u - x];
    const far = along + 3 * Math.abs(aside);
    if (other !== key && along > 1 && far < best) [best, found] = [far, other];
  }
  if (found === null) return;
  marks.get(stop).tabIndex = -1;
  stop = found;
  marks.get(found).tabIndex = 0;
  marks.get(found).focus();
}

const isClass = (key) => key.startsWith("class-");
const count = (key) => Number(key.split("-")[1]);
const spot = (key) => (isClass(key) ? plan.classes.get(count(key)) : plan.spots.get(count(key)));

function nodeOf(key) {
  return tree.nodes.find((node) => (isClass(key) ? node.kind === "class" && node.index === count(key) : node.id === count(key)));
}

function words(node) {
  return `${node.kind === "part" ? "part" : "capsule"}, ${named(node)}, activation ${number(node.activation)}`;
}

function couplingAt(edge, time) {
  const first = Math.min(Math.floor(time), edge.couplings.length - 1);
  return between(edge.couplings[first], edge.couplings[Math.min(first + 1, edge.couplings.length - 1)], time - first);
}

// Lines are as wide as couplings, relative to the widest of their layer at any time.
function draw() {
  if (!tree || !plan) return;
  const layer = (edge) => tree.nodes.find((node) => node.id === edge.parent).layer;
  const widest = new Map();
  for (const edge of tree.edges) widest.set(layer(edge), Math.max(widest.get(layer(edge)) ?? 1e-9, ...edge.couplings));
  tree.edges.forEach((edge, index) => {
    const share = Math.max(0, couplingAt(edge, transport.time)) / widest.get(layer(edge));
    put(lines[index], { "stroke-width": (0.6 + 9 * share).toFixed(2) });
  });
  if (told !== Math.round(transport.time)) tell();
}

// All ways through a node, down to parts and up to classes.
function light(key) {
  if (!tree) return;
  held = key;
  const stage = find("stage");
  stage.classList.toggle("lit", key !== null);
  const node = key === null ? null : nodeOf(key);
  const near = new Set(node ? [node.id] : []);
  const lit = new Set();
  const walk = (from, to) => {
    const front = node ? [node.id] : [];
    while (front.length) {
      const now = front.pop();
      tree.edges.forEach((edge, index) => {
        if (edge[from] !== now || lit.has(index)) return;
        lit.add(index);
        near.add(edge[to]);
        front.push(edge[to]);
      });
    }
  };
  walk("child", "parent");
  walk("parent", "child");
  lines.forEach((line, index) => line.classList.toggle("on", lit.has(index)));
  for (const [other, mark] of marks) mark.classList.toggle("on", other === key || near.has(nodeOf(other)?.id));
  tell();
}

// The numbers of the node in focus: its couplings, iteration by iteration.
function tell() {
  const place = find("numbers");
  told = Math.round(transport.time);
  place.replaceChildren();
  const node = held === null ? null : nodeOf(held);
  if (held !== null && !node) {
    const label = count(held);
    html("p", {}, place, `${name(label)}: activation ${number(tree.classes[label])}. Press it to see the way to it.`);
    return;
  }
  const shown = node ?? nodeOf(`class-${tree.label}`);
  const up = tree.edges.filter((edge) => edge.child === shown.id);
  const edges = (shown.kind === "class" ? tree.edges.filter((edge) => edge.parent === shown.id) : up);
  const strongest = [...edges].sort((a, b) => b.couplings.at(-1) - a.couplings.at(-1)).slice(0, 6);
  const title = shown.kind === "class" ? `Couplings to ${shown.name}` : `Couplings of ${named(shown)}`;
  html("h4", {}, place, `${title}, activation ${number(shown.activation)}`);
  const table = html("table", {}, place);
  const head = html("tr", {}, html("thead", {}, table));
  html("th", { scope: "col" }, head, shown.kind === "class" ? "from" : "to");
  for (let step = 0; step < tree.iterations; step++) html("th", { scope: "col", class: step === told ? "now" : "" }, head, `${step + 1}`);
  const body = html("tbody", {}, table);
  for (const edge of strongest) {
    const row = html("tr", {}, body);
    const other = tree.nodes.find((each) => each.id === (shown.kind === "class" ? edge.child : edge.parent));
    html("th", { scope: "row" }, row, named(other));
    edge.couplings.forEach((coupling, step) => html("td", { class: step === told ? "now" : "" }, row, number(coupling)));
  }
}

export function openTree() {
  transport = new Transport(find("tree-transport"), draw);
  follow(find("stage"), build);
  night.addEventListener("change", build);
  return { toggle: () => transport.toggle(), changed: () => grow() };
}
