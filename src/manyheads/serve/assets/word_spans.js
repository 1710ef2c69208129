// The words of a text as elements that can be hovered, focused and pinned.

import { element } from "./look/dom.js";

const HIGH_CONFIDENCE = 0.8;
const MEDIUM_CONFIDENCE = 0.5;

export function confidenceLevel(probability) {
  if (probability === null || probability === undefined) return null;
  return probability >= HIGH_CONFIDENCE ? "high" : probability >= MEDIUM_CONFIDENCE ? "medium" : "low";
}

// "100%" would be a promise.
export function formatPercent(probability) {
  if (probability > 0.999) return ">99.9%";
  return `${(100 * probability).toFixed(probability >= 0.995 || probability < 0.1 ? 1 : 0)}%`;
}

// Fill the container with the text. Words are located in order; a word that normalization has changed is not in
// the text, and gets no element. getAttributes(n) returns the attributes of word n. Groups { start, end, attributes }
// are parts of the text, in order, that get an element around their words.
export function fillWithWords(container, text, words, getAttributes, listeners, groups = []) {
  const spans = locateWords(text, words);
  const parts = [];
  let end = 0;
  for (const group of groups) {
    parts.push(...createPieces(text, end, group.start, spans, getAttributes));
    parts.push(element("span", group.attributes, ...createPieces(text, group.start, group.end, spans, getAttributes)));
    end = group.end;
  }
  parts.push(...createPieces(text, end, text.length, spans, getAttributes));
  container.replaceChildren(...parts);
  addWordListeners(container, listeners);
}

// The start and end of each word that is in the text, with its number.
export function locateWords(text, words) {
  let end = 0;
  return words.flatMap((word, n) => {
    const start = word ? text.indexOf(word, end) : -1;
    if (start < 0) return [];
    end = start + word.length;
    return [{ n, start, end }];
  });
}

// The text from start to end: strings, and an element for each word that begins there.
export function createPieces(text, start, end, words, getAttributes) {
  const pieces = [];
  for (const word of words.filter((word) => word.start >= start && word.start < end)) {
    const attributes = { class: "word", role: "button", tabindex: -1, "data-word": word.n, ...getAttributes(word.n) };
    const wordEnd = Math.min(word.end, end);
    pieces.push(text.slice(start, word.start), element("span", attributes, text.slice(word.start, wordEnd)));
    start = wordEnd;
  }
  pieces.push(text.slice(start, end));
  return pieces;
}

function addWordListeners(container, listeners) {
  const spans = [...container.querySelectorAll(".word")];
  if (spans.length) spans[0].tabIndex = 0;
  for (const span of spans) addListeners(span, spans, listeners);
}

function addListeners(span, spans, { onHover, onPin, onLeave }) {
  const n = Number(span.dataset.word);
  span.addEventListener("pointerenter", () => onHover(n));
  span.addEventListener("pointerleave", onLeave);
  span.addEventListener("focus", () => onHover(n));
  span.addEventListener("blur", onLeave);
  span.addEventListener("click", () => onPin(n));
  span.addEventListener("keydown", (event) => {
    const index = spans.indexOf(span);
    const target = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: spans.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") onPin(n);
    else if (event.key === "Escape") onPin(null);
    else if (target === undefined || !spans[target]) return;
    else {
      span.tabIndex = -1;
      spans[target].tabIndex = 0;
      spans[target].focus();
    }
    event.preventDefault();
  });
}
