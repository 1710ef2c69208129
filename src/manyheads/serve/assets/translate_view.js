// The translate view: languages, the text, its translation as it is typed, and files.

import { element } from "./look/dom.js";
import { post, retryWhileBusy, sleep } from "./api_client.js";
import { FileTranslation } from "./file_translation.js";
import { languageName } from "./page_language.js";
import { TranslationResult } from "./translation_result.js";

const CONFIDENT_DETECTION = 80; // percent, of another language
const UNLIKELY_SOURCE = 5; // percent at most, of the source language

export class TranslateView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "translate-view" });
    this.sourceLanguage = page.current.source; // or auto
    this.numAlternatives = Math.min(3, page.settings.alternativesLimit);
    this.controller = new AbortController();
    this.result = new TranslationResult(page, () => this.translate());
    this.files = new FileTranslation(page, () => ({
      source: this.sourceLanguage,
      target: page.current.target,
      ...this.modelOption(),
    }));
  }

  // ---- layout

  build() {
    const { texts, current, settings } = this.page;
    const parts = (this.parts = {
      from: element("select", { name: "from", onchange: () => this.selectLanguages() }),
      to: element("select", { name: "to", onchange: () => this.selectLanguages() }),
      model: element("select", { name: "model", onchange: () => this.selectLanguages() }),
      swap: element(
        "button",
        { type: "button", class: "swap", "aria-label": texts.swap, onclick: () => this.swapLanguages() },
        "⇄",
      ),
      detected: element("span", { class: "quiet detected" }),
      input: element("textarea", {
        id: "source-text",
        rows: 6,
        placeholder: texts.placeholder,
        oninput: () => this.handleInput(),
      }),
      count: element("span", { class: "quiet count" }),
      hint: element("p", { class: "quiet language-hint", role: "status" }),
      message: element("p", { class: "message", role: "status" }),
      numAlternatives: element("select", { name: "alternatives", onchange: (event) => this.selectNumber(event) }),
    });
    parts.input.value = current.text;
    const counts = Array.from({ length: settings.alternativesLimit + 1 }, (_, n) =>
      element("option", { value: n, selected: n === this.numAlternatives }, String(n)),
    );
    parts.numAlternatives.append(...counts);
    const result = this.result.build((message) => (parts.message.textContent = message));
    this.root.replaceChildren(
      element("h2", { class: "visually-hidden" }, texts.views.translate),
      this.createLanguageRow(),
      element("div", { class: "boxes" }, this.createInputBox(), result.box),
      parts.message,
      result.announcement,
      result.alignment,
      element(
        "section",
        { class: "alternatives", "aria-label": texts.alternatives },
        element("h3", {}, texts.alternatives),
        createLabel("alternatives-count quiet", texts.alternativesCount, parts.numAlternatives),
        result.alternatives,
        result.noAlternatives,
      ),
      this.files.build(),
    );
    this.updateLanguages();
    this.countCharacters();
    this.showResult(false);
  }

  createLanguageRow() {
    const { texts } = this.page;
    const { from, swap, to, model, detected } = this.parts;
    return element(
      "div",
      { class: "choices-row" },
      createLabel("from", texts.from, from),
      swap,
      createLabel("to", texts.to, to),
      createLabel("model", texts.model, model),
      detected,
    );
  }

  createInputBox() {
    const { input, count, hint } = this.parts;
    const label = element("label", { class: "name", for: "source-text" }, this.page.texts.source);
    return element("div", { class: "box" }, label, input, count, hint);
  }

  updateLanguages() {
    const { languages, current, language, texts } = this.page;
    const { from, to, model, swap } = this.parts;
    const createOption = (code, selected) => {
      const served = languages.find((other) => other.code === code);
      const name = languageName(code, language, served?.name);
      return element("option", { value: code, selected: code === selected }, name);
    };
    const isAuto = this.sourceLanguage === "auto";
    const sources = languages.filter(({ targets }) => targets.length);
    from.replaceChildren(
      ...sources.map(({ code }) => createOption(code, this.sourceLanguage)),
      element("option", { value: "auto", selected: isAuto }, texts.auto),
    );
    const chosen = sources.filter(({ code }) => isAuto || code === this.sourceLanguage);
    const targets = new Set(chosen.flatMap((source) => source.targets));
    if (!targets.has(current.target)) current.target = [...targets][0];
    to.replaceChildren(...[...targets].map((code) => createOption(code, current.target)));
    const models = this.page.modelsFor(current.source, current.target);
    if (!models.some(({ name }) => name === current.model)) current.model = models.length > 1 ? models[0].name : "";
    model.replaceChildren(
      ...models.map(({ name, engine }) =>
        element("option", { value: name, selected: name === current.model }, `${name} (${engine})`),
      ),
    );
    model.parentNode.hidden = models.length < 2 || isAuto;
    swap.disabled = !this.page.modelsFor(current.target, current.source).length;
    this.parts.input.lang = current.source;
    this.result.setLanguages(current.source, current.target);
  }

  modelOption() {
    return this.page.current.model && this.sourceLanguage !== "auto" ? { model: this.page.current.model } : {};
  }

  countCharacters() {
    const { settings, texts } = this.page;
    this.parts.count.textContent = texts.count([...this.parts.input.value].length, settings.charLimit);
  }

  // ---- input

  selectLanguages() {
    const { current } = this.page;
    this.sourceLanguage = this.parts.from.value;
    if (this.sourceLanguage !== "auto") current.source = this.sourceLanguage;
    current.target = this.parts.to.value;
    current.model = this.parts.model.value;
    this.updateLanguages();
    this.translate();
  }

  selectNumber(event) {
    this.numAlternatives = Number(event.target.value);
    this.translate();
  }

  // The translation becomes the new text.
  swapLanguages() {
    const { current } = this.page;
    const translatedText = this.result.response?.translatedText;
    [current.source, current.target] = [current.target, current.source];
    this.sourceLanguage = current.source;
    current.model = "";
    if (translatedText) this.parts.input.value = translatedText;
    current.text = this.parts.input.value;
    this.updateLanguages();
    this.countCharacters();
    this.translate();
  }

  handleInput() {
    this.page.current.text = this.parts.input.value;
    this.countCharacters();
    this.translate(this.page.settings.frontendTimeout);
  }

  // ---- requests

  // Cancels the previous request; a late response to it is not shown.
  async translate(delay = 0) {
    this.controller.abort();
    const controller = (this.controller = new AbortController());
    const { signal } = controller;
    const { page, parts } = this;
    const { texts, settings, current } = page;
    const { text, target } = current;
    if (!text.trim()) return this.finish(null, "");
    if ([...text].length > settings.charLimit) return this.finish(null, texts.tooLong(settings.charLimit));
    this.result.setStale(true);
    const options = { alternatives: this.numAlternatives, details: true, ...this.modelOption() };
    const fields = { q: text, source: this.sourceLanguage, target, ...options };
    try {
      await sleep(delay, signal);
      parts.message.textContent = texts.working;
      this.updateHint(fields, controller);
      const response = await retryWhileBusy(
        () => post("translate", fields, signal),
        signal,
        (seconds) => (parts.message.textContent = page.texts.retrying(seconds)),
      );
      if (controller !== this.controller) return;
      const message = response.translatedText === text ? page.texts.unchanged : page.texts.done;
      this.finish({ ...response, request: fields }, message);
    } catch (error) {
      if (error.name === "AbortError" || controller !== this.controller) return;
      this.finish(null, error.status ? page.texts.rejected(error.message) : page.texts.unreachable);
    }
  }

  // Tells the user that the text seems to be in another language than the chosen one.
  async updateHint({ q, source, target }, controller) {
    const { page, parts } = this;
    parts.hint.textContent = "";
    if (source === "auto" || source === target || !q.trim()) return;
    try {
      const detections = await post("detect", { q }, controller.signal);
      const [best] = detections;
      const own = detections.find(({ language }) => language === source);
      if (controller !== this.controller || best.confidence < CONFIDENT_DETECTION) return;
      if (best.language === source || !own || own.confidence > UNLIKELY_SOURCE) return;
      parts.hint.textContent = page.texts.looksLike(languageName(best.language, page.language));
    } catch {
      // The hint is optional.
    }
  }

  finish(response, message) {
    if (!response) this.parts.hint.textContent = "";
    const { current } = this.page;
    this.result.response = response;
    current.translated = response?.request.q ?? "";
    current.translation = response?.translatedText ?? "";
    current.sentences = response?.details?.sentences ?? [];
    if (this.sourceLanguage === "auto" && response) {
      current.source = response.detectedLanguage.language;
      this.updateLanguages();
    }
    this.showResult(true);
    this.parts.message.textContent = message;
  }

  showResult(isNew) {
    const { texts, language } = this.page;
    const detected = this.sourceLanguage === "auto" ? this.result.response?.detectedLanguage : null;
    this.parts.detected.textContent = detected
      ? texts.detected(`${languageName(detected.language, language)}, ${Math.round(detected.confidence)}%`)
      : "";
    this.result.show(isNew);
  }
}

function createLabel(className, text, input) {
  return element("label", { class: className }, `${text} `, input);
}
