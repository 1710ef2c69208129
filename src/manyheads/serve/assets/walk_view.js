// The walkthrough view: one sentence through the model, with the numbers that the server computes, layer by layer.

import { element } from "./look/dom.js";
import { showWalk } from "./look/walk_explorer.js";
import { errorMessage, post, retryWhileBusy } from "./api_client.js";
import { attentionUnavailable, prepareSentence } from "./sentence.js";

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
    const { texts, settings } = this.page;
    const parts = (this.parts = {
      sentence: element("input", {
        type: "text",
        id: "sentence",
        value: this.fields?.q ?? "",
        maxlength: settings.charLimit,
      }),
      message: element("p", { class: "message", role: "status" }),
      note: element("p", { class: "quiet first-sentence" }),
      pair: element("p", { class: "sentence-pair" }),
      walk: element("div", {}),
    });
    this.root.replaceChildren(
      element("h2", {}, texts.views.walk),
      element(
        "form",
        { class: "walk-form", onsubmit: (event) => this.submit(event) },
        element("label", { for: "sentence" }, texts.sentence),
        parts.sentence,
        element("button", {}, texts.walkButton),
      ),
      parts.message,
      parts.note,
      parts.pair,
      parts.walk,
    );
    if (this.fields) this.open();
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
    const example = EXAMPLE_SENTENCES[source] ?? "";
    if (!this.fields && example) return this.loadText(example);
  }

  submit(event) {
    event.preventDefault();
    const q = this.parts.sentence.value.trim();
    if (!q) return;
    return q === this.fields?.q ? this.open() : this.loadText(q);
  }

  // Shows the first sentence of the text.
  async loadText(text) {
    const { page, parts } = this;
    const loading = (this.loading = {});
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
      if (loading === this.loading) this.clear(errorMessage(error, page.texts));
    }
  }

  // Removes the numbers, so that those of another sentence never stand beside the message.
  clear(message) {
    this.opened = null;
    this.parts.walk.replaceChildren();
    this.parts.pair.replaceChildren();
    this.parts.note.textContent = "";
    this.parts.message.textContent = message;
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
        if (this.opened === opened) this.clear(errorMessage(error, page.texts));
        throw error;
      });
    };
    parts.message.textContent = page.texts.loading;
    try {
      const { source, target, languages } = await load("encoder", 0);
      if (this.opened !== opened) return false;
      await showWalk(parts.walk, { load }, { language: page.language });
      parts.message.textContent = "";
      parts.pair.replaceChildren(
        element("span", { lang: languages.source }, source),
        " → ",
        element("span", { lang: languages.target }, target),
      );
      return true;
    } catch {
      return false; // the message is shown already
    }
  }

  // The first request that the server has not too many numbers for; the others need not be tried again.
  async requestLayer(fields, opened) {
    const onWait = (seconds) => {
      if (this.opened === opened) this.parts.message.textContent = this.page.texts.retrying(seconds);
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
