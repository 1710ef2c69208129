// The attention view: the explorer of `manyheads look` for the first sentence of the text.

import { element } from "./look/dom.js";
import { showAttention } from "./look/attention_explorer.js";
import { post, retryWhileBusy } from "./api_client.js";
import { Notice } from "./notice.js";
import { attentionUnavailable, chooseText, prepareSentence } from "./sentence.js";

export class AttentionView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "attention-view" });
    this.shown = "";
  }

  build() {
    this.notice?.clear();
    this.notice = new Notice(this.page);
    this.note = element("p", { class: "quiet first-sentence" });
    this.container = element("div", { class: "explorer" });
    this.root.replaceChildren(
      element("h2", {}, this.page.texts.views.attention),
      element("p", { class: "lead" }, this.page.texts.attentionAbout),
      this.notice.root,
      this.note,
      this.container,
    );
    this.shown = "";
  }

  leave() {
    this.notice?.clear(); // a lost server is asked again when the view is opened
  }

  async enter() {
    const { texts, language, current } = this.page;
    const requested = JSON.stringify(current);
    if (requested === this.shown) return;
    this.shown = requested;
    this.container.replaceChildren();
    this.note.textContent = "";
    const text = chooseText(this.page);
    const hindrance = attentionUnavailable(this.page) || (text ? "" : texts.needText);
    this.notice.show(hindrance || texts.loading);
    if (hindrance) return;
    try {
      const { fields, hasMore } = await prepareSentence(this.page, text);
      if (this.shown !== requested) return; // another text was requested in the meantime
      const data = await retryWhileBusy(() => post("look", fields), undefined, (seconds) => {
        if (this.shown === requested) this.notice.show(texts.retrying(seconds));
      });
      if (this.shown !== requested) return;
      this.notice.show("");
      this.note.textContent = hasMore ? texts.firstSentence : "";
      this.container.className = "explorer";
      showAttention(this.container, data, { language });
    } catch (error) {
      if (this.shown !== requested) return;
      this.shown = "";
      this.notice.showFailure(error, () => this.enter());
    }
  }
}
