// The objective after each iteration, with a mark at the time shown.

import { between, follow, make, number } from "./shapes.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [12, 12, 12, 24];

export class Curve {
  values = [];
  time = 0;

  constructor(svg, pick) {
    this.svg = svg;
    this.pick = pick;
    follow(svg, (width, height) => {
      this.size = [width, height];
      this.draw();
    });
    svg.addEventListener("click", (event) => {
      const { left, width } = svg.getBoundingClientRect();
      const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
      const last = this.values.length - 1;
      if (last > 0) this.pick(Math.round(Math.min(1, Math.max(0, share)) * last));
    });
  }

  get known() {
    return this.values.length > 0 && this.values.every((value) => value !== null && Number.isFinite(value));
  }

  at(time) {
    const first = Math.min(Math.floor(time), this.values.length - 1);
    return between(this.values[first], this.values[Math.min(first + 1, this.values.length - 1)], time - first);
  }

  draw() {
    this.svg.replaceChildren();
    if (!this.size) return;
    const [width, height] = this.size;
    if (!this.known) {
      make("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, this.svg, this.values.length ? "no objective is known for this one" : "");
      return;
    }
    const last = Math.max(1, this.values.length - 1);
    const [low, high] = [Math.min(...this.values), Math.max(...this.values)];
    const x = (time) => LEFT + (time / last) * (width - LEFT - RIGHT);
    const y = (value) => (high > low ? TOP + ((high - value) / (high - low)) * (height - TOP - BOTTOM) : height / 2);
    make("path", { class: "axis", d: `M${LEFT} ${height - BOTTOM + 8}H${width - RIGHT}` }, this.svg);
    make("text", { x: LEFT, y: height - 3 }, this.svg, "1");
    make("text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, this.svg, this.values.length);
    const places = this.values.map((value, time) => [x(time), y(value)]);
    make("path", { class: "line", d: `M${places.join("L")}` }, this.svg);
    for (const [cx, cy] of places) make("circle", { class: "tick", cx, cy, r: 3 }, this.svg);
    const time = Math.min(this.time, this.values.length - 1);
    make("circle", { class: "mark", cx: x(time), cy: y(this.at(time)), r: 6 }, this.svg);
  }

  get words() {
    return this.known ? number(this.at(Math.min(this.time, this.values.length - 1))) : "";
  }
}
