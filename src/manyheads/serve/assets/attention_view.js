// The attention view: the explorer of `manyheads look` for the first sentence of the text, or for a sentence that is
// written here.

import { element } from "./look/dom.js";
import { showAttention } from "./look/attention_explorer.js";
import { post, retryWhileBusy } from "./api_client.js";
import { Notice } from "./notice.js";
import { attentionUnavailable, chooseText, createSentenceForm, prepareSentence } from "./sentence.js";

export class AttentionView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "attention-view" });
    this.text = ""; // the latest, and what was chosen elsewhere when it was loaded
    this.textChoice = "";
  }

  build() {
    this.notice?.clear();
    this.notice = new Notice(this.page);
    this.note = element("p", { class: "quiet first-sentence" });
    this.container = element("div", { class: "explorer" });
    const { form, input } = createSentenceForm(this.page, { value: this.text, onSubmit: (text) => this.load(text) });
    this.input = input;
    this.root.replaceChildren(
      element("h2", {}, this.page.texts.views.attention),
      element("p", { class: "lead" }, this.page.texts.attentionAbout),
      form,
      this.notice.root,
      this.note,
      this.container,
    );
    this.shown = "";
  }

  leave() {
    this.notice?.clear(); // a lost server is asked again when the view is opened
  }

  // Takes the text of the translate view, unless it was taken already.
  enter() {
    const choice = JSON.stringify(this.page.current);
    if (choice !== this.shown) return this.load(choice === this.textChoice ? this.text : chooseText(this.page));
  }

  async load(text) {
    const { page } = this;
    const { texts, language } = page;
    const loading = (this.loading = {});
    const isLate = () => loading !== this.loading; // another text was requested in the meantime
    this.shown = this.textChoice = JSON.stringify(page.current);
    this.text = text;
    this.input.value = text.split(/\r?\n/).find((line) => line.trim())?.trim() ?? "";
    this.container.replaceChildren();
    this.note.textContent = "";
    const hindrance = attentionUnavailable(page) || (text ? "" : texts.needText);
    this.notice.show(hindrance || texts.loading);
    if (hindrance) return;
    try {
      const { fields, hasMore } = await prepareSentence(page, text);
      if (isLate()) return;
      this.input.value = fields.q;
      const data = await retryWhileBusy(() => post("look", fields), undefined, (seconds) => {
        if (!isLate()) this.notice.show(texts.retrying(seconds));
      });
      if (isLate()) return;
      this.notice.show("");
      this.note.textContent = hasMore ? texts.firstSentence : "";
      this.container.className = "explorer";
      showAttention(this.container, data, { language });
    } catch (error) {
      if (isLate()) return;
      this.shown = "";
      this.notice.showFailure(error, () => this.load(text));
    }
  }
}
