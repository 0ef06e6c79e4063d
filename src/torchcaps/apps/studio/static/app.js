// The frame of the page: rooms as tabs, the network in use, and what happens when either changes.

import { complain } from "./ask.js";
import { openClusters } from "./clusters.js";
import { openDigit } from "./digit.js";
import { picker } from "./picker.js";
import { html } from "./shapes.js";
import { begin, choose, listen, studio } from "./store.js";
import { openTree } from "./tree.js";

const ROOMS = { clusters: openClusters, digit: openDigit, tree: openTree };
const names = Object.keys(ROOMS);
const open = {};
const late = new Set(); // rooms that have not heard of the last change
const tab = (name) => document.getElementById(`tab-${name}`);
let room = "";

function enter(name, focus = false) {
  room = names.includes(name) ? name : names[0];
  for (const each of names) {
    const here = each === room;
    tab(each).setAttribute("aria-selected", String(here));
    tab(each).tabIndex = here ? 0 : -1;
    document.getElementById(`room-${each}`).hidden = !here;
  }
  document.title = `${tab(room).textContent} · torchcaps studio`;
  if (focus) tab(room).focus();
  open[room] ??= ROOMS[room]();
  if (late.delete(room)) open[room].changed("network");
}

function changed(what) {
  if (what === "examples") return;
  for (const name of names) {
    if (name === room) open[name]?.changed(what);
    else late.add(name);
  }
  describe();
}

function describe() {
  const select = document.getElementById("network");
  select.value = studio.network.name;
  const { accuracy, shape } = studio.network;
  document.documentElement.style.setProperty("--aspect", `${shape[2]} / ${shape[1]}`);
  select.title = accuracy === null ? "" : `${(100 * accuracy).toFixed(2)} % right on the test part`;
}

const TURNS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function listenToKeys() {
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const at = names.indexOf(room);
    const goal = event.key === "Home" ? 0 : event.key === "End" ? names.length - 1 : at + (TURNS[event.key] ?? NaN);
    if (Number.isNaN(goal)) return;
    event.preventDefault();
    go(names[(goal + names.length) % names.length], true);
  });
  for (const name of names) tab(name).addEventListener("click", () => go(name));
  window.addEventListener("hashchange", () => {
    if (names.includes(location.hash.slice(1))) enter(location.hash.slice(1));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target !== document.body) return;
    event.preventDefault();
    open[room]?.toggle?.();
  });
}

function go(name, focus = false) {
  history.pushState(null, "", `#${name}`);
  enter(name, focus);
}

async function start() {
  for (const place of document.querySelectorAll(".picker")) picker(place);
  listen(changed);
  try {
    await begin();
  } catch (error) {
    complain(error.message);
    return;
  }
  const select = document.getElementById("network");
  for (const { name, title } of studio.hello.networks) html("option", { value: name }, select, title);
  select.addEventListener("change", () => choose(select.value));
  listenToKeys();
  enter(location.hash.slice(1));
  describe();
}

start();
