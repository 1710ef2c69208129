// What every head looks at while the text is translated: the attention page's own view.

import { element } from "./look/elements.js";
import { showAttention } from "./look/show.js";
import { patiently, post, why } from "./asking.js";

export class AttentionView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "attention-view" });
    this.shown = "";
  }

  build() {
    this.told = element("p", { class: "told", role: "status" });
    this.note = element("p", { class: "quiet first-only" });
    this.holder = element("div", { class: "holder" });
    this.root.replaceChildren(
      element("h2", {}, this.page.texts.views.attention),
      element("p", { class: "lead" }, this.page.texts.attentionAbout),
      this.told,
      this.note,
      this.holder,
    );
    this.shown = "";
  }

  async enter() {
    const { texts, language, current } = this.page;
    const wanted = JSON.stringify(current);
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.holder.replaceChildren();
    this.note.textContent = "";
    this.told.textContent = noLook(this.page) || (current.text.trim() ? texts.loading : texts.needText);
    if (this.told.textContent !== texts.loading) return;
    try {
      const { asked, more } = await sentenceOf(this.page, current.text);
      if (this.shown !== wanted) return; // another text was asked for meanwhile
      const data = await patiently(() => post("look", asked), undefined, (seconds) => {
        if (this.shown === wanted) this.told.textContent = texts.trying(seconds);
      });
      if (this.shown !== wanted) return;
      this.told.textContent = "";
      this.note.textContent = more ? texts.firstSentence : "";
      this.holder.className = "holder";
      showAttention(this.holder, data, { language });
    } catch (fault) {
      if (this.shown !== wanted) return;
      this.shown = "";
      this.told.textContent = why(fault, texts);
    }
  }
}

// Why the chosen model cannot be looked into; nothing where it can.
export function noLook(page) {
  const { source, target, model } = page.current;
  const models = page.modelsOf(source, target);
  const chosen = models.find(({ name }) => name === model) ?? models[0];
  if (!chosen) return page.texts.noModel;
  return chosen.alignment ? "" : page.texts.noMaps;
}

// The first sentence of a text, as the server parts it, with its translation where that is known, and whether
// the text has more. Sentences are translated one by one: maps of two at once would be of nothing that happened.
export async function sentenceOf(page, text) {
  const { source, target, model, ...current } = page.current;
  const how = { source, target, ...(model ? { model } : {}) };
  const lines = text.split(/\r?\n/).filter((one) => one.trim());
  let { sentences, translation } = current;
  if (current.translated !== text || !sentences?.length) {
    const found = await patiently(() => post("translate", { q: lines[0].trim(), details: true, ...how }), undefined, () => {});
    translation = found.translatedText;
    sentences = found.details?.sentences ?? [lines[0].trim()];
  }
  const more = lines.length > 1 || sentences.length > 1;
  const q = sentences[0] ?? lines[0].trim();
  return { asked: { q, ...how, ...(more ? {} : { translation: translation.trim() }) }, more };
}
