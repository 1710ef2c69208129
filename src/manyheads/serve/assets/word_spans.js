// The words of a text as elements that can be hovered, focused and pinned.

import { element } from "./look/dom.js";

const HIGH_CONFIDENCE = 0.8;
const MEDIUM_CONFIDENCE = 0.5;

export function confidenceLevel(probability) {
  if (probability === null || probability === undefined) return null;
  return probability >= HIGH_CONFIDENCE ? "high" : probability >= MEDIUM_CONFIDENCE ? "medium" : "low";
}

export function formatPercent(probability) {
  return `${(100 * probability).toFixed(probability > 0.9995 || probability < 0.1 ? 1 : 0)}%`;
}

// Fill the container with the text. Words are located in order; a word that normalization has changed is not in
// the text, and gets no element. getAttributes(n) returns the attributes of word n.
export function fillWithWords(container, text, words, getAttributes, listeners) {
  const pieces = [];
  let end = 0;
  words.forEach((word, n) => {
    const start = word ? text.indexOf(word, end) : -1;
    if (start < 0) return;
    const attributes = { class: "word", role: "button", tabindex: -1, "data-word": n, ...getAttributes(n) };
    pieces.push(text.slice(end, start), element("span", attributes, word));
    end = start + word.length;
  });
  pieces.push(text.slice(end));
  container.replaceChildren(...pieces);
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
