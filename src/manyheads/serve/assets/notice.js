// What happens to a request: progress, success, or an error that looks like one, with a way out of it.

import { element } from "./look/dom.js";
import { errorMessage, get, sleep } from "./api_client.js";

const RECONNECT_DELAYS = [1, 2, 4, 8, 15]; // seconds; the last one repeats

export class Notice {
  constructor(page) {
    this.page = page;
    this.root = element("div", { class: "notice" });
    this.text = element("p", { class: "message", role: "status" });
    this.action = element("span", {});
    this.root.append(this.text, this.action);
  }

  show(text) {
    this.clear();
    this.text.textContent = text;
  }

  // An error, with a button that tries again.
  showError(text, retry) {
    this.clear();
    this.root.classList.add("is-error");
    this.text.textContent = text;
    const { texts } = this.page;
    if (retry) this.action.append(element("button", { type: "button", class: "retry", onclick: retry }, texts.retry));
  }

  // A request failed: the server rejected it, or does not respond.
  showFailure(error, retry) {
    if (!error.status) return this.reconnect(retry);
    this.showError(errorMessage(error, this.page.texts), retry);
  }

  // The server does not respond: asks whether it is back, less and less often, and then tries again.
  async reconnect(retry) {
    this.showError(this.page.texts.unreachable, retry);
    const controller = (this.waiting = new AbortController());
    for (let n = 0; ; n++) {
      const seconds = RECONNECT_DELAYS[Math.min(n, RECONNECT_DELAYS.length - 1)];
      this.text.textContent = `${this.page.texts.unreachable} ${this.page.texts.reconnecting(seconds)}`;
      try {
        await sleep(1000 * seconds, controller.signal);
        await get("health", controller.signal);
        return retry();
      } catch (error) {
        if (error.name === "AbortError") return;
      }
    }
  }

  clear() {
    this.waiting?.abort();
    this.waiting = null;
    this.root.classList.remove("is-error");
    this.action.replaceChildren();
  }
}
