// What the rooms share: what the server can do, the network in use, its examples, and the image in hand.

import { Newest, ask } from "./ask.js";

const listeners = [];
const examples = new Newest();

export const studio = { hello: null, network: null, examples: [], image: null, drawn: null };

export function listen(listener) {
  listeners.push(listener);
}

function tell(what) {
  for (const listener of listeners) listener(what);
}

export async function begin() {
  studio.hello = await ask("api/hello");
  choose(studio.hello.networks[0].name);
}

export function choose(name) {
  studio.network = studio.hello.networks.find((network) => network.name === name);
  const [, height, width] = studio.network.shape;
  const fits = studio.image && studio.image.height === height && studio.image.width === width;
  if (!fits) studio.image = studio.drawn = null;
  tell("network");
  examples.replace(`api/examples?network=${encodeURIComponent(name)}&count=20`, undefined, (answer) => {
    studio.examples = answer.examples;
    const held = JSON.stringify(studio.image?.pixels);
    const again = studio.examples.findIndex(({ pixels }) => JSON.stringify(pixels) === held);
    if (studio.image && again >= 0) studio.image.example = again;
    tell("examples");
    if (again < 0 && (!studio.image || studio.image.example !== undefined)) take(0);
  });
}

export function take(example) {
  const { pixels, label } = studio.examples[example];
  hold({ pixels, label, example });
}

// An image that the user drew.
export function drew(pixels) {
  studio.drawn = pixels;
  hold({ pixels });
}

function hold(image) {
  const [, height, width] = studio.network.shape;
  studio.image = { ...image, height, width };
  tell("image");
}
