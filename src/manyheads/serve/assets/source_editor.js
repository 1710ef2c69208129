// The text to translate. A copy of it lies behind the text area, so that words can be marked where they are typed: those
// that a word of the translation is aligned with, and those that the model does not know.

import { element } from "./look/dom.js";
import { createPieces, locateWords } from "./word_spans.js";

const WORDS = /[\p{L}\p{M}\p{N}'’-]+/gu;

export class SourceEditor {
  constructor(page, { onInput, onHover, onPin }) {
    Object.assign(this, { page, onInput, onHover, onPin });
    this.unknown = new Set(); // words, as they are written
  }

  // Returns the editor and the note below it.
  build() {
    const { texts, current } = this.page;
    this.input = element("textarea", {
      id: "source-text",
      rows: 3,
      placeholder: texts.placeholder,
      oninput: () => this.changeText(),
      onpointermove: (event) => this.hover(this.findWordAt(event)),
      onpointerleave: () => this.hover(null),
      onclick: () => this.pinWordAtCaret(),
      onkeyup: ({ key }) => key.startsWith("Arrow") && this.pinWordAtCaret(),
    });
    this.words = element("div", { class: "source-words", "aria-hidden": "true" });
    this.note = element("p", { class: "quiet unknown-note", role: "status", hidden: true });
    this.input.value = current.text;
    this.drawPlain();
    return { box: element("div", { class: "editor" }, this.words, this.input), note: this.note };
  }

  get text() {
    return this.input.value;
  }

  set text(text) {
    this.input.value = text;
    this.drawPlain();
  }

  setLanguage(language) {
    this.input.lang = this.words.lang = language;
  }

  changeText() {
    this.drawPlain();
    this.onInput();
  }

  // Until the translation is there, words are known by what they were before.
  drawPlain() {
    const matches = [...this.text.matchAll(WORDS)].filter(([word]) => this.unknown.has(word));
    this.spans = []; // none that a translation is aligned with
    const spans = matches.map(({ 0: word, index }, n) => ({ n, start: index, end: index + word.length }));
    this.draw(spans, () => ({ class: "word unknown" }));
  }

  // Draws the words of a translated text; `unknown` are indices of words.
  showWords(words, unknown) {
    this.unknown = new Set(unknown.map((n) => words[n]));
    this.spans = locateWords(this.text, words);
    this.draw(this.spans, (n) => ({ class: unknown.includes(n) ? "word unknown" : "word" }));
    const { texts } = this.page;
    this.note.hidden = !unknown.length;
    this.note.textContent = unknown.length ? texts.unknownWords([...this.unknown].join(", ")) : "";
  }

  // Forgets the words of an earlier translation.
  clearWords() {
    this.note.hidden = true;
    this.note.textContent = "";
    this.unknown.clear();
    this.drawPlain();
  }

  draw(spans, getAttributes) {
    const attributes = (n) => ({ role: null, tabindex: null, ...getAttributes(n) });
    // What follows the last line break has a height, too.
    this.words.replaceChildren(...createPieces(this.text, 0, this.text.length, spans, attributes), "\u200b");
  }

  highlight(numbers) {
    for (const span of this.words.querySelectorAll(".word"))
      span.classList.toggle("highlighted", numbers.includes(Number(span.dataset.word)));
  }

  // ---- the word under the pointer and at the caret: its number, or null

  findWordAt({ clientX, clientY }) {
    if (!this.spans.length) return null;
    const span = document.elementsFromPoint(clientX, clientY).find((node) => node.parentNode === this.words);
    return span ? Number(span.dataset.word) : null;
  }

  hover(word) {
    if (word === this.hovered) return;
    this.hovered = word;
    this.onHover(word);
  }

  pinWordAtCaret() {
    const { selectionStart: caret, selectionEnd } = this.input;
    if (caret !== selectionEnd || !this.spans.length) return;
    const span = this.spans.find(({ start, end }) => caret >= start && caret <= end);
    this.onPin(span?.n ?? null);
  }
}
