// A translation with its confidence, the probability of its words, and their alignment, which is shown in the text.

import { element, isTouchScreen } from "./look/dom.js";
import { CorrectionEditor } from "./correction_editor.js";
import { confidenceLevel, fillWithWords, formatPercent, locateWords } from "./word_spans.js";

const LANGUAGE_NOTE = "looks like "; // which the view shows beside the text, in the language of the page

export class TranslationResult {
  // The editor marks words of the text; onPin(start, word) gets a word of the translation, or nothing;
  // retranslate() requests the translation again.
  constructor(page, editor, { onPin, retranslate }) {
    Object.assign(this, { page, editor, onPin });
    this.response = null; // with its request
    this.corrections = new CorrectionEditor(page, retranslate);
  }

  // Returns the elements that the view lays out.
  build(showMessage) {
    const { texts } = this.page;
    this.showMessage = showMessage;
    const parts = (this.parts = {
      output: element("p", { class: "output", role: "group", "aria-label": texts.translation }),
      copy: element("button", { type: "button", class: "copy", onclick: () => this.copy() }, texts.copy),
      legend: this.createLegend(),
      confidence: element("p", { class: "translation-confidence", role: "status", hidden: true }),
      sentenceLegend: element("p", { class: "legend quiet", hidden: true }, texts.sentenceLegend),
      notes: element("ul", { class: "notes quiet", "aria-label": texts.notes, hidden: true }),
      announcement: element("p", { class: "announcement visually-hidden", "aria-live": "polite" }),
      word: element("p", { class: "word-details", "aria-live": "polite" }),
    });
    const { edit, undo, form, similar } = this.corrections.build(showMessage);
    parts.box = element(
      "div",
      { class: "box" },
      element("div", { class: "row" }, element("span", { class: "name" }, texts.translation), edit, undo, parts.copy),
      parts.output,
      form,
      parts.confidence,
      parts.sentenceLegend,
      parts.notes,
      similar,
      parts.legend,
    );
    return parts;
  }

  createLegend() {
    const { texts } = this.page;
    const createEntry = (level) =>
      element(
        "span",
        {},
        element("span", { class: "sample", "data-level": level, "aria-hidden": "true" }, "abc"),
        ` ${texts.levels[level]} (${texts.levelRanges[level]})`,
      );
    const title = element("span", {}, `${texts.confidence}:`);
    return element("p", { class: "legend quiet" }, title, ...["high", "medium", "low"].map(createEntry));
  }

  setLanguage(language) {
    this.parts.output.lang = language;
    this.corrections.setLanguage(language);
  }

  get wordsHint() {
    return isTouchScreen() ? this.page.texts.wordsTouchHint : this.page.texts.wordsHint;
  }

  // Marks the result as one of an earlier text.
  setStale(isStale) {
    const { output, copy } = this.parts;
    output.classList.toggle("stale", isStale);
    output.setAttribute("aria-busy", String(isStale));
    copy.disabled = isStale || !this.response;
  }

  show(isNew) {
    const { texts } = this.page;
    const { parts, response } = this;
    this.pinned = null;
    parts.word.textContent = response?.details?.words.length ? this.wordsHint : "";
    this.setStale(false);
    parts.output.classList.toggle("empty", !response);
    parts.copy.hidden = !response;
    parts.legend.hidden = !response?.details?.words.some(({ probability }) => probability !== null);
    this.showConfidence();
    this.corrections.show(response);
    if (isNew) parts.announcement.textContent = response?.translatedText ?? "";
    if (!response) {
      parts.output.replaceChildren(texts.nothing);
      parts.sentenceLegend.hidden = true;
      this.editor.clearWords();
      return;
    }
    this.showWords();
  }

  // The confidence in words and as a number, and what was unusual.
  showConfidence() {
    const { texts } = this.page;
    const { confidence, notes } = this.parts;
    const level = confidenceLevel(this.response?.confidence);
    confidence.hidden = !level;
    confidence.dataset.level = level ?? "";
    confidence.textContent = level
      ? texts.translationConfidence(texts.levels[level], formatPercent(this.response.confidence)) +
        (level === "low" ? `. ${texts.adviceLow}` : "")
      : "";
    const shown = (this.response?.notes ?? []).filter((note) => !note.startsWith(LANGUAGE_NOTE));
    notes.hidden = !shown.length;
    notes.replaceChildren(...shown.map((note) => element("li", {}, texts.knownNotes[note] ?? note)));
  }

