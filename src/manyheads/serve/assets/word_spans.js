// Words of a text as things that can be pointed at and reached by keys; what stands between them stays text.

import { element } from "./look/elements.js";

const SURE = 0.8;
const FAIR = 0.5;

export function levelOf(chance) {
  if (chance === null || chance === undefined) return null;
  return chance >= SURE ? "sure" : chance >= FAIR ? "fair" : "unsure";
}

export function perCent(chance) {
  return `${(100 * chance).toFixed(chance > 0.9995 || chance < 0.1 ? 1 : 0)}%`;
}

// Fills `holder` with the text. `words` are looked for one after the other; a word that the text does not have,
// as it was normalized away, is no place to point at. describe(n) gives the attributes of word n.
export function fillWithWords(holder, text, words, describe, listeners) {
  const pieces = [];
  let done = 0;
  words.forEach((word, n) => {
    const at = word ? text.indexOf(word, done) : -1;
    if (at < 0) return;
    pieces.push(text.slice(done, at));
    pieces.push(
      element("span", { class: "word", role: "button", tabindex: -1, "data-word": n, ...describe(n) }, word),
    );
    done = at + word.length;
  });
  pieces.push(text.slice(done));
  holder.replaceChildren(...pieces);
  const spans = [...holder.querySelectorAll(".word")];
  if (spans.length) spans[0].tabIndex = 0;
  for (const span of spans) listen(span, spans, listeners);
}

function listen(span, spans, { onPoint, onPress, onLeave }) {
  const n = Number(span.dataset.word);
  span.addEventListener("pointerenter", () => onPoint(n));
  span.addEventListener("pointerleave", onLeave);
  span.addEventListener("focus", () => onPoint(n));
  span.addEventListener("blur", onLeave);
  span.addEventListener("click", () => onPress(n));
  span.addEventListener("keydown", (event) => {
    const at = spans.indexOf(span);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: spans.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") onPress(n);
    else if (event.key === "Escape") onPress(null);
    else if (to === undefined || !spans[to]) return;
    else {
      span.tabIndex = -1;
      spans[to].tabIndex = 0;
      spans[to].focus();
    }
    event.preventDefault();
  });
}
