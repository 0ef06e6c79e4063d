// A row of example images to choose from, the same in every room that needs an image.

import { html, paint } from "./shapes.js";
import { drew, listen, studio, take } from "./store.js";

export function picker(place) {
  const card = html("div", { class: "card strip", role: "group", "aria-label": "Example images" }, place);
  let own = null;

  function thumb(pixels, name, press) {
    const button = html("button", { class: "thumb", "aria-label": name, title: name, "aria-pressed": "false" }, card);
    paint(html("canvas", { class: "ink" }, button), pixels, 3);
    button.addEventListener("click", press);
    return button;
  }

  function rebuild() {
    card.replaceChildren();
    own = null;
    studio.examples.forEach(({ pixels, label }, index) => thumb(pixels, `example of ${label}`, () => take(index)));
  }

  function mark() {
    if (studio.drawn && !own) {
      own = thumb(studio.drawn, "your drawing", () => drew(studio.drawn));
      card.prepend(own);
    } else if (studio.drawn) {
      paint(own.firstChild, studio.drawn, 3);
    }
    const chosen = studio.image?.example;
    const offset = own ? 1 : 0;
    [...card.children].forEach((button, index) => {
      const pressed = chosen === undefined ? button === own : index - offset === chosen;
      button.setAttribute("aria-pressed", String(pressed));
    });
  }

  listen((what) => {
    if (what === "examples") rebuild();
    if (studio.image) mark();
  });
}
