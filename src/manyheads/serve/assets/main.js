// The page of the server: its views, its language and the state that they share.

import { element } from "./look/dom.js";
import { LANGUAGES } from "./look/page_languages.js";
import { get, setApiKey } from "./api_client.js";
import { AttentionView } from "./attention_view.js";
import { Notice } from "./notice.js";
import { loadLanguage, saveLanguage } from "./page_language.js";
import { THEMES, applyTheme, loadTheme, saveTheme } from "./page_theme.js";
import { readLink } from "./shared_link.js";
import { TEXTS } from "./texts.js";
import { TrainingView } from "./training_view.js";
import { TranslateView } from "./translate_view.js";
import { WalkView } from "./walk_view.js";

const VIEWS = { translate: TranslateView, attention: AttentionView, walk: WalkView, training: TrainingView };

// Holds the models and limits of the server, and the text that is being translated.
class Page {
  constructor() {
    this.language = loadLanguage();
    applyTheme(loadTheme());
    this.current = { text: "", source: "", target: "", model: "", translation: "" };
    this.views = {};
    this.header = element("header", { class: "top" });
    this.main = element("main", { id: "main", tabindex: -1 });
    document.body.append(this.header, this.main);
    window.addEventListener("hashchange", () => this.openLink() || this.show(true));
  }

  get texts() {
    return TEXTS[this.language];
  }

  get view() {
    const { view } = readLink(location.hash);
    return view in VIEWS ? view : "translate";
  }

  async start() {
    this.drawHeader();
    try {
      [this.settings, this.languages] = await Promise.all([get("frontend/settings"), get("languages")]);
      if (this.settings.keyRequired && !this.models) return this.requestKey();
      await this.open();
    } catch (error) {
      this.showStartError(error);
    }
  }

  // The server is not there: the page tries again when it is back.
  showStartError(error) {
    const notice = new Notice(this);
    this.main.replaceChildren(notice.root);
    if (error.status) notice.showError(error.message, () => this.start());
    else notice.reconnect(() => this.start());
  }

  // Takes the text and languages of a link; returns whether there was one.
  openLink() {
    const { text, source, target } = readLink(location.hash);
    if (text === undefined || !this.models) return false;
    history.replaceState(null, "", "#translate");
    const { translate } = this.views;
    this.show(false);
    if (source === "auto" || this.modelsFor(source, target).length) translate.setLanguages(source, target);
    translate.setText(text);
    return true;
  }

  async open() {
    this.models = await get("models");
    const { source, target } = this.settings.language;
    if (!this.current.source) Object.assign(this.current, { source: source.code, target: target.code });
    for (const [name, View] of Object.entries(VIEWS)) this.views[name] = new View(this);
    if (!this.openLink()) this.show(false);
  }

  requestKey() {
    const { texts } = this;
    const alert = element("p", { role: "alert" });
    const input = element("input", { type: "password", id: "key", autocomplete: "off", required: true });
    const submit = async (event) => {
      event.preventDefault();
      setApiKey(input.value);
      try {
        await this.open();
      } catch (error) {
        alert.textContent = error.status ? error.message : texts.unreachable;
      }
    };
    this.main.replaceChildren(
      element(
        "form",
        { class: "key", onsubmit: submit },
        element("p", {}, texts.keyNeeded),
        element("label", { for: "key" }, texts.key),
        input,
        element("button", {}, texts.useKey),
        alert,
      ),
    );
  }

  drawHeader() {
    const { texts } = this;
    document.documentElement.lang = this.language;
    const links = Object.keys(VIEWS).map((name) =>
      element("a", { href: `#${name}`, "aria-current": name === this.view ? "page" : null }, texts.views[name]),
    );
    const options = Object.entries(LANGUAGES).map(([code, name]) =>
      element("option", { value: code, lang: code, selected: code === this.language }, name),
    );
    const onchange = (event) => this.setLanguage(event.target.value);
    const themes = THEMES.map((theme) =>
      element("option", { value: theme, selected: theme === loadTheme() }, texts.themes[theme]),
    );
    const setTheme = (event) => this.setTheme(event.target.value);
    this.header.replaceChildren(
      element("a", { class: "skip", href: "#main", onclick: (event) => this.skipToContent(event) }, texts.skip),
      element("h1", {}, "Manyheads"),
      element("nav", { "aria-label": texts.navigation }, ...links),
      element(
        "label",
        { class: "page-theme" },
        element("span", { class: "label" }, `${texts.theme} `),
        element("select", { name: "page-theme", "aria-label": texts.theme, onchange: setTheme }, ...themes),
      ),
      element(
        "label",
        { class: "page-language" },
        element("span", { class: "label" }, `${texts.pageLanguage} `),
        element("select", { name: "page-language", "aria-label": texts.pageLanguage, onchange }, ...options),
      ),
    );
  }

  skipToContent(event) {
    event.preventDefault();
    this.main.focus();
  }

  // Pictures are drawn again, in the colors of the theme.
  setTheme(theme) {
    saveTheme(theme);
    applyTheme(theme);
    if (!this.models) return;
    for (const view of Object.values(this.views)) view.isBuilt = false;
    this.show(false);
    this.header.querySelector("[name=page-theme]").focus();
  }

  setLanguage(language) {
    this.language = language;
    saveLanguage(language);
    if (!this.models) return this.start().then(() => this.header.querySelector("select").focus());
    for (const view of Object.values(this.views)) view.isBuilt = false;
    this.show(false);
    this.header.querySelector("[name=page-language]").focus();
  }

  show(moveFocus) {
    this.drawHeader();
    const view = this.views[this.view];
    if (!view) return;
    for (const [name, other] of Object.entries(this.views)) if (name !== this.view) other.leave?.();
    document.title = `${this.texts.views[this.view]} - Manyheads`;
    if (!view.isBuilt) view.build();
    view.isBuilt = true;
    this.main.replaceChildren(view.root);
    view.enter?.();
    if (moveFocus) this.main.focus({ preventScroll: true });
  }

  // The models of a language pair; the first is used unless another is named.
  modelsFor(source, target) {
    return this.models.filter((model) => model.source === source && model.target === target);
  }
}

new Page().start();
