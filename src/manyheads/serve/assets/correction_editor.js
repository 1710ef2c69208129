// Edits a translation and saves it as a correction, which is used from then on; undo; similar corrections.

import { element } from "./look/dom.js";
import { errorMessage, post } from "./api_client.js";

export class CorrectionEditor {
  // `retranslate` requests the translation again.
  constructor(page, retranslate) {
    this.page = page;
    this.retranslate = retranslate;
    this.response = null; // with its request
  }

  // Returns the elements that the result lays out: none where the server takes no corrections.
  build(showMessage) {
    const { texts, settings } = this.page;
    this.showMessage = showMessage;
    const parts = (this.parts = {
      edit: element("button", { type: "button", class: "edit", onclick: () => this.open() }, texts.correct),
      undo: element("button", { type: "button", class: "undo", onclick: () => this.undo() }, texts.undoCorrection),
      input: element("textarea", { id: "correction", rows: 4 }),
      similar: element("ul", { class: "similar quiet", "aria-label": texts.similarCorrections, hidden: true }),
    });
    parts.form = element(
      "form",
      { class: "correction", hidden: true, onsubmit: (event) => this.save(event) },
      element("label", { class: "name", for: "correction" }, texts.rightTranslation),
      parts.input,
      element(
        "div",
        { class: "row" },
        element("button", { class: "save" }, texts.saveCorrection),
        element("button", { type: "button", onclick: () => this.close() }, texts.cancelCorrection),
      ),
    );
    parts.form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    this.isEnabled = settings.suggestions;
    this.show(this.response);
    return this.isEnabled ? parts : { edit: null, undo: null, form: null, similar: null };
  }

  setLanguage(target) {
    this.parts.input.lang = target;
    this.parts.similar.lang = target;
  }

  show(response) {
    const { texts } = this.page;
    const { edit, undo, form, similar } = this.parts;
    this.response = response;
    const matches = response?.corrections ?? [];
    form.hidden = true;
    edit.hidden = !this.isEnabled || !response;
    undo.hidden = !this.isEnabled || !matches.some(({ match, source }) => match === "exact" && isSame(source, response));
    const others = matches.filter(({ match }) => match === "similar");
    similar.hidden = !others.length;
    similar.replaceChildren(
      ...others.map(({ source, target, similarity }) =>
        element("li", {}, texts.similarCorrection(source, target, Math.round(100 * similarity))),
      ),
    );
  }

  open() {
    const { form, input, edit } = this.parts;
    input.value = this.response.translatedText;
    form.hidden = false;
    edit.hidden = true;
    input.focus();
  }

  close() {
    this.parts.form.hidden = true;
    this.parts.edit.hidden = false;
    this.parts.edit.focus();
  }

  async save(event) {
    event.preventDefault();
    const { texts } = this.page;
    const s = this.parts.input.value;
    if (!s.trim()) return this.showMessage(texts.emptyCorrection);
    const saved = await this.send("suggest", { ...this.fields, s });
    if (!saved) return;
    this.parts.form.hidden = true;
    await this.retranslate();
    this.showMessage(texts.correctionSaved);
    this.parts.edit.focus();
  }

  async undo() {
    const { texts } = this.page;
    const answer = await this.send("suggest/undo", this.fields);
    if (!answer) return;
    await this.retranslate();
    this.showMessage(answer.success ? texts.correctionUndone : texts.nothingUndone);
    this.parts.edit.focus();
  }

  get fields() {
    const { q, source, target, model } = this.response.request;
    return { q, source, target, ...(model ? { model } : {}) };
  }

  // Returns the answer of the server, or null after showing why there is none.
  async send(path, fields) {
    try {
      return await post(path, fields);
    } catch (error) {
      this.showMessage(errorMessage(error, this.page.texts));
      return null;
    }
  }
}

function isSame(source, { request }) {
  return source === request.q.trim().replace(/[^\S\n]+/g, " ");
}
