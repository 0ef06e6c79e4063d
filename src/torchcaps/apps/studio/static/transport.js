// Play, pause, step and scrub through iterations. Time runs from 0 to count - 1, between iterations while a step is shown.

import { copy } from "./shapes.js";

const STEP = 550;
const HOLD = 350;
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Transport {
  time = 0;
  count = 1;
  #target = 0;
  #playing = false;
  #frame = 0;
  #timer = 0;

  constructor(place, show) {
    place.append(copy("transport"));
    this.show = show;
    const find = (name) => place.querySelector(name);
    [this.back, this.key, this.forth, this.scrub, this.when] = [".back", ".play", ".forth", ".scrub", ".when"].map(find);
    this.back.addEventListener("click", () => this.step(-1));
    this.forth.addEventListener("click", () => this.step(1));
    this.key.addEventListener("click", () => this.toggle());
    this.scrub.addEventListener("input", () => this.go(this.scrub.value - 1));
    this.#label();
  }

  resize(count) {
    this.count = count;
    this.scrub.max = count;
    if (this.#target > count - 1) this.go(count - 1);
    this.#label();
  }

  go(time) {
    this.pause();
    this.#jump(time);
  }

  step(by) {
    this.pause();
    this.#glide(Math.min(this.count - 1, Math.max(0, this.#target + by)));
  }

  toggle() {
    if (this.#playing) this.pause();
    else this.play();
  }

  play() {
    if (this.count < 2) return;
    if (this.#target === this.count - 1) this.#jump(0);
    this.#playing = true;
    this.#label();
    this.#timer = setTimeout(() => this.#advance(), HOLD);
  }

  pause() {
    clearTimeout(this.#timer);
    this.#playing = false;
    this.#label();
  }

  #advance() {
    this.#glide(this.#target + 1, () => {
      if (!this.#playing) return;
      if (this.#target >= this.count - 1) this.pause();
      else this.#timer = setTimeout(() => this.#advance(), HOLD);
    });
  }

  #jump(time) {
    cancelAnimationFrame(this.#frame);
    this.time = this.#target = time;
    this.#label();
    this.show(time);
  }

  #glide(target, after = () => {}) {
    if (still.matches) {
      this.#jump(target);
      this.#timer = setTimeout(after, this.#playing ? STEP : 0);
      return;
    }
    cancelAnimationFrame(this.#frame);
    const [start, from] = [performance.now(), this.time];
    this.#target = target;
    this.#label();
    const move = (now) => {
      const share = Math.min(1, Math.max(0, (now - start) / STEP));
      const eased = share * share * (3 - 2 * share);
      this.time = share === 1 ? target : from + eased * (target - from);
      this.show(this.time);
      if (share < 1) this.#frame = requestAnimationFrame(move);
      else after();
    };
    this.#frame = requestAnimationFrame(move);
  }

  #label() {
    const [now, last] = [this.#target + 1, this.count];
    this.scrub.value = now;
    this.scrub.setAttribute("aria-valuetext", `iteration ${now} of ${last}`);
    this.scrub.style.setProperty("--share", last > 1 ? (now - 1) / (last - 1) : 1);
    this.when.textContent = `iteration ${now} of ${last}`;
    this.key.textContent = this.#playing ? "Pause" : "Play";
    this.back.setAttribute("aria-disabled", String(now <= 1));
    this.forth.setAttribute("aria-disabled", String(now >= last));
    this.key.disabled = this.scrub.disabled = last < 2;
  }
}
