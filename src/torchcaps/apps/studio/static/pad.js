// Paper and a soft pen. What is drawn is kept as lines, so that it can be drawn again at the size and place of MNIST's
// digits: scaled to a box of 20 of 28 pixels, with the center of mass in the middle.

import { channels, html, picture, put } from "./shapes.js";

const BOX = 20 / 28;
const LINE = 1.8 / 28; // the width of the pen
// Widths and strengths that together make a soft edge.
const SOFT = Array.from({ length: 10 }, (_, step) => [1.75 - 0.1 * step, step === 9 ? 1 : 0.22]);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function ink(context, lines, side, scale, dx, dy) {
  context.lineCap = context.lineJoin = "round";
  for (const line of lines) {
    const places = line.map(([x, y]) => [x * scale + dx, y * scale + dy]);
    for (const [wide, strength] of SOFT) {
      context.lineWidth = LINE * side * wide;
      context.strokeStyle = `rgb(255 255 255 / ${strength})`;
      context.beginPath();
      context.moveTo(...places[0]);
      for (let at = 1; at < places.length - 1; at++) {
        const middle = [0, 1].map((axis) => (places[at][axis] + places[at + 1][axis]) / 2);
        context.quadraticCurveTo(...places[at], ...middle);
      }
      const [x, y] = places.at(-1);
      context.lineTo(x + 1e-3, y); // a line of no length, a dot, would not be drawn by every browser
      context.stroke();
    }
  }
}

function gray(context, width, height) {
  const { data } = context.getImageData(0, 0, width, height);
  return Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => data[4 * (y * width + x)]));
}

function centerOfMass(rows) {
  let [mass, across, down] = [0, 0, 0];
  rows.forEach((row, y) => row.forEach((value, x) => {
    mass += value;
    across += value * (x + 0.5);
    down += value * (y + 0.5);
  }));
  return mass ? [across / mass, down / mass] : null;
}

export class Pad {
  lines = [];
  under = null; // an example that one draws on
  pen = null; // where the keyboard's pen is, in shares of the side
  #down = false;

  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { this.#down = false; });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => {
      this.pen = null;
      this.draw();
    });
  }

  size([count, height, width]) {
    [this.count, this.height, this.width] = [count, height, width];
    put(this.canvas, { width: width * 20, height: height * 20 });
  }

  clear() {
    this.lines = [];
    this.under = null;
    this.draw();
  }

  show(pixels) {
    this.lines = [];
    this.under = pixels;
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const context = canvas.getContext("2d");
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingQuality = "high";
    if (this.under) context.drawImage(picture(this.under), 0, 0, canvas.width, canvas.height);
    ink(context, this.lines, canvas.width, canvas.width, 0, 0);
    if (!this.pen) return;
    context.lineWidth = 3;
    context.strokeStyle = this.#down ? "#e69f00" : "#56b4e9";
    context.beginPath();
    context.arc(this.pen[0] * canvas.width, this.pen[1] * canvas.width, 14, 0, 7);
    context.stroke();
  }

  // The image for the network; null if there is nothing.
  pixels() {
    if (!this.lines.length) return this.under;
    const { width, height } = this;
    const context = html("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
    const fill = (scale, dx, dy) => {
      context.globalCompositeOperation = "source-over";
      context.fillStyle = "#000";
      context.fillRect(0, 0, width, height);
      if (this.under) context.drawImage(picture(this.under), 0, 0);
      ink(context, this.lines, width, scale, dx, dy);
      return gray(context, width, height);
    };
    if (this.under) return this.#all(fill(width, 0, 0));
    const flat = this.lines.flat();
    const range = [0, 1].map((axis) => flat.map((place) => place[axis])).map((values) => [Math.min(...values), Math.max(...values)]);
    const long = Math.max(...range.map(([low, high]) => high - low));
    const scale = long > 0.05 ? (BOX * Math.min(width, height) - LINE * width) / long : width;
    const [dx, dy] = range.map(([low, high], axis) => [width, height][axis] / 2 - scale * (low + high) / 2);
    const middle = centerOfMass(fill(scale, dx, dy)) ?? [width / 2, height / 2];
    return this.#all(fill(scale, dx + width / 2 - middle[0], dy + height / 2 - middle[1]));
  }

  #all(rows) {
    return this.count === 1 ? rows : channels(rows).concat(Array(this.count - 1).fill(rows));
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.width];
  }

  #press(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.#down = true;
    this.pen = null;
    this.lines.push([this.#place(event)]);
    this.#told();
  }

  #move(event) {
    if (!this.#down || !event.buttons) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) this.lines.at(-1).push(this.#place(each));
    this.#told();
  }

  #key(event) {
    const { key } = event;
    if (key in ARROWS) {
      const step = event.shiftKey ? 0.1 : 0.025;
      const from = this.pen ?? [0.5, 0.5];
      this.pen = from.map((value, axis) => Math.min(0.97, Math.max(0.03, value + step * ARROWS[key][axis])));
      if (this.#down) this.lines.at(-1).push(this.pen);
      this.#told(this.#down);
    } else if (key === " ") {
      this.pen ??= [0.5, 0.5];
      this.#down = !this.#down;
      if (this.#down) this.lines.push([this.pen]);
      this.#told(this.#down);
    } else if (key === "Delete" || key === "Backspace") {
      this.clear();
      this.changed(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  #told(inked = true) {
    this.draw();
    if (inked) this.changed(this.pixels());
  }
}
