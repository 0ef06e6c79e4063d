// What the pictures share: SVG, colors, numbers, and images painted from lists of numbers.

const SPACE = "http://www.w3.org/2000/svg";

export function make(name, attributes = {}, parent = null, text = null) {
  const element = document.createElementNS(SPACE, name);
  put(element, attributes);
  if (text !== null) element.textContent = text;
  parent?.append(element);
  return element;
}

export function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

export function html(name, attributes = {}, parent = null, text = null) {
  const element = document.createElement(name);
  put(element, attributes);
  if (text !== null) element.textContent = text;
  parent?.append(element);
  return element;
}

export function copy(id) {
  return document.getElementById(id).content.cloneNode(true);
}

// One unit of an SVG is one pixel of the screen, whatever its size.
export function follow(svg, redraw) {
  let before = "";
  new ResizeObserver(() => {
    const { width, height } = svg.getBoundingClientRect();
    const now = `${width} ${height}`;
    if (!width || now === before) return;
    before = now;
    put(svg, { viewBox: `0 0 ${width} ${height}` });
    redraw(width, height);
  }).observe(svg);
}

// Colors are those of the style sheet, so that they follow day and night.
let known = null;
export const night = matchMedia("(prefers-color-scheme: dark)");
night.addEventListener("change", () => { known = null; });

function colors() {
  if (known) return known;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
  known = { nobody: read("--nobody"), parents: [0, 1, 2, 3, 4, 5, 6, 7].map((number) => read(`--parent-${number}`)) };
  return known;
}

export function color(parent) {
  return `rgb(${colors().parents[parent % 8].join(" ")})`;
}

// The colors of the parents, mixed by couplings; a share that is nobody's is gray.
export function blend(couplings) {
  const { nobody, parents } = colors();
  const rest = Math.max(0, 1 - couplings.reduce((sum, share) => sum + share, 0));
  const mixed = [0, 1, 2].map((channel) =>
    couplings.reduce((sum, share, parent) => sum + share * parents[parent % 8][channel], rest * nobody[channel]));
  return `rgb(${mixed.map((value) => Math.round(Math.min(255, Math.max(0, value)))).join(" ")})`;
}

export function between(a, b, share) {
  return typeof a === "number" ? a + share * (b - a) : a.map((value, index) => between(value, b[index], share));
}

export function number(value, digits = 2) {
  return value.toFixed(digits).replace("-", "−");
}

// An image is rows of pixels from 0 to 255, or a list of channels of such rows: three are colors, else the first is shown.
export function channels(pixels) {
  return Array.isArray(pixels[0][0]) ? pixels : [pixels];
}

export function picture(pixels, tint = null) {
  const planes = channels(pixels);
  const [height, width] = [planes[0].length, planes[0][0].length];
  const canvas = html("canvas", { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const rgb = [0, 1, 2].map((channel) => planes[planes.length === 3 ? channel : 0][y][x]);
      const strength = tint ? Math.min(1, tint[y][x] / 255) : 0;
      const mixed = tint ? rgb.map((value, channel) => 0.45 * value * (1 - strength) + strength * [240, 170, 40][channel]) : rgb;
      image.data.set([...mixed, 255], 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The same, larger and smooth.
export function paint(canvas, pixels, times = 10) {
  const small = picture(pixels);
  put(canvas, { width: small.width * times, height: small.height * times });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}
