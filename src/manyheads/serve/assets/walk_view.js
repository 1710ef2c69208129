// The walkthrough view: one sentence through the model, with the numbers that the server computes, layer by layer.

import { element } from "./look/dom.js";
import { createSentencePair } from "./look/sentence_pair.js";
import { showWalk } from "./look/walk_explorer.js";
import { post, retryWhileBusy } from "./api_client.js";
import { Notice } from "./notice.js";
import { attentionUnavailable, chooseText, createSentenceForm, prepareSentence } from "./sentence.js";

const EXAMPLE_SENTENCES = { en: "I go home.", ko: "나는 오늘 점심을 먹었어." };
// Numbers of each vector and whether the matrices come too: as much as the server sends.
const REQUESTS = [
  { width: 4096, parameters: true },
  { width: 4096, parameters: false },
  { width: 512, parameters: false },
  { width: 8, parameters: false },
];

export class WalkView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "walk-view" });
  }

  build() {
    const { texts } = this.page;
    this.notice?.clear();
    this.notice = new Notice(this.page);
    const { form, input } = createSentenceForm(this.page, { value: this.fields?.q ?? "", onSubmit: (q) => this.submit(q) });
    const parts = (this.parts = {
      sentence: input,
      note: element("p", { class: "quiet first-sentence" }),
      pair: element("div", {}),
      walk: element("div", {}),
      card: element("div", { class: "surface", hidden: true }),
    });
    this.root.replaceChildren(
      element("h2", {}, texts.views.walk),
      form,
      this.notice.root,
      parts.note,
      parts.pair,
      parts.card,
    );
    parts.card.append(parts.walk);
    if (this.fields) this.open();
  }

  leave() {
    this.notice?.clear(); // a lost server is asked again when the view is opened
  }

  // Takes the text of the translate view, unless it was taken already.
  enter() {
    const { text, source } = this.page.current;
    const key = JSON.stringify(this.page.current);
    const unavailable = attentionUnavailable(this.page);
    if (unavailable) return this.clear(unavailable);
    if (text.trim() && key !== this.loadedKey) {
      this.loadedKey = key;
      return this.loadText(text);
    }
    const example = chooseText(this.page) || (EXAMPLE_SENTENCES[source] ?? "");
    if (!this.fields && example) return this.loadText(example);
  }

  submit(q) {
    return q === this.fields?.q ? this.open() : this.loadText(q);
  }

  // Shows the first sentence of the text.
  async loadText(text) {
    const { page, parts } = this;
    const loading = (this.loading = {});
    this.text = text;
    const unavailable = attentionUnavailable(page);
    if (unavailable) return this.clear(unavailable);
    this.clear(page.texts.loading);
    this.fields = null;
    parts.sentence.value = text.split(/\r?\n/).find((line) => line.trim()).trim();
    try {
      const { fields, hasMore } = await prepareSentence(page, text);
      if (loading !== this.loading) return;
      this.fields = fields;
      this.parts.sentence.value = fields.q;
      if (await this.open()) this.parts.note.textContent = hasMore ? page.texts.firstSentence : "";
    } catch (error) {
      if (loading === this.loading) this.fail(error);
    }
  }

  // Removes the numbers, so that those of another sentence never stand beside the message.
  clear(message) {
    this.opened = null;
    this.parts.walk.replaceChildren();
    this.parts.card.hidden = true;
    this.parts.pair.replaceChildren();
    this.parts.note.textContent = "";
    this.notice.show(message);
  }

  // Shows an error instead of the numbers. The text is loaded again when it is tried again or the view is opened.
  fail(error) {
    this.clear("");
    this.fields = this.loadedKey = null;
    this.notice.showFailure(error, () => this.loadText(this.text));
  }

  // Returns whether the walk was drawn.
  async open() {
    const { page, fields, parts } = this;
    const opened = (this.opened = {});
    const layers = new Map();
    const request = async (stack, layer) => {
      const data = await this.requestLayer({ ...fields, stack, layer }, opened);
      fields.translation ??= data.target; // every layer of one and the same translation
      return data;
    };
    const load = (stack, layer) => {
      const key = `${stack}.${layer}`;
      if (!layers.has(key)) layers.set(key, request(stack, layer));
      return layers.get(key).catch((error) => {
        layers.delete(key);
        if (this.opened === opened) this.fail(error);
        throw error;
      });
    };
    this.notice.show(page.texts.loading);
    try {
      const { source, target, languages } = await load("encoder", 0);
      if (this.opened !== opened) return false;
      parts.card.hidden = false;
      await showWalk(parts.walk, { load }, { language: page.language });
      this.notice.show("");
      parts.pair.replaceChildren(
        createSentencePair([
          ["source", page.texts.source, source, languages.source],
          ["target", page.texts.translation, target, languages.target],
        ]),
      );
      return true;
    } catch {
      return false; // the message is shown already
    }
  }

  // The first request that the server has not too many numbers for; the others need not be tried again.
  async requestLayer(fields, opened) {
    const onWait = (seconds) => {
      if (this.opened === opened) this.notice.show(this.page.texts.retrying(seconds));
    };
    for (opened.request ??= 0; ; opened.request++) {
      try {
        return await retryWhileBusy(() => post("walk", { ...fields, ...REQUESTS[opened.request] }), undefined, onWait);
      } catch (error) {
        if (error.code !== "too_many_numbers" || opened.request === REQUESTS.length - 1) throw error;
      }
    }
  }
}