  // The sentences of low confidence, as groups of words.
  lowSentences() {
    const { texts } = this.page;
    const { translatedText, details } = this.response;
    let end = 0;
    return (details.sentenceConfidences ?? []).flatMap(({ text, confidence }) => {
      const start = text ? translatedText.indexOf(text, end) : -1;
      if (start < 0) return [];
      end = start + text.length;
      if (confidenceLevel(confidence) !== "low") return [];
      const label = texts.sentenceConfidence(formatPercent(confidence));
      return [{ start, end, attributes: { class: "unsure", role: "group", "aria-label": label, title: label } }];
    });
  }

  showWords() {
    const { texts } = this.page;
    const { sourceWords, unknownWords, words } = this.response.details;
    const listeners = {
      onHover: (n) => this.highlight("target", n),
      onPin: (n) => this.pin("target", n),
      onLeave: () => this.leave("target"),
    };
    const targetAttributes = (n) => {
      const { text, probability } = words[n];
      const level = confidenceLevel(probability);
      const percent = level && formatPercent(probability);
      return {
        "data-level": level,
        "data-probability": probability,
        "aria-label": texts.wordLabel(text, level && texts.levels[level], percent, quoteWords(this.sourcesOf(n))),
      };
    };
    const targetWords = words.map(({ text }) => text);
    const groups = this.lowSentences();
    fillWithWords(this.parts.output, this.response.translatedText, targetWords, targetAttributes, listeners, groups);
    this.parts.sentenceLegend.hidden = !groups.length;
    if (this.editor.text === this.response.request.q) this.editor.showWords(sourceWords, unknownWords);
  }

  sourcesOf(n) {
    const { words, sourceWords } = this.response.details;
    return words[n].sources.map((source) => sourceWords[source]);
  }

  targetsOf(n) {
    return this.response.details.words.filter(({ sources }) => sources.includes(n)).map(({ text }) => text);
  }

  // Highlights a word and those that it is aligned with; n is null for none.
  highlight(side, n) {
    if (!this.response?.details?.words.length) return;
    const { words } = this.response.details;
    const setHighlighted = (container, numbers) => {
      for (const span of container.querySelectorAll(".word"))
        span.classList.toggle("highlighted", numbers.includes(Number(span.dataset.word)));
    };
    const aligned = (n) =>
      side === "target"
        ? words[n].sources
        : words.flatMap(({ sources }, index) => (sources.includes(n) ? [index] : []));
    const [own, others] = n === null ? [[], []] : [[n], aligned(n)];
    setHighlighted(this.parts.output, side === "target" ? own : others);
    this.editor.highlight(side === "target" ? others : own);
    this.parts.word.textContent = n === null ? this.wordsHint : this.describeWord(side, n);
  }

  describeWord(side, n) {
    const { texts } = this.page;
    const { words, sourceWords } = this.response.details;
    if (side === "source") return texts.describeSource(sourceWords[n], quoteWords(this.targetsOf(n)));
    const { text, probability } = words[n];
    const level = confidenceLevel(probability);
    const confidence = level && `${texts.levels[level]}, ${formatPercent(probability)}`;
    return texts.describeWord(text, confidence, quoteWords(this.sourcesOf(n)));
  }

  leave(side) {
    this.highlight(...(this.pinned ?? [side, null]));
  }

  // A pinned word stays highlighted until it is pinned again. One of the translation opens its alternatives.
  pin(side, n) {
    const isPinned = this.pinned && this.pinned[0] === side && this.pinned[1] === n;
    this.pinned = isPinned || n === null ? null : [side, n];
    this.highlight(side, this.pinned ? n : null);
    const words = this.pinned && side === "target" ? this.response.details.words.map(({ text }) => text) : [];
    const place = locateWords(this.response?.translatedText ?? "", words).find((word) => word.n === n);
    this.onPin(...(place ? [place.start, words[n]] : []));
  }

  async copy(text = this.response.translatedText) {
    const { texts } = this.page;
    try {
      await navigator.clipboard.writeText(text);
      this.showMessage(texts.copied);
    } catch {
      this.showMessage(texts.notCopied); // not https, not localhost, or not allowed
    }
  }
}

function quoteWords(words) {
  return words.map((word) => `“${word}”`).join(", ");
}
