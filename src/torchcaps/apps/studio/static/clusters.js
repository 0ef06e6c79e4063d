// The room where routing is watched on points: one routing, or two side by side.

import { Newest } from "./ask.js";
import { Curve } from "./curve.js";
import { edit } from "./edit.js";
import { optionForm } from "./options.js";
import { Plane, frame } from "./plane.js";
import { color, copy, html, night, number } from "./shapes.js";
import { studio } from "./store.js";
import { Transport } from "./transport.js";

const find = (id) => document.getElementById(id);
const FIRST = ["dynamic", "gaussian"];
const MOST = 400;

const state = { points: [], parents: 3, iterations: 10, seed: 0, chosen: null, view: null };
const panels = [];
const sets = new Newest();
let transport = null;
let set = "";

class Panel {
  options = {};
  trace = null;
  #newest = new Newest();

  constructor(number) {
    const piece = copy("panel");
    this.root = piece.querySelector(".panel");
    find("panels").append(piece);
    const part = (name) => this.root.querySelector(name);
    this.about = part(".about");
    this.legend = part(".legend");
    this.value = part(".objective output");
    const svg = part(".plane");
    svg.id = `plane-${number}`;
    this.plane = new Plane(svg);
    this.curve = new Curve(part(".curve"), (time) => transport.go(time));
    edit(this.plane, actions);
    this.select = part("select");
    for (const { name } of studio.hello.routings) html("option", { value: name }, this.select, name);
    this.select.addEventListener("change", () => this.use(this.select.value));
    const wanted = studio.hello.routings.some(({ name }) => name === FIRST[number]);
    this.use(wanted ? FIRST[number] : studio.hello.routings[0].name);
  }

  use(name) {
    const routing = studio.hello.routings.find((each) => each.name === name);
    this.select.value = name;
    this.options = {};
    this.trace = null;
    this.root.querySelector(".title").textContent = routing.title;
    this.about.replaceChildren(...(document.getElementById(`about-${name}`) ? [copy(`about-${name}`)] : []));
    this.plane.svg.setAttribute("aria-label", `Points and parents of ${name} routing`);
    optionForm(this.root.querySelector(".options"), routing.options, (values) => {
      this.options = values;
      this.route(true);
    });
    state.view = null;
    this.route(true);
  }

  // Ask for the whole trace. While points are dragged, answers for where they just were are welcome.
  route(anew) {
    if (!state.points.length || this.root.hidden) return;
    const { points, parents, iterations, seed } = state;
    const question = { points, parents, iterations, seed, routing: this.select.value, options: this.options };
    const use = (trace) => {
      this.trace = trace;
      if (transport.count !== trace.steps.length) transport.resize(trace.steps.length);
      show();
    };
    if (anew) this.#newest.replace("api/clusters", question, use);
    else this.#newest.ask("api/clusters", question, use);
  }

  draw(time) {
    Object.assign(this.plane, { points: state.points, trace: this.trace, chosen: state.chosen, view: state.view, time });
    this.plane.draw();
    this.curve.values = this.trace?.steps.map((step) => step.objective) ?? [];
    this.curve.time = time;
    this.curve.draw();
    this.value.textContent = this.curve.words;
    const step = this.trace?.steps[Math.min(Math.round(time), this.trace.steps.length - 1)];
    this.legend.replaceChildren(html("li", { class: "first" }, null, "activations"));
    step?.activations.forEach((activation, parent) => {
      const item = html("li", {}, this.legend, `${parent + 1}: ${number(activation)}`);
      item.style.setProperty("--shade", color(parent));
    });
  }
}

const shown = () => panels.filter((panel) => !panel.root.hidden);

function show() {
  const traces = shown().map((panel) => panel.trace);
  if (!state.view && traces.every(Boolean)) state.view = frame(state.points, traces);
  for (const panel of shown()) if (state.view) panel.draw(transport.time);
  tellChosen();
}

function route(anew) {
  for (const panel of shown()) panel.route(anew);
}

