// A hello for visitors: what the model was trained on, and sentences of its test set to try.

import { element } from "./look/dom.js";
import { languageName } from "./look/page_languages.js";

export class Welcome {
  constructor(page, onChoose) {
    Object.assign(this, { page, onChoose });
    this.root = element("section", { class: "welcome" });
  }

  // The model of the chosen languages.
  show() {
    const { texts, current, language } = this.page;
    const models = this.page.modelsFor(current.source, current.target);
    const model = models.find(({ name }) => name === current.model) ?? models[0];
    this.root.hidden = !model;
    if (!model) return;
    const [source, target] = [model.source, model.target].map((code) => languageName(code, language));
    const facts = [model.training_pairs ? texts.welcomePairs(model.training_pairs) : texts.welcome];
    facts.push(model.calibrated ? texts.welcomeCalibrated : texts.welcomeLimits);
    const examples = model.examples.map((text) =>
      element("button", { type: "button", class: "example", lang: model.source, onclick: () => this.onChoose(text) }, text),
    );
    const group = element("div", { class: "examples", role: "group", "aria-label": texts.examples });
    group.append(element("span", { class: "quiet" }, texts.examples), ...examples);
    this.root.replaceChildren(
      element("h2", {}, texts.direction(source, target)),
      element("p", {}, facts.join(" ")),
      ...(examples.length ? [group] : []),
    );
  }
}
