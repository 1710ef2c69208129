// The attention view: the explorer of `manyheads look` for the first sentence of the text.

import { element } from "./look/dom.js";
import { showAttention } from "./look/attention_explorer.js";
import { errorMessage, post, retryWhileBusy } from "./api_client.js";
import { attentionUnavailable, prepareSentence } from "./sentence.js";

export class AttentionView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "attention-view" });
    this.shown = "";
  }

  build() {
    this.status = element("p", { class: "message", role: "status" });
    this.note = element("p", { class: "quiet first-sentence" });
    this.container = element("div", { class: "explorer" });
    this.root.replaceChildren(
      element("h2", {}, this.page.texts.views.attention),
      element("p", { class: "lead" }, this.page.texts.attentionAbout),
      this.status,
      this.note,
      this.container,
    );
    this.shown = "";
  }

  async enter() {
    const { texts, language, current } = this.page;
    const requested = JSON.stringify(current);
    if (requested === this.shown) return;
    this.shown = requested;
    this.container.replaceChildren();
    this.note.textContent = "";
    this.status.textContent = attentionUnavailable(this.page) || (current.text.trim() ? texts.loading : texts.needText);
    if (this.status.textContent !== texts.loading) return;
    try {
      const { fields, hasMore } = await prepareSentence(this.page, current.text);
      if (this.shown !== requested) return; // another text was requested in the meantime
      const data = await retryWhileBusy(() => post("look", fields), undefined, (seconds) => {
        if (this.shown === requested) this.status.textContent = texts.retrying(seconds);
      });
      if (this.shown !== requested) return;
      this.status.textContent = "";
      this.note.textContent = hasMore ? texts.firstSentence : "";
      this.container.className = "explorer";
      showAttention(this.container, data, { language });
    } catch (error) {
      if (this.shown !== requested) return;
      this.shown = "";
      this.status.textContent = errorMessage(error, texts);
    }
  }
}