function tellChosen() {
  const { chosen, points } = state;
  find("remove").disabled = chosen === null || points.length <= 2;
  const say = (text) => { if (find("chosen-text").textContent !== text) find("chosen-text").textContent = text; };
  if (chosen === null) {
    say(`${points.length} points, none chosen.`);
    return;
  }
  const [x, y] = points[chosen];
  const step = panels[0].trace?.steps[Math.round(transport.time)];
  const couplings = step?.couplings[chosen];
  const best = couplings ? couplings.indexOf(Math.max(...couplings)) : null;
  const whose = couplings ? `; parent ${best + 1} has ${Math.round(100 * couplings[best])} %` : "";
  say(`Point ${chosen + 1} of ${points.length} at (${number(x)}, ${number(y)})${whose}.`);
}

const actions = {
  choose(index) {
    state.chosen = index;
    show();
  },
  move(index, point) {
    state.points[index] = point;
    show();
    route(false);
  },
  add(point) {
    if (state.points.length >= MOST) return;
    state.points.push(point);
    state.chosen = state.points.length - 1;
    show();
    route(true);
  },
  remove(index) {
    if (state.points.length <= 2) return;
    state.points.splice(index, 1);
    for (const { trace } of panels) trace?.steps.forEach((step) => step.couplings.splice(index, 1));
    state.chosen = Math.min(index, state.points.length - 1);
    if (state.parents > state.points.length) setParents(state.points.length);
    show();
    route(true);
  },
  toggle: () => transport.toggle(),
};

function setParents(count) {
  state.parents = count;
  find("parents").value = count;
  fill("parents");
}

function fill(id) {
  const input = find(id);
  find(`${id}-out`).textContent = input.value;
  input.style.setProperty("--share", (input.value - input.min) / (input.max - input.min));
}

function load(name) {
  set = name;
  for (const button of find("sets").children) button.setAttribute("aria-pressed", String(button.value === name));
  const use = ({ points, parents, text }) => {
    Object.assign(state, { points, chosen: null, view: null });
    for (const panel of panels) panel.trace = null;
    setParents(Math.min(8, Math.max(1, parents)));
    find("votes-text").textContent = text || "";
    find("votes-text").hidden = !text;
    transport.go(0);
    route(true);
  };
  if (name !== "votes") sets.replace(`api/points?name=${encodeURIComponent(name)}&seed=0`, undefined, use);
  else if (studio.image) sets.replace("api/votes", { network: studio.network.name, pixels: studio.image.pixels }, use);
}

export function openClusters() {
  transport = new Transport(find("clusters-transport"), show);
  for (const name of [...studio.hello.points, "votes"]) {
    const button = html("button", { value: name }, find("sets"), name === "votes" ? "votes of the image" : name);
    button.addEventListener("click", () => load(name));
  }
  panels.push(new Panel(0), new Panel(1));
  compare(matchMedia("(min-width: 900px)").matches);
  find("compare").addEventListener("click", () => compare(panels[1].root.hidden));
  find("parents").addEventListener("input", () => {
    setParents(Math.min(Number(find("parents").value), state.points.length));
    state.view = null;
    route(true);
  });
  find("iterations").addEventListener("input", () => {
    state.iterations = Number(find("iterations").value);
    fill("iterations");
    route(true);
  });
  find("restart").addEventListener("click", () => {
    state.seed += 1;
    transport.go(0);
    route(true);
  });
  find("remove").addEventListener("click", () => actions.remove(state.chosen));
  night.addEventListener("change", show);
  fill("iterations");
  load(studio.hello.points[0]);
  return {
    toggle: () => transport.toggle(),
    changed() {
      const votes = find("sets").lastChild;
      votes.disabled = studio.network.routing === null;
      if (set === "votes" && !votes.disabled) load("votes");
    },
  };
}

function compare(two) {
  panels[1].root.hidden = !two;
  find("panels").dataset.count = two ? 2 : 1;
  find("compare").setAttribute("aria-pressed", String(two));
  state.view = null;
  if (two) panels[1].route(true);
  show();
}
