// Other translations of the same text: with all heads where some are cut, and by the other model. Words that differ
// from the translation above are marked.

import { element } from "../assets/dom.js";
import { compareWords } from "../assets/word_differences.js";

export class VariantList {
  constructor(page) {
    this.page = page;
    this.node = element("section", { class: "variants", hidden: true });
  }

  async update(signal) {
    const { page } = this;
    const { texts, state, translators, translator } = page;
    const wanted = [];
    if (state.cuts.size) wanted.push({ title: texts.withoutCuts, translator });
    for (const other of translators)
      if (other !== translator) wanted.push({ title: texts.otherModel(other.name), translator: other });
    const cards = [];
    if (page.result.sentences.length) {
      for (const { title, translator: own } of wanted) {
        const { text } = await page.translateText(own, new Set(), signal);
        cards.push(this.createCard(title, text));
      }
    }
    this.node.replaceChildren(...cards);
    this.node.hidden = !cards.length;
  }

  createCard(title, text) {
    const { page } = this;
    const isSame = text === page.result.text;
    const words = compareWords(text, page.result.text).map(({ word, isNew }) =>
      isNew ? element("mark", {}, word) : element("span", {}, word),
    );
    return element(
      "div",
      { class: "card variant" },
      element("h2", { class: "name" }, title, isSame ? ` · ${page.texts.same}` : ""),
      element("p", { lang: page.translator.languages.target }, ...words.flatMap((node) => [node, " "])),
    );
  }
}
