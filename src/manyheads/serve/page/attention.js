// What every head looks at while the text is translated: the attention page's own view.

import { element } from "./look/elements.js";
import { showAttention } from "./look/show.js";
import { post } from "./asking.js";

export class AttentionView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "attention-view" });
    this.shown = "";
  }

  build() {
    this.told = element("p", { class: "told", role: "status" });
    this.holder = element("div", { class: "holder" });
    this.root.replaceChildren(
      element("h2", {}, this.page.texts.views.attention),
      element("p", { class: "lead" }, this.page.texts.attentionAbout),
      this.told,
      this.holder,
    );
    this.shown = "";
  }

  async enter() {
    const { texts, language } = this.page;
    const asked = sentenceOf(this.page);
    const wanted = JSON.stringify(asked);
    if (!asked) {
      this.told.textContent = texts.needText;
      this.holder.replaceChildren();
      this.shown = "";
      return;
    }
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.told.textContent = texts.loading;
    try {
      const data = await post("look", asked);
      if (this.shown !== wanted) return; // another text was asked for meanwhile
      this.told.textContent = "";
      this.holder.className = "holder";
      showAttention(this.holder, data, { language });
    } catch (fault) {
      if (this.shown !== wanted) return;
      this.shown = "";
      this.holder.replaceChildren();
      this.told.textContent = fault.status ? fault.message : texts.unreachable;
    }
  }
}

// The first line that says something, with the translation that is shown of it; null where there is none.
export function sentenceOf(page) {
  const { text, source, target, model, translated, translation } = page.current;
  const lines = text.split(/\r?\n/).filter((one) => one.trim());
  if (!lines.length) return null;
  const whole = lines.length === 1 && translated === text;
  return {
    q: lines[0].trim(),
    source,
    target,
    ...(model ? { model } : {}),
    ...(whole ? { translation: translation.trim() } : {}),
  };
}
