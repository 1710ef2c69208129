// The walkthrough view: one sentence through one layer of the model, with the numbers that it computes.

import { element } from "./look/dom.js";
import { errorMessage, post, retryWhileBusy } from "./api_client.js";
import { attentionUnavailable, prepareSentence } from "./sentence.js";
import { DEFAULT_WIDTH, createWalk } from "./walk_steps.js";

const FULL_WIDTH = 2 ** 20;
const EXAMPLE_SENTENCES = { en: "I go home.", ko: "나는 오늘 점심을 먹었어." };

export class WalkView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "walk-view" });
    this.options = { stack: "encoder", layer: 0, head: 0 };
    this.expanded = new Set(); // steps that show all their numbers
  }

  build() {
    const { texts, settings } = this.page;
    const numberSelect = (name, onSelect) =>
      element("select", { name: `walk-${name}`, onchange: (event) => onSelect(Number(event.target.value)) });
    const stacks = ["encoder", "decoder"].map((stack) =>
      element("option", { value: stack, selected: stack === this.options.stack }, texts[stack]),
    );
    const parts = (this.parts = {
      sentence: element("input", {
        type: "text",
        id: "sentence",
        value: this.fields?.q ?? "",
        maxlength: settings.charLimit,
      }),
      stack: element("select", { name: "stack", onchange: (event) => this.change({ stack: event.target.value }) }, ...stacks),
      layer: numberSelect("layer", (layer) => this.change({ layer })),
      head: numberSelect("head", (head) => this.selectHead(head)),
      message: element("p", { class: "message", role: "status" }),
      note: element("p", { class: "quiet first-sentence" }),
      steps: element("div", { class: "walk" }),
    });
    const createLabel = (text, input) => element("label", {}, `${text} `, input);
    this.root.replaceChildren(
      element("h2", {}, texts.views.walk),
      element("p", { class: "lead" }, texts.walkAbout),
      element(
        "form",
        { class: "walk-form", onsubmit: (event) => this.submit(event) },
        element("label", { for: "sentence" }, texts.sentence),
        parts.sentence,
        element("button", {}, texts.walkButton),
      ),
      element(
        "div",
        { class: "choices-row" },
        createLabel(texts.stack, parts.stack),
        createLabel(texts.layer, parts.layer),
        createLabel(texts.head, parts.head),
      ),
      parts.message,
      parts.note,
      parts.steps,
    );
    if (this.data) this.draw();
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
    if (q === this.fields?.q) return this.load();
    return this.loadText(q);
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
      await this.load();
      if (loading === this.loading && this.data) this.parts.note.textContent = hasMore ? page.texts.firstSentence : "";
    } catch (error) {
      if (loading === this.loading) this.clear(errorMessage(error, page.texts));
    }
  }

  // Removes the numbers, so that those of another sentence never stand beside the message.
  clear(message) {
    this.data = this.requested = null;
    this.expanded.clear();
    this.parts.steps.replaceChildren();
    this.parts.note.textContent = "";
    this.parts.message.textContent = message;
  }

  change(difference) {
    Object.assign(this.options, difference);
    this.load();
  }

  selectHead(head) {
    this.options.head = head;
    this.draw();
  }

  async load(width = DEFAULT_WIDTH) {
    if (!this.fields) return;
    const { texts } = this.page;
    const { stack, layer } = this.options;
    const fields = { ...this.fields, stack, layer, width };
    const requested = (this.requested = JSON.stringify(fields));
    const isFull = width !== DEFAULT_WIDTH;
    const showMessage = (message) => {
      if (this.requested === requested) this.parts.message.textContent = message;
    };
    const onWait = (seconds) => showMessage(texts.retrying(seconds));
    showMessage(texts.loading);
    this.setStale(true);
    try {
      const data = await retryWhileBusy(() => post("walk", fields), undefined, onWait);
      if (this.requested !== requested) return;
      if (!isFull) this.expanded.clear();
      this.data = data;
      this.hasAllNumbers = isFull;
      showMessage("");
      this.draw();
    } catch (error) {
      if (this.requested !== requested) return;
      // The first numbers are correct, and stay, where only the full vectors are too many.
      if (isFull && error.code === "too_many_numbers") showMessage(texts.notAllNumbers);
      else this.clear(errorMessage(error, texts));
      this.expanded.clear();
    }
    this.setStale(false);
  }

  setStale(isStale) {
    this.parts.steps.classList.toggle("stale", isStale);
    this.parts.steps.setAttribute("aria-busy", String(isStale));
  }

  draw() {
    const { data, options, parts, expanded } = this;
    if (!data) return;
    options.head = Math.min(options.head, data.heads - 1);
    updateOptions(parts.layer, data.layers, options.layer);
    updateOptions(parts.head, data.heads, options.head);
    const onExpand = (n) => this.toggleExpanded(n);
    parts.steps.replaceChildren(...createWalk({ data, head: options.head, texts: this.page.texts, expanded, onExpand }));
  }

  async toggleExpanded(n) {
    if (this.expanded.has(n)) this.expanded.delete(n);
    else {
      this.expanded.add(n);
      if (!this.hasAllNumbers) await this.load(FULL_WIDTH);
    }
    this.draw();
    this.root.querySelectorAll(".step")[n]?.querySelector(".more")?.focus();
  }
}

// Numbers from 1. The options stay the same where their number does: a list may be open in the browser.
function updateOptions(select, count, value) {
  if (select.options.length !== count)
    select.replaceChildren(...Array.from({ length: count }, (_, n) => element("option", { value: n }, String(n + 1))));
  select.value = value;
}
