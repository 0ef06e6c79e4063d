// The room where one draws: class capsules as bars, what the winner draws, and sliders for its pose.

import { Newest } from "./ask.js";
import { Pad } from "./pad.js";
import { copy, html, number, paint, put } from "./shapes.js";
import { drew, studio } from "./store.js";

const find = (id) => document.getElementById(id);
const LENGTHS = ["attention", "dynamic", "entropy", "uniform"]; // routings whose activations are lengths
const MOST = 12; // bars; of more classes, the most active are shown

const looks = new Newest();
const poses = new Newest();
let pad = null;
let answer = null;
let pose = [];
let saying = 0;

function blank() {
  const [, height, width] = studio.network.shape;
  return Array.from({ length: height }, () => Array(width).fill(0));
}

function look(anew) {
  if (!studio.image) return;
  const { pixels } = studio.image;
  paint(find("seen"), pixels);
  poses.drop();
  looks[anew ? "replace" : "ask"]("api/digit", { network: studio.network.name, pixels }, (found) => {
    answer = found;
    showBars();
    showDrawing(found.drawing);
    showSliders();
  });
}

// What depends on the network alone.
function explain() {
  const { decoder, routing } = studio.network;
  find("answer-about").replaceChildren(copy(LENGTHS.includes(routing) ? "answer-length" : "answer-other"));
  find("drawing").closest(".card").hidden = find("pose-card").hidden = !decoder;
}

function forget() {
  looks.drop();
  poses.drop();
  clearTimeout(saying);
  answer = null;
  find("answer").textContent = "";
  for (const id of ["seen", "drawing"]) paint(find(id), blank());
  showBars();
  showSliders();
}

function showBars() {
  const { classes } = studio.network;
  const activations = answer?.activations ?? classes.map(() => 0);
  const order = activations.map((_, label) => label).sort((a, b) => activations[b] - activations[a]).slice(0, MOST);
  const rows = order.sort((a, b) => a - b);
  const list = find("bars");
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) {
    const row = html("li", {}, list);
    html("span", { class: "class" }, row);
    html("span", { class: "fill" }, html("span", { class: "track" }, row));
    html("span", { class: "value" }, row);
  }
  rows.forEach((label, index) => {
    const row = list.children[index];
    const share = Math.min(1, Math.max(0, activations[label]));
    row.classList.toggle("wins", label === answer?.winner);
    row.dataset.label = label;
    row.children[0].textContent = classes[label];
    row.children[2].textContent = answer ? number(activations[label]) : "–";
    row.style.setProperty("--share", share);
  });
  if (!answer) return;
  const said = classes[answer.winner];
  clearTimeout(saying);
  saying = setTimeout(() => { find("answer").textContent = `It is ${said}.`; }, 150);
}

function showDrawing(pixels) {
  paint(find("drawing"), pixels ?? blank());
}

function showSliders() {
  const place = find("sliders");
  const usable = Boolean(answer && studio.network.decoder);
  pose = answer ? [...answer.pose] : pose;
  find("reset").disabled = true;
  if (place.children.length !== pose.length) {
    place.replaceChildren();
    pose.forEach((_, index) => addSlider(place, index));
  }
  [...place.children].forEach((field, index) => {
    const input = field.querySelector("input");
    input.disabled = !usable;
    if (!answer) return;
    put(input, { min: answer.low, max: answer.high, step: (answer.high - answer.low) / 200 });
    const share = (answer.pose[index] - answer.low) / (answer.high - answer.low);
    field.style.setProperty("--home", Math.min(1, Math.max(0, share)));
    setSlider(field, pose[index]);
  });
}

function setSlider(field, value) {
  const input = field.querySelector("input");
  input.value = value;
  input.style.setProperty("--share", (value - answer.low) / (answer.high - answer.low));
  field.querySelector("output").textContent = number(value);
}

function addSlider(place, index) {
  const field = html("div", { class: "field slider" }, place);
  const label = html("label", { for: `pose-${index}` }, field, `${index + 1}`);
  html("output", { for: `pose-${index}` }, label);
  const input = html("input", { type: "range", id: `pose-${index}`, "aria-label": `pose number ${index + 1}` }, html("div", { class: "rail" }, field));
  const reset = () => moveTo(index, answer.pose[index]);
  input.addEventListener("input", () => moveTo(index, Number(input.value)));
  input.addEventListener("dblclick", reset);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Delete" && event.key !== "Backspace" && event.key !== "Escape") return;
    event.preventDefault();
    reset();
  });
}

function moveTo(index, value) {
  pose[index] = value;
  setSlider(find("sliders").children[index], value);
  redraw();
}

function redraw() {
  const moved = pose.some((value, index) => value !== answer.pose[index]);
  find("reset").disabled = !moved;
  if (!moved) {
    poses.drop();
    showDrawing(answer.drawing);
    return;
  }
  const question = { network: studio.network.name, label: answer.winner, pose };
  poses.ask("api/pose", question, ({ drawing }) => showDrawing(drawing));
}

export function openDigit() {
  pad = new Pad(find("pad"), (pixels) => (pixels ? drew(pixels) : forget()));
  find("clear").addEventListener("click", () => {
    pad.clear();
    forget();
  });
  find("reset").addEventListener("click", () => {
    pose = [...answer.pose];
    [...find("sliders").children].forEach((field, index) => setSlider(field, pose[index]));
    redraw();
  });
  pad.size(studio.network.shape);
  pad.clear();
  explain();
  return {
    changed(what) {
      if (what === "network") {
        pad.size(studio.network.shape);
        explain();
        if (!studio.image) pad.clear();
      }
      const drawing = studio.image && studio.image.example === undefined;
      if (studio.image && !(drawing && pad.lines.length)) pad.show(studio.image.pixels);
      look(what !== "image" || !drawing);
    },
  };
}
