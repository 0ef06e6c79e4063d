// Questions to the server. Its mistakes and ours are told in one sentence at the top of the page.

export async function ask(path, body, signal) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Start torchcaps studio again, then reload this page.");
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (!response.ok) throw new Error(answer.error || `The server said ${response.status}.`);
  return answer;
}

export function complain(message) {
  const place = document.getElementById("alert");
  place.textContent = message || "";
  place.hidden = !message;
}

// One question in flight, and the newest one waiting. An older question that already runs may still be answered, so that
// a picture follows a drag; `replace` drops it, for when its answer would be of no use.
export class Newest {
  #running = null;
  #waiting = null;

  ask(path, body, use) {
    this.#waiting = { path, body, use };
    if (!this.#running) this.#next();
  }

  replace(path, body, use) {
    this.drop();
    this.ask(path, body, use);
  }

  drop() {
    this.#running?.abort();
    this.#running = this.#waiting = null;
  }

  async #next() {
    const { path, body, use } = this.#waiting;
    const control = new AbortController();
    this.#waiting = null;
    this.#running = control;
    let answer = null;
    try {
      answer = await ask(path, body, control.signal);
      complain("");
    } catch (error) {
      if (error.name !== "AbortError") complain(error.message);
    }
    if (this.#running !== control) return;
    this.#running = null;
    if (this.#waiting) this.#next();
    if (answer) use(answer);
  }
}
