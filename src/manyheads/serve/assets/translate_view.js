// The translate view: languages, the text, its translation as it is typed, and files. Each part has a module of its own.

import { element } from "./look/dom.js";
import { languageName } from "./look/page_languages.js";
import { AlternativeList } from "./alternative_list.js";
import { post, retryWhileBusy, sleep } from "./api_client.js";
import { FileTranslation } from "./file_translation.js";
import { Notice } from "./notice.js";
import { createLink } from "./shared_link.js";
import { SourceEditor } from "./source_editor.js";
import { TranslationResult } from "./translation_result.js";
import { Welcome } from "./welcome.js";

const CONFIDENT_DETECTION = 80; // percent, of another language
const UNLIKELY_SOURCE = 5; // percent at most, of the source language

export class TranslateView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "translate-view" });
    this.sourceLanguage = page.current.source; // or auto
    this.numAlternatives = Math.min(3, page.settings.alternativesLimit);
    this.controller = new AbortController();
    this.editor = new SourceEditor(page, {
      onInput: () => this.handleInput(),
      onHover: (n) => (n === null ? this.result.leave("source") : this.result.highlight("source", n)),
      onPin: (n) => this.result.response?.details && this.result.pin("source", n),
    });
    this.alternatives = new AlternativeList(page, {
      copy: (text) => this.result.copy(text),
      use: (text) => this.useAlternative(text),
    });
    this.result = new TranslationResult(page, this.editor, {
      onPin: (start, word) =>
        word ? this.alternatives.openWord(this.result.response, start, word) : this.alternatives.closeWord(),
      retranslate: () => this.translate(),
    });
    this.welcome = new Welcome(page, (text) => this.setText(text));
    this.files = new FileTranslation(page, () => ({
      source: this.sourceLanguage,
      target: page.current.target,
      ...this.modelOption(),
    }));
  }

  // ---- layout

  build() {
    const { texts, settings } = this.page;
    this.notice = new Notice(this.page);
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
      clear: element("button", { type: "button", class: "clear", onclick: () => this.setText("") }, texts.clear),
      share: element("button", { type: "button", class: "share-link", onclick: () => this.share() }, texts.share),
      count: element("span", { class: "quiet count" }),
      hint: element("p", { class: "quiet language-hint", role: "status" }),
      numAlternatives: element("select", { name: "alternatives", onchange: (event) => this.selectNumber(event) }),
    });
    const counts = Array.from({ length: settings.alternativesLimit + 1 }, (_, n) =>
      element("option", { value: n, selected: n === this.numAlternatives }, String(n)),
    );
    parts.numAlternatives.append(...counts);
    const result = this.result.build((message) => this.notice.show(message));
    this.root.replaceChildren(
      this.welcome.root,
      element(
        "div",
        { class: "surface translator" },
        this.createLanguageRow(),
        element("div", { class: "boxes" }, this.createInputBox(), result.box),
      ),
      this.notice.root,
      result.word,
      result.announcement,
      this.alternatives.build(createLabel("alternatives-count quiet", texts.alternativesCount, parts.numAlternatives)),
      this.files.build(),
    );
    this.files.acceptDrops(this.root);
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
    const { clear, share, count, hint } = this.parts;
    const { box, note } = this.editor.build();
    const label = element("label", { class: "name", for: "source-text" }, this.page.texts.source);
    const buttons = element("span", { class: "buttons" }, clear, share);
    return element("div", { class: "box" }, element("div", { class: "row" }, label, buttons), box, count, note, hint);
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
    const [target, source] = [current.target, current.source].map((code) => languageName(code, language));
    swap.title = swap.disabled ? texts.noSwap(target, source) : texts.swap;
    this.editor.setLanguage(current.source);
    this.result.setLanguage(current.target);
    this.alternatives.setLanguage(current.target);
    this.welcome.show();
  }

  modelOption() {
    return this.page.current.model && this.sourceLanguage !== "auto" ? { model: this.page.current.model } : {};
  }

  countCharacters() {
    const { settings, texts } = this.page;
    this.parts.count.textContent = texts.count([...this.editor.text].length, settings.charLimit);
    this.parts.clear.hidden = this.parts.share.hidden = !this.editor.text;
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

  // The languages of a link.
  setLanguages(source, target) {
    const { current } = this.page;
    this.sourceLanguage = source;
    if (source !== "auto") current.source = source;
    if (target) current.target = target;
    this.updateLanguages();
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
    if (translatedText) this.editor.text = translatedText;
    current.text = this.editor.text;
    this.updateLanguages();
    this.countCharacters();
    this.translate();
  }

  // Replaces the text, and translates it.
  setText(text) {
    this.page.current.text = this.editor.text = text;
    this.countCharacters();
    this.editor.input.focus();
    return this.translate();
  }

  // Copies a link that opens the page with this text.
  async share() {
    const { texts, current } = this.page;
    const link = createLink({ ...current, source: this.sourceLanguage });
    try {
      await navigator.clipboard.writeText(link);
      this.notice.show(texts.linkCopied);
    } catch {
      history.replaceState(null, "", link); // the address of the page is the link
      this.notice.show(texts.linkInAddress);
    }
  }

  handleInput() {
    this.page.current.text = this.editor.text;
    this.countCharacters();
    this.translate(this.page.settings.frontendTimeout);
  }

  // ---- requests

  // Cancels the previous request; a late response to it is not shown.
  async translate(delay = 0) {
    this.controller.abort();
    const controller = (this.controller = new AbortController());
    const { signal } = controller;
    const { page } = this;
    const { texts, settings, current } = page;
    const { text, target } = current;
    if (!text.trim()) return this.finish(null, "");
    if ([...text].length > settings.charLimit) {
      this.finish(null, "");
      return this.notice.showError(texts.tooLong(settings.charLimit));
    }
    this.result.setStale(true);
    const options = { alternatives: this.numAlternatives, details: true, ...this.modelOption() };
    const fields = { q: text, source: this.sourceLanguage, target, ...options };
    try {
      await sleep(delay, signal);
      this.notice.show(texts.working);
      this.updateHint(fields, controller);
      const response = await retryWhileBusy(
        () => post("translate", fields, signal),
        signal,
        (seconds) => this.notice.show(page.texts.retrying(seconds)),
      );
      if (controller !== this.controller) return;
      const message = response.translatedText === text ? page.texts.unchanged : page.texts.done;
      this.finish({ ...response, request: fields }, message);
    } catch (error) {
      if (error.name === "AbortError" || controller !== this.controller) return;
      this.finish(null, "");
      this.notice.showFailure(error, () => this.translate());
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
    this.notice.show(message);
  }

  // An alternative becomes the translation, and the other way round. Nothing is known about its words.
  useAlternative(text) {
    const { response } = this.result;
    const { translatedText, alternatives = [], details } = response;
    this.finish(
      {
        ...response,
        translatedText: text,
        alternatives: [translatedText, ...alternatives.filter((other) => other !== text)],
        confidence: null,
        notes: [],
        details: { ...details, words: [], sentenceConfidences: [] },
      },
      this.page.texts.used,
    );
    this.result.parts.copy.focus(); // the button that was pressed is gone
  }

  showResult(isNew) {
    const { texts, language } = this.page;
    const detected = this.sourceLanguage === "auto" ? this.result.response?.detectedLanguage : null;
    this.parts.detected.textContent = detected
      ? texts.detected(`${languageName(detected.language, language)}, ${Math.round(detected.confidence)}%`)
      : "";
    this.result.show(isNew);
    this.alternatives.show(this.result.response);
  }
}

function createLabel(className, text, input) {
  return element("label", { class: className }, `${text} `, input);
}
