// The page: a translator, its attention, and what changes when a head is cut, a token chosen or the temperature raised.
//
// `state` says everything that the reader chose. A change of it runs the model again where needed, in small steps, and
// the latest change wins.

import { element } from "../assets/dom.js";
import { measureContrast } from "../assets/head_roles.js";
import { LANGUAGES, languageName, preferredLanguage } from "../assets/page_languages.js";
import { HeadView } from "./head_view.js";
import { LIVE_TEXTS } from "./live_texts.js";
import { SearchControls } from "./search_controls.js";
import { SentenceWalk } from "./sentence_walk.js";
import { TranslationView } from "./translation_view.js";
import { ATTENTION_TYPES, headKey } from "./transformer.js";
import { LiveTranslator, SentenceTooLongError, takeHead } from "./translator.js";
import { VariantList } from "./variant_list.js";

const MAX_CACHED = 200; // translated sentences
const DEFAULT_BEAM = 4;
const NO_CUTS = new Set();
const NO_RESULT = { segments: [], sentences: [], text: "" };

// Until the browser has drawn; in a hidden page it never does.
function waitForFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 100);
  });
}

export class LivePage {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.translators = data.models.map((model) => new LiveTranslator(model));
    this.cache = new Map();
    this.tasks = new Map(); // by name, the AbortController of the latest
    this.state = {
      language: preferredLanguage(),
      text: data.text,
      model: 0,
      beam: this.translators[0].decoding.beam > 1 ? DEFAULT_BEAM : 1,
      temperature: 0,
      seed: 1,
      prefixes: new Map(), // by sentence: {text, ids}; ids are null where the reader typed it
      sentence: 0,
      step: null, // of the decoder, whose candidates are shown
      cuts: NO_CUTS,
      head: null, // {attention, layer, head}; one of cross-attention before the reader chooses
      view: "lines",
      panel: "attention", // or the walk
    };
    this.earlierCuts = []; // the latest last
    document.addEventListener("keydown", (event) => this.undoCut(event));
    for (const type of ["pointerdown", "focusin"]) root.addEventListener(type, ({ target }) => this.anchorAt(target));
    this.build();
    this.update();
  }

  get texts() {
    return LIVE_TEXTS[this.state.language];
  }

  get translator() {
    return this.translators[this.state.model];
  }

  // What the present sentence begins with: {text, ids} or null.
  get prefix() {
    return this.state.prefixes.get(this.state.sentence) ?? null;
  }

  get sentence() {
    return this.result?.sentences[this.state.sentence] ?? null;
  }

  // ---- layout

  build() {
    const { texts, state } = this;
    this.root.lang = document.documentElement.lang = state.language;
    this.translation = new TranslationView(this);
    this.controls = new SearchControls(this);
    this.variants = new VariantList(this);
    this.heads = new HeadView(this);
    this.walk = new SentenceWalk(this);
    this.panels = this.createPanelButtons();
    this.message = element("p", { class: "message", role: "alert", hidden: true });
    this.announcement = element("p", { class: "visually-hidden", "aria-live": "polite" });
    this.root.replaceChildren(
      this.createHeader(),
      element(
        "main",
        {},
        this.translation.node,
        this.message,
        this.variants.node,
        (this.toolbar = element("div", { class: "toolbar" }, this.panels, this.controls.node)),
        this.heads.node,
        this.walk.node,
        this.announcement,
      ),
    );
    if (this.result) this.showResult();
    this.controls.refresh();
    document.title = `${texts.direction(...this.languageNames())} - Manyheads`;
  }

  languageNames() {
    const { source, target } = this.translator.languages;
    return [source, target].map((code) => languageName(code, this.state.language));
  }

  createHeader() {
    const { texts, state } = this;
    const options = Object.entries(LANGUAGES).map(([code, name]) =>
      element("option", { value: code, selected: code === state.language, lang: code }, name),
    );
    const language = element(
      "select",
      { name: "language", "aria-label": texts.language, onchange: ({ target }) => this.changeLanguage(target.value) },
      ...options,
    );
    const [source, target] = this.languageNames();
    return element(
      "header",
      { class: "top" },
      element("div", { class: "top-bar" }, element("span", { class: "brand" }, "Manyheads"), language),
      element(
        "div",
        { class: "heading" },
        element("h1", {}, texts.direction(source, target)),
        element("p", { class: "lead" }, texts.about(this.describeSize())),
      ),
    );
  }

  createPanelButtons() {
    const { texts } = this;
    const buttons = ["attention", "walk"].map((panel) =>
      element("button", { type: "button", "data-panel": panel, onclick: () => this.selectPanel(panel) }, texts[panel]),
    );
    return element("div", { class: "segments panel-switch", role: "group", "aria-label": texts.panels, hidden: true }, ...buttons);
  }

  describeSize() {
    const { texts } = this;
    const total = this.translators.reduce((sum, { numWeights }) => sum + numWeights, 0);
    if (total >= 1e6) return texts.million((total / 1e6).toFixed(1));
    return total >= 1e4 ? texts.thousand(String(Math.round(total / 1e3))) : texts.few(String(total));
  }

  // Checkpoints are called by their step.
  nameModel({ name }) {
    const step = /^step-(\d+)$/.exec(name);
    return step ? this.texts.modelStep(Number(step[1])) : name;
  }

  changeLanguage(language) {
    this.state.language = language;
    this.build();
    this.update(); // what is translated already is in the cache
    this.root.querySelector("[name=language]").focus();
  }

  // ---- changes

  // Changes what the reader chose, and translates again.
  change(difference) {
    Object.assign(this.state, difference);
    if ("text" in difference || "model" in difference) Object.assign(this.state, { step: null, prefixes: new Map() });
    if ("model" in difference) {
      const heads = new Set(this.listHeads().map(({ key }) => key));
      Object.assign(this.state, { head: null, cuts: new Set([...this.state.cuts].filter((key) => heads.has(key))) });
      this.earlierCuts = []; // of the other model
    }
    this.translation.showPrefix();
    return this.update();
  }

  // Has the present sentence begin with a text, and translates again.
  setPrefix(text, { ids = null, step = null } = {}) {
    const prefixes = new Map(this.state.prefixes);
    if (text || ids) prefixes.set(this.state.sentence, { text, ids });
    else prefixes.delete(this.state.sentence);
    return this.change({ prefixes, step });
  }

  // The decoder goes on from the tokens before a step and another one at it.
  chooseToken(step, id) {
    const ids = [...this.sentence.ids.slice(0, step), id];
    return this.setPrefix(this.translator.target.decode(ids), { ids, step });
  }

  toggleCuts(keys) {
    const cuts = new Set(this.state.cuts);
    const isCutting = keys.some((key) => !cuts.has(key));
    for (const key of keys) isCutting ? cuts.add(key) : cuts.delete(key);
    return this.setCuts(cuts);
  }

  setCuts(cuts) {
    this.earlierCuts.push(this.state.cuts);
    return this.change({ cuts });
  }

  // Ctrl+Z outside of a text field.
  undoCut(event) {
    const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z";
    if (!isUndo || !this.earlierCuts.length || event.target.matches?.("textarea, [type=text]")) return;
    event.preventDefault();
    this.change({ cuts: this.earlierCuts.pop() });
  }

  selectHead(head) {
    this.state.head = head;
    this.heads.refresh();
    this.translation.shade();
  }

  selectPanel(panel) {
    this.state.panel = panel;
    this.showPanel();
    return this.measureHeads();
  }

  selectSentence(sentence) {
    if (sentence === this.state.sentence || !this.result?.sentences[sentence]) return;
    Object.assign(this.state, { sentence, step: null });
    this.translation.showPrefix();
    this.showResult();
    this.showAttention();
    return this.measureHeads();
  }

  selectStep(step) {
    this.state.step = step === this.state.step ? null : step;
    this.translation.showSteps();
    if (this.state.step !== null) this.translation.candidates.scrollIntoView({ block: "nearest" });
  }

  // ---- running the model

  update() {
    this.tasks.get("measure")?.abort(); // of what was translated before
    return this.runLatest("translate", async (signal) => {
      this.result = await this.translateText(this.translator, this.state.cuts, signal);
      this.state.sentence = Math.max(0, Math.min(this.state.sentence, this.result.sentences.length - 1));
      this.attention = null; // of the result before
      this.keepInPlace(() => this.showResult());
      await waitForFrame(); // the translation is seen first
      signal.throwIfAborted();
      this.keepInPlace(() => this.showAttention());
      await this.variants.update(signal);
      signal.throwIfAborted();
      await this.measureHeads();
    });
  }

  measureHeads() {
    return this.runLatest("measure", (signal) => this.heads.measureImportance(signal));
  }

  // Runs a task in place of the one of the same name.
  async runLatest(name, task) {
    this.tasks.get(name)?.abort();
    const controller = new AbortController();
    this.tasks.set(name, controller);
    try {
      await task(controller.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error);
    }
  }

  async translateText(translator, cuts, signal) {
    const segments = translator.split(this.state.text);
    const sentences = [];
    for (const { text, isTranslated } of segments) {
      if (!isTranslated) continue;
      const prefix = this.state.prefixes.get(sentences.length);
      sentences.push(await this.translateSentence(translator, text, cuts, prefix, signal));
    }
    const outputs = sentences.map((sentence) => sentence.text);
    const parts = segments.map((segment) => (segment.isTranslated ? outputs.shift() : segment.text));
    return { segments, sentences, text: parts.join("") };
  }

  // A sentence that did not change is not translated again. Another model may have another vocabulary: it gets the
  // prefix as text.
  async translateSentence(translator, text, cuts, prefix, signal) {
    const { beam, temperature, seed } = this.state;
    const prefixIds = (translator === this.translator && prefix?.ids) || null;
    const options = { beam, temperature, seed, prefix: prefix?.text ?? "", prefixIds };
    const key = JSON.stringify([this.translators.indexOf(translator), text, [...cuts].sort(), options]);
    if (!this.cache.has(key)) {
      const started = performance.now();
      const translated = await translator.translateSentenceInSteps(text, { ...options, cuts }, signal);
      translated.milliseconds = performance.now() - started; // of the search, also when it is shown again
      if (this.cache.size >= MAX_CACHED) this.cache.delete(this.cache.keys().next().value);
      this.cache.set(key, translated);
    }
    return this.cache.get(key);
  }

  showResult() {
    this.message.hidden = this.result.sentences.length > 0 || !this.state.text.trim();
    this.message.textContent = this.message.hidden ? "" : this.texts.nothing;
    this.translation.showResult();
    this.controls.refresh();
    clearTimeout(this.announcing);
    this.announcing = setTimeout(() => (this.announcement.textContent = this.result.text), 700);
  }

  showAttention() {
    const { sentence, translator } = this;
    this.attention = sentence ? translator.attention(sentence.sourceIds, sentence.ids, { cuts: this.state.cuts }) : null;
    if (this.attention) this.state.head ??= this.findSharpestHead();
    this.translation.showSteps();
    this.showPanel();
  }

  // The attention or the walk of the present sentence.
  showPanel() {
    this.panels.hidden = !this.attention;
    for (const button of this.panels.children)
      button.setAttribute("aria-pressed", String(button.dataset.panel === this.state.panel));
    this.heads.refresh();
    this.walk.refresh();
  }

  // The translation of an earlier text does not stay beside the message.
  showError(error) {
    const { texts } = this;
    this.result = NO_RESULT;
    this.showResult();
    this.showAttention();
    this.variants.update();
    this.message.hidden = false;
    this.message.textContent =
      error instanceof SentenceTooLongError ? texts.tooLong(error.numTokens, error.maxTokens) : texts.failed(error.message);
  }

  // The head of cross-attention whose queries point at keys of their own most clearly.
  findSharpestHead() {
    let best = { contrast: -Infinity };
    this.attention.maps.cross.forEach((map, layer) => {
      for (let head = 0; head < map.heads; head++) {
        const contrast = measureContrast(takeHead(map, head));
        if (contrast > best.contrast) best = { contrast, layer, head };
      }
    });
    return { attention: "cross", layer: best.layer, head: best.head };
  }

  listHeads() {
    const { numLayers, config } = this.translator;
    return ATTENTION_TYPES.flatMap((attention) =>
      Array.from({ length: numLayers[attention] * config.heads }, (_, index) => {
        const [layer, head] = [Math.floor(index / config.heads), index % config.heads];
        return { attention, layer, head, key: headKey(attention, layer, head) };
      }),
    );
  }

  // ---- what the reader uses below the translation stays where it is on the screen, although what is above it changes

  anchorAt(target) {
    const isBelow = [this.toolbar, this.heads.node, this.walk.node].some((node) => node.contains(target));
    this.anchor = isBelow ? target.closest("button, input, .picture") : null;
  }

  keepInPlace(change) {
    const { anchor } = this;
    const findTop = () => (anchor?.isConnected && anchor.checkVisibility() ? anchor.getBoundingClientRect().top : null);
    const before = findTop();
    change();
    const after = findTop();
    if (before === null || after === null) return;
    const position = scrollY + after - before;
    document.body.style.minHeight = position > 0 ? `${position + innerHeight}px` : ""; // it can be scrolled so far
    scrollTo({ top: position, behavior: "instant" });
  }

  // ---- a token under the pointer, in the translation or in the picture: {side, index} or null

  hover(token) {
    this.hovered = token;
    this.pendingFrame ??= requestAnimationFrame(() => {
      this.pendingFrame = null;
      this.translation.shade();
      this.heads.drawPicture();
    });
  }
}
