// Other translations of the same text: with all heads where some are cut, and by the other model. Words that differ
// from the translation above are marked.

import { element } from "../assets/dom.js";
import { compareWords } from "../assets/word_differences.js";

// The words of a text, with spaces between them; those that another text does not have are marked.
export function markWords(text, other) {
  const words = compareWords(text, other).map(({ word, isNew }) => element(isNew ? "mark" : "span", {}, word));
  return words.flatMap((node, index) => (index ? [" ", node] : [node]));
}

export class VariantList {
  constructor(page) {
    this.page = page;
    this.node = element("section", { class: "variants", hidden: true });
  }

  async update(signal) {
    const { page } = this;
    const { texts, state, translators, translator } = page;
    const wanted = [];
    const hasCuts = state.cuts.size > 0;
    if (hasCuts) wanted.push({ title: texts.withoutCuts, translator });
    for (const other of translators)
      if (other !== translator) wanted.push({ title: texts.otherModel(page.nameModel(other)), translator: other });
    const cards = [];
    let whole = null;
    if (page.result.sentences.length) {
      for (const { title, translator: own } of wanted) {
        const { text } = await page.translateText(own, new Set(), signal);
        const isWhole = hasCuts && own === translator;
        if (isWhole) whole = text;
        if (isWhole && text === page.result.text) continue; // showCutEffect says so
        cards.push(this.createCard(title, text));
      }
    }
    page.keepInPlace(() => {
      this.node.replaceChildren(...cards);
      this.node.hidden = !cards.length;
      page.heads.showCutEffect(whole);
    });
  }

  createCard(title, text) {
    const { page } = this;
    const isSame = text === page.result.text;
    return element(
      "div",
      { class: "card variant" },
      element("h2", { class: "name" }, title, isSame ? ` · ${page.texts.same}` : ""),
      element("p", { lang: page.translator.languages.target }, ...markWords(text, page.result.text)),
    );
  }
}
