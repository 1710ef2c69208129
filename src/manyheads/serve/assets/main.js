// The page of the server: its views, its language, and what they share.

import { element } from "./look/elements.js";
import { get, useKey } from "./asking.js";
import { AttentionView } from "./attention.js";
import { LANGUAGES, TEXTS, firstLanguage, remember } from "./texts.js";
import { TrainingView } from "./training.js";
import { TranslateView } from "./translate.js";
import { WalkView } from "./walk.js";

const VIEWS = { translate: TranslateView, attention: AttentionView, walk: WalkView, training: TrainingView };

// What every view knows: the server's models and limits, and the text that is being translated.
class Page {
  constructor() {
    this.language = firstLanguage();
    this.current = { text: "", source: "", target: "", model: "", translation: "" };
    this.views = {};
    this.head = element("header", { class: "top" });
    this.main = element("main", { id: "main", tabindex: -1 });
    document.body.append(this.head, this.main);
    window.addEventListener("hashchange", () => this.show(true));
  }

  get texts() {
    return TEXTS[this.language];
  }

  get view() {
    const asked = location.hash.slice(1);
    return asked in VIEWS ? asked : "translate";
  }

  async start() {
    this.drawHead();
    try {
      [this.settings, this.languages] = await Promise.all([get("frontend/settings"), get("languages")]);
      if (this.settings.keyRequired && !this.models) return this.askForKey();
      await this.open();
    } catch (fault) {
      this.main.replaceChildren(element("p", { role: "alert" }, fault.status ? fault.message : this.texts.unreachable));
    }
  }

  async open() {
    this.models = await get("models");
    const { source, target } = this.settings.language;
    if (!this.current.source) Object.assign(this.current, { source: source.code, target: target.code });
    for (const [name, View] of Object.entries(VIEWS)) this.views[name] = new View(this);
    this.show(false);
  }

  askForKey() {
    const { texts } = this;
    const told = element("p", { role: "alert" });
    const input = element("input", { type: "password", id: "key", autocomplete: "off", required: true });
    const use = async (event) => {
      event.preventDefault();
      useKey(input.value);
      try {
        await this.open();
      } catch (fault) {
        told.textContent = fault.status ? fault.message : texts.unreachable;
      }
    };
    this.main.replaceChildren(
      element(
        "form",
        { class: "key", onsubmit: use },
        element("p", {}, texts.keyNeeded),
        element("label", { for: "key" }, texts.key),
        input,
        element("button", {}, texts.useKey),
        told,
      ),
    );
  }

  drawHead() {
    const { texts } = this;
    document.documentElement.lang = this.language;
    const links = Object.keys(VIEWS).map((name) =>
      element("a", { href: `#${name}`, "aria-current": name === this.view ? "page" : null }, texts.views[name]),
    );
    const options = Object.entries(LANGUAGES).map(([code, name]) =>
      element("option", { value: code, lang: code, selected: code === this.language }, name),
    );
    this.head.replaceChildren(
      element("a", { class: "skip", href: "#main", onclick: (event) => this.skip(event) }, texts.skip),
      element("h1", {}, "Manyheads"),
      element("nav", { "aria-label": texts.navigation }, ...links),
      element(
        "label",
        { class: "page-language" },
        `${texts.pageLanguage} `,
        element("select", { name: "page-language", onchange: (event) => this.speak(event.target.value) }, ...options),
      ),
    );
  }

  skip(event) {
    event.preventDefault();
    this.main.focus();
  }

  speak(language) {
    this.language = language;
    remember(language);
    if (!this.models) return this.start().then(() => this.head.querySelector("select").focus());
    for (const view of Object.values(this.views)) view.built = false;
    this.show(false);
    this.head.querySelector("[name=page-language]").focus();
  }

  show(moved) {
    this.drawHead();
    const view = this.views[this.view];
    if (!view) return;
    for (const [name, other] of Object.entries(this.views)) if (name !== this.view) other.leave?.();
    document.title = `${this.texts.views[this.view]} - Manyheads`;
    if (!view.built) view.build();
    view.built = true;
    this.main.replaceChildren(view.root);
    view.enter?.();
    if (moved) this.main.focus({ preventScroll: true });
  }

  // The models of a pair; the first answers unless another is named.
  modelsOf(source, target) {
    return this.models.filter((one) => one.source === source && one.target === target);
  }
}

new Page().start();
