// How the model searches: greedy or beam, the temperature of sampling, and which of two models.

import { element } from "../assets/dom.js";

const MAX_TEMPERATURE = 2;
const BEAMS = [1, 4];

export class SearchControls {
  constructor(page) {
    this.page = page;
    const { texts } = page;
    this.beams = BEAMS.map((beam) => {
      const name = beam === 1 ? texts.greedy : texts.beam(beam);
      const onclick = () => page.change({ beam, temperature: 0 });
      return element("button", { type: "button", "data-beam": beam, "data-name": name, onclick }, name);
    });
    this.temperature = element("input", {
      type: "range",
      id: "temperature",
      min: 0,
      max: MAX_TEMPERATURE,
      step: 0.05,
      oninput: () => page.change({ temperature: Number(this.temperature.value) }),
    });
    this.value = element("output", { for: "temperature" });
    this.again = element(
      "button",
      { type: "button", onclick: () => page.change({ seed: page.state.seed + 1 }) },
      texts.again,
    );
    this.models = page.translators.map((model, index) =>
      element(
        "button",
        { type: "button", "data-model": index, onclick: () => page.change({ model: index }) },
        page.nameModel(model),
      ),
    );
    const group = (name, buttons) => element("div", { class: "segments", role: "group", "aria-label": name }, ...buttons);
    this.node = element(
      "section",
      { class: "controls", "aria-label": texts.search },
      page.translators.length > 1 ? group(texts.model, this.models) : null,
      group(texts.search, this.beams),
      element(
        "div",
        { class: "temperature" }, // its width stays, so that the slider does not move under the pointer
        element("label", { for: "temperature", class: "name" }, texts.temperature),
        this.temperature,
        this.value,
        this.again,
      ),
    );
  }

  refresh() {
    const { state, texts } = this.page;
    this.beams.forEach((button) => {
      const isOn = !state.temperature && Number(button.dataset.beam) === state.beam;
      button.setAttribute("aria-pressed", String(isOn));
    });
    this.models.forEach((button, index) => button.setAttribute("aria-pressed", String(index === state.model)));
    this.temperature.value = state.temperature;
    this.value.textContent = state.temperature ? state.temperature.toFixed(2) : texts.temperatureOff;
    this.again.classList.toggle("is-unused", !state.temperature);
  }
}
