// One routing on points in the plane, drawn at any time between its iterations.

import { between, blend, color, follow, make, put } from "./shapes.js";

const PAD = 22;

// The ends of the arrows: directions of parents, as long as these are active beside the farthest point.
function tips(step, far) {
  return step.centers.map(([x, y], parent) => {
    const length = Math.hypot(x, y) || 1;
    const reach = far * Math.min(1, step.activations[parent]);
    return [reach * x / length, reach * y / length];
  });
}

function farthest(points) {
  return Math.max(...points.map(([x, y]) => Math.hypot(x, y)), 1e-9);
}

// Where the parents of each step are drawn.
export function spots(trace, points) {
  const far = farthest(points);
  return trace.steps.map((step) => (trace.directional ? tips(step, far) : step.centers));
}

// A square that holds all points, and all that is drawn for the traces.
export function frame(points, traces) {
  const all = [...points];
  for (const trace of traces) {
    all.push(...spots(trace, points).flat());
    if (trace.directional) all.push([0, 0]);
  }
  const range = [0, 1].map((axis) => {
    const values = all.map((point) => point[axis]);
    return [Math.min(...values), Math.max(...values)];
  });
  const half = Math.max(...range.map(([low, high]) => (high - low) / 2)) || 1;
  return { x: (range[0][0] + range[0][1]) / 2, y: (range[1][0] + range[1][1]) / 2, half };
}

export class Plane {
  points = [];
  trace = null;
  chosen = null;
  time = 0;
  view = { x: 0, y: 0, half: 1 };
  #size = 400;
  #dots = [];

  constructor(svg) {
    this.svg = svg;
    this.layers = ["grid", "shapes", "ways", "dots", "heads"].map((name) => make("g", { class: name }, svg));
    this.ring = make("circle", { class: "ring", r: 12, visibility: "hidden" }, this.layers[3]);
    follow(svg, (width) => {
      this.#size = width;
      this.draw();
    });
  }

  get #scale() {
    return (this.#size / 2 - PAD) / this.view.half;
  }

  toScreen([x, y]) {
    return [this.#size / 2 + (x - this.view.x) * this.#scale, this.#size / 2 - (y - this.view.y) * this.#scale];
  }

  toPlane(x, y) {
    const inside = (value) => Math.min(this.#size - 8, Math.max(8, value)) - this.#size / 2;
    return [this.view.x + inside(x) / this.#scale, this.view.y - inside(y) / this.#scale];
  }

  // The step at this time, between two iterations if need be.
  #step() {
    const { steps } = this.trace;
    const first = Math.min(Math.floor(this.time), steps.length - 1);
    const share = this.time - first;
    if (share <= 0 || first + 1 >= steps.length) return steps[first];
    const [from, to] = [steps[first], steps[first + 1]];
    const mixed = {};
    for (const name of ["centers", "couplings", "activations", "covariances"]) {
      mixed[name] = from[name] && to[name] ? between(from[name], to[name], share) : null;
    }
    return mixed;
  }

  draw() {
    const step = this.trace ? this.#step() : null;
    this.#drawGrid();
    this.#drawDots(step);
    const [, shapes, ways, , heads] = this.layers;
    for (const layer of [shapes, ways, heads]) layer.replaceChildren();
    if (!step) return;
    if (step.covariances) this.#drawEllipses(step, shapes);
    this.#drawParents(step, ways, heads);
  }

  #drawGrid() {
    const [grid] = this.layers;
    grid.replaceChildren();
    const [x, y] = this.toScreen([0, 0]);
    if (x > 0 && x < this.#size) make("path", { d: `M${x} 0V${this.#size}` }, grid);
    if (y > 0 && y < this.#size) make("path", { d: `M0 ${y}H${this.#size}` }, grid);
  }

  #drawDots(step) {
    const layer = this.layers[3];
    while (this.#dots.length > this.points.length) this.#dots.pop().remove();
    while (this.#dots.length < this.points.length) this.#dots.push(make("circle", { id: `${this.svg.id}-${this.#dots.length}` }, layer));
    const small = this.points.length > 60 ? 4.5 : 6;
    this.points.forEach((point, index) => {
      const [cx, cy] = this.toScreen(point);
      const couplings = step?.couplings[index] ?? [];
      put(this.#dots[index], { cx: cx.toFixed(1), cy: cy.toFixed(1), r: index === this.chosen ? 7 : small, fill: blend(couplings) });
    });
    const shown = this.chosen !== null && this.chosen < this.points.length;
    this.ring.setAttribute("visibility", shown ? "visible" : "hidden");
    if (!shown) return;
    const [cx, cy] = this.toScreen(this.points[this.chosen]);
    put(this.ring, { cx, cy });
  }

  #drawEllipses(step, layer) {
    step.covariances.forEach(([[a, b], [, d]], parent) => {
      const [middle, apart] = [(a + d) / 2, Math.hypot((a - d) / 2, b)];
      const [long, short] = [middle + apart, middle - apart].map((variance) => Math.sqrt(Math.max(0, variance)) * this.#scale);
      const angle = -Math.atan2(2 * b, a - d) * 90 / Math.PI;
      const [x, y] = this.toScreen(step.centers[parent]);
      for (const times of [2, 1]) {
        const size = { rx: times * long, ry: times * short, transform: `translate(${x} ${y}) rotate(${angle})` };
        make("ellipse", { class: `sigma-${times}`, stroke: color(parent), fill: color(parent), ...size }, layer);
      }
    });
  }

  #drawParents(step, ways, heads) {
    const past = spots(this.trace, this.points).slice(0, Math.ceil(this.time));
    const now = this.trace.directional ? tips(step, farthest(this.points)) : step.centers;
    const origin = this.toScreen([0, 0]);
    now.forEach((spot, parent) => {
      const shade = color(parent);
      const way = [...past.map((spots) => spots[parent]), spot].map((place) => this.toScreen(place));
      const [x, y] = way.at(-1);
      if (this.trace.directional) make("path", { class: "arrow", d: `M${origin}L${[x, y]}`, stroke: shade }, ways);
      make("path", { class: "under", d: `M${way.join("L")}` }, ways);
      make("path", { class: "way", d: `M${way.join("L")}`, stroke: shade }, ways);
      for (const [cx, cy] of way.slice(0, -1)) make("circle", { class: "past", cx, cy, r: 2.5, fill: shade }, ways);
      const [px, py] = step.centers[parent];
      const head = make("g", { class: "center", transform: `translate(${x} ${y})`, "data-x": px, "data-y": py }, heads);
      make("circle", { r: 11, stroke: shade }, head);
      make("text", { y: 4.5 }, head, parent + 1);
    });
  }
}
