// A form for the options of a routing, made from what the server tells of them.

import { html } from "./shapes.js";

let forms = 0;

const title = (name) => name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");

export function optionForm(place, options, changed) {
  const values = {};
  forms += 1;
  place.replaceChildren();
  if (!options.length) html("p", { class: "soft" }, place, "This routing has no options.");
  for (const option of options) {
    const id = `option-${forms}-${option.name}`;
    const field = html("div", { class: `field ${option.type}` }, place);
    const label = html("label", { for: id }, field, title(option.name));
    const tell = (value) => {
      values[option.name] = value;
      changed(values);
    };
    if (option.type === "choice") addChoice(field, id, option, tell);
    else if (option.type === "flag") addFlag(field, id, option, tell);
    else addNumber(field, label, id, option, tell);
    const input = field.querySelector("input, select");
    if (option.text) {
      html("small", { id: `${id}-text` }, field, option.text);
      input.setAttribute("aria-describedby", `${id}-text`);
    }
  }
}

function addChoice(field, id, option, tell) {
  const select = html("select", { id }, field);
  for (const choice of option.choices) html("option", { value: choice }, select, choice);
  select.value = option.default;
  select.addEventListener("change", () => tell(option.choices.find((choice) => String(choice) === select.value)));
}

function addFlag(field, id, option, tell) {
  const box = html("input", { id, type: "checkbox" });
  box.checked = Boolean(option.default);
  field.prepend(box);
  box.addEventListener("change", () => tell(box.checked));
}

function addNumber(field, label, id, option, tell) {
  const bounded = option.low !== null && option.low !== undefined && option.high !== null && option.high !== undefined;
  const limits = { min: option.low ?? "", max: option.high ?? "", step: option.step ?? "any" };
  const input = html("input", { id, type: bounded ? "range" : "number", ...limits }, field);
  input.value = option.default ?? option.low ?? "";
  if (bounded) {
    const output = html("output", { for: id }, label);
    const show = () => {
      output.textContent = ` ${Number(input.value)}`;
      input.style.setProperty("--share", (input.value - option.low) / (option.high - option.low));
    };
    input.addEventListener("input", show);
    show();
  }
  input.addEventListener("input", () => {
    if (input.value !== "" && input.validity.valid) tell(Number(input.value));
  });
}
