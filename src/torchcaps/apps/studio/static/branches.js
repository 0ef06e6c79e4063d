// Where the nodes of a tree stand: parts on the image (or as small pictures beside it), classes at the far end, and what
// is between in between. On wide screens the tree grows to the right, on narrow ones it grows down.

const EDGE = 12;
const HEAD = 20; // room for captions above a tree that grows to the right

// Parts that share a place stand in a small ring around it.
function onImage(parts, left, top, scale) {
  const places = new Map();
  for (const part of parts) {
    const key = `${part.x},${part.y}`;
    places.set(key, [...(places.get(key) ?? []), part]);
  }
  const spots = new Map();
  for (const group of places.values()) {
    group.forEach((part, index) => {
      const ring = group.length > 1 ? 9 : 0;
      const angle = (2 * Math.PI * index) / group.length;
      spots.set(part.id, [left + part.x * scale + ring * Math.cos(angle), top + part.y * scale + ring * Math.sin(angle)]);
    });
  }
  return spots;
}

const spread = (count, start, end) =>
  Array.from({ length: count }, (_, index) => start + ((index + 0.5) / count) * (end - start));

// The frame: { width, height, image: {x, y, width, height}, thumb, spots: Map(id -> [x, y]), classes: Map(label -> [x, y]), ... }
export function layout(nodes, labels, names, shape, width) {
  const [, rows, columns] = shape;
  const down = width < 640;
  const parts = nodes.filter((node) => node.kind === "part");
  const placed = parts.some((part) => part.x !== null);
  const middles = [...new Set(nodes.filter((node) => node.kind === "middle").map((node) => node.layer))].sort((a, b) => a - b);
  const size = down
    ? { width: placed ? Math.min(width - 2 * EDGE, 320) : 144 }
    : { width: placed ? Math.min(0.52 * width, 440) : Math.min(0.3 * width, 264) };
  size.height = (size.width * rows) / columns;
  const classSpan = down ? 0 : Math.max(placed ? size.height : 0, labels.length * 40, placed ? 0 : parts.length * 48);
  const image = down
    ? { ...size, x: (width - size.width) / 2, y: EDGE }
    : { ...size, x: 0, y: HEAD + (classSpan - size.height) / 2 };

  const spots = new Map();
  const classes = new Map();
  const captions = [[image.x + image.width / 2, placed ? "parts, where they look" : "image"]];
  const thumb = placed ? 0 : down ? Math.min(40, (width - 2 * EDGE) / parts.length - 4) : 40;
  let near = down ? image.y + image.height : image.x + image.width; // how far the tree has grown
  if (placed) {
    for (const [id, spot] of onImage(parts, image.x, image.y, size.width / columns)) spots.set(id, spot);
  } else {
    near += down ? 24 + thumb : 48 + thumb;
    captions.push([near - thumb / 2, "parts"]);
    const across = down ? spread(parts.length, EDGE, width - EDGE) : spread(parts.length, HEAD, HEAD + classSpan);
    const order = [...parts].sort((a, b) => b.activation - a.activation);
    order.forEach((part, index) => spots.set(part.id, down ? [across[index], near - thumb / 2] : [near - thumb / 2, across[index]]));
  }

  const longest = Math.max(...names.map((name) => name.length));
  const classWidth = 120 + Math.max(32, 9 * longest);
  const far = down ? near + 144 + 72 * middles.length : width - classWidth - 4;
  if (middles.length) captions.push([(near + far) / 2, "between"]);
  middles.forEach((layer, index) => {
    const along = near + ((index + 1) / (middles.length + 1)) * (far - near);
    const row = nodes.filter((node) => node.layer === layer && node.kind === "middle");
    const axis = down ? "x" : "y";
    row.sort((a, b) => (a[axis] ?? 0) - (b[axis] ?? 0) || a.id - b.id);
    const across = down ? spread(row.length, EDGE, width - EDGE) : spread(row.length, HEAD, HEAD + classSpan);
    row.forEach((node, place) => spots.set(node.id, down ? [across[place], along] : [along, across[place]]));
  });
  const across = down ? spread(labels.length, EDGE / 2, width - EDGE / 2) : spread(labels.length, HEAD, HEAD + classSpan);
  labels.forEach((label, index) => classes.set(label, down ? [across[index], far] : [far, across[index]]));
  for (const node of nodes) if (node.kind === "class") spots.set(node.id, classes.get(node.index));
  captions.push([far + classWidth / 2, "classes"]);
  const height = down ? far + 104 : classSpan + HEAD;
  return { down, placed, image, thumb, spots, classes, classWidth, captions, width, height };
}

// A line that leaves its part and reaches its whole along the way the tree grows.
export function bend([x, y], [u, v], down) {
  const reach = Math.max(24, (down ? v - y : u - x) * 0.5);
  return down ? `M${x} ${y}C${x} ${y + reach} ${u} ${v - reach} ${u} ${v}` : `M${x} ${y}C${x + reach} ${y} ${u - reach} ${v} ${u} ${v}`;
}
