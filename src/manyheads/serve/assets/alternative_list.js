// Other translations of a text, or of its sentence from one word on. Words that differ are marked, and words that are
// left out are struck through.

import { element } from "./look/dom.js";
import { compareWords } from "./look/word_differences.js";
import { post, retryWhileBusy } from "./api_client.js";
import { Notice } from "./notice.js";

const COUNT_AT_WORD = 4;

export class AlternativeList {
  // copy(text) copies an alternative; use(translation) makes it the translation of the text.
  constructor(page, { copy, use }) {
    Object.assign(this, { page, copy, use });
  }

  build(choice) {
    const { texts } = this.page;
    this.list = element("ol", { class: "alternatives-list" });
    this.none = element("p", { class: "quiet no-alternatives", hidden: true });
    this.title = element("h4", { class: "at-word", hidden: true });
    this.notice?.clear();
    this.notice = new Notice(this.page);
    this.notice.root.hidden = true;
    this.atWord = element("ol", { class: "alternatives-list at-word", hidden: true });
    return (this.root = element(
      "section",
      { class: "alternatives surface", "aria-label": texts.alternatives },
      element("div", { class: "row" }, element("h3", {}, texts.alternatives), choice),
      this.list,
      this.none,
      this.title,
      this.notice.root,
      this.atWord,
    ));
  }

  setLanguage(language) {
    this.list.lang = this.atWord.lang = language;
  }

  show(response) {
    this.closeWord();
    this.root.hidden = !response;
    const alternatives = response?.alternatives ?? [];
    const { texts } = this.page;
    this.none.hidden = !(response && alternatives.length < response.request.alternatives);
    this.none.textContent = alternatives.length ? texts.fewAlternatives : texts.noAlternatives;
    this.fill(this.list, alternatives, response?.translatedText ?? "");
  }

  // complete(text) is the whole translation with an alternative in it.
  fill(list, alternatives, translation, complete = (text) => text) {
    const { texts, language } = this.page;
    const createButton = (name, text, onclick) => {
      const attributes = { type: "button", class: `${name}-alternative`, lang: language, onclick };
      return element("button", { ...attributes, "aria-label": `${texts[name]}: ${text}` }, texts[name]);
    };
    const createItem = (text) => {
      const words = listDifferences(text, translation).flatMap((part) => [createWord(part), " "]);
      const copy = createButton("copy", text, () => this.copy(text));
      const use = createButton("use", text, () => this.use(complete(text)));
      return element("li", {}, element("span", {}, ...words.slice(0, -1)), " ", element("div", { class: "actions" }, copy, use));
    };
    list.replaceChildren(...alternatives.map(createItem));
  }

  // ---- from one word on

  closeWord() {
    this.opening?.abort();
    this.notice.clear();
    this.title.hidden = this.atWord.hidden = this.notice.root.hidden = true;
  }

  // Translates the sentence again: it begins as before, and another word follows.
  async openWord(response, start, word) {
    this.closeWord();
    const sentence = findSentence(response, start);
    if (!sentence) return;
    const { texts, settings } = this.page;
    const { signal } = (this.opening = new AbortController());
    const { source, target, model } = response.request;
    const fields = {
      q: sentence.source,
      source: source === "auto" ? response.detectedLanguage.language : source,
      target,
      ...(model ? { model } : {}),
      prefix: response.translatedText.slice(sentence.start, start).trim(),
      forbid: [word],
      alternatives: Math.min(COUNT_AT_WORD - 1, settings.alternativesLimit),
    };
    this.title.hidden = false;
    this.title.textContent = texts.atWord(word);
    try {
      const { translatedText, alternatives = [] } = await retryWhileBusy(() => post("translate", fields, signal), signal, () => {});
      if (signal.aborted) return;
      const others = [translatedText, ...alternatives].filter((text) => text.trim() && text !== sentence.text);
      this.atWord.hidden = false;
      const [before, after] = [0, sentence.text.length].map((length) => sentence.start + length);
      const complete = (text) => response.translatedText.slice(0, before) + text + response.translatedText.slice(after);
      this.fill(this.atWord, others, sentence.text, complete);
      if (!others.length) this.title.textContent = texts.noneAtWord(word);
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      this.notice.root.hidden = false;
      this.notice.showFailure(error, () => this.openWord(response, start, word));
    }
  }
}

// A word in the place of another is marked only once: what it replaces is not among the parts.
function listDifferences(text, translation) {
  const parts = compareWords(text, translation, { withOmitted: true });
  return parts.filter(({ isOmitted }, n) => !(isOmitted && (parts[n - 1]?.isNew || parts[n + 1]?.isNew)));
}

function createWord({ word, isNew, isOmitted }) {
  if (isOmitted) return element("del", {}, word);
  return isNew ? element("mark", {}, word) : word;
}

// The sentence of the translation that holds a position, with its source: {source, text, start}, or null where the two
// cannot be matched.
function findSentence({ translatedText, request, details }, position) {
  const { sentences, sentenceConfidences } = details;
  if (sentences.length <= 1) return { source: sentences[0] ?? request.q, text: translatedText.trim(), start: 0 };
  if (sentences.length !== sentenceConfidences.length) return null;
  let end = 0;
  for (const [n, { text }] of sentenceConfidences.entries()) {
    const start = translatedText.indexOf(text, end);
    if (start < 0) return null;
    end = start + text.length;
    if (position < end) return { source: sentences[n], text, start };
  }
  return null;
}
