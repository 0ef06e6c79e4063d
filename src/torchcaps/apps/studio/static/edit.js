// Points that are moved, added and removed with mouse, finger and keyboard.

const REACH = { mouse: 12, pen: 14, touch: 24 };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

// actions: choose(index), move(index, point), add(point), remove(index), toggle().
export function edit(plane, actions) {
  const { svg } = plane;
  let dragged = null;
  let pressed = null;

  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  function nearest(x, y, reach) {
    let [best, found] = [reach, null];
    plane.points.forEach((point, index) => {
      const [px, py] = plane.toScreen(point);
      const far = Math.hypot(px - x, py - y);
      if (far < best) [best, found] = [far, index];
    });
    return found;
  }

  // A finger on a point drags it; elsewhere it scrolls the page.
  svg.addEventListener("touchstart", (event) => {
    if (nearest(...place(event.touches[0]), REACH.touch) !== null) event.preventDefault();
  }, { passive: false });

  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    svg.focus({ preventScroll: true });
    const [x, y] = place(event);
    pressed = [x, y];
    dragged = nearest(x, y, REACH[event.pointerType] ?? 14);
    if (dragged === null) return;
    svg.setPointerCapture(event.pointerId);
    actions.choose(dragged);
  });

  svg.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (dragged !== null) actions.move(dragged, plane.toPlane(x, y));
    else svg.classList.toggle("over", nearest(x, y, REACH.mouse) !== null);
  });

  svg.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const clicked = pressed && Math.hypot(x - pressed[0], y - pressed[1]) < 5;
    if (dragged === null && clicked) actions.add(plane.toPlane(x, y));
    dragged = pressed = null;
  });

  svg.addEventListener("pointercancel", () => { dragged = pressed = null; });

  svg.addEventListener("keydown", (event) => {
    const count = plane.points.length;
    const { chosen } = plane;
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key in ARROWS && count) {
      const index = chosen ?? 0;
      const step = plane.view.half * (event.shiftKey ? 0.1 : 0.02);
      const [x, y] = plane.points[index];
      if (chosen === null) actions.choose(0);
      actions.move(index, [x + ARROWS[key][0] * step, y + ARROWS[key][1] * step]);
    } else if (key === "]" || key === "n") {
      actions.choose(chosen === null ? 0 : (chosen + 1) % count);
    } else if (key === "[" || key === "p") {
      actions.choose(chosen === null ? count - 1 : (chosen + count - 1) % count);
    } else if ((key === "Delete" || key === "Backspace") && chosen !== null) {
      actions.remove(chosen);
    } else if (key === "Enter" || key === "Insert") {
      const [x, y] = chosen === null ? [plane.view.x, plane.view.y] : plane.points[chosen];
      actions.add([x + plane.view.half * 0.06, y]);
    } else if (key === "Escape") {
      actions.choose(null);
    } else if (key === " ") {
      actions.toggle();
    } else {
      return;
    }
    event.preventDefault();
  });
}
