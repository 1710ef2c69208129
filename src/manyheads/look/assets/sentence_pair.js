// A sentence and its translation, side by side.

import { element } from "./dom.js";

// [class, name, text, language] of each.
export function createSentencePair(rows) {
  const items = rows.map(([className, name, text, language]) =>
    element("p", { class: className }, element("span", { class: "name" }, name), element("span", { lang: language }, text)),
  );
  return element("div", { class: "surface sentence-pair" }, ...items);
}
