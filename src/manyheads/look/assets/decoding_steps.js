// Sliders over the checkpoints of training and the steps of decoding, and the candidates of a step.

import { element } from "./dom.js";
import { readableToken, readableTokens } from "./token_text.js";

const SNAPSHOT_MILLISECONDS = 1800; // enough to read the translation of a step

function createSlider(name, text, max, set) {
  return element(
    "label",
    { class: `slider ${name}` },
    element("span", {}, text),
    element("input", { type: "range", name, min: 0, max, step: 1, oninput: (event) => set(Number(event.target.value)) }),
    element("output", {}),
  );
}

export function createSliders(data, texts, onChange) {
  const setStep = (step) => onChange({ step: step ? step - 1 : null, token: null });
  return element("div", { class: "sliders" }, createSlider("step", texts.step, data.tokens.target.length, setStep));
}

// Of a run: a slider over its snapshots, a button that goes through them from the first to the last, and what each would
// have translated. Whoever moves the slider takes over. change(difference) sets the state, play(snapshot) shows the next
// one. A list of elements, which is empty for a single model.
export function createPlayer(data, texts, { change, play }) {
  const last = data.snapshots.length - 1;
  if (!last) return [];
  const slider = createSlider("snapshot", texts.snapshot, last, (snapshot) => change({ snapshot }));
  const input = slider.querySelector("input");
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = texts.play;
  };
  const show = (snapshot) => {
    if (!button.isConnected) return stop();
    play(snapshot);
    if (snapshot === last) stop();
  };
  const start = () => {
    if (timer) return stop();
    button.textContent = texts.pause;
    timer = setInterval(() => show(Number(input.value) + 1), SNAPSHOT_MILLISECONDS);
    if (Number(input.value) === last) show(0);
  };
  const button = element("button", { type: "button", class: "play", onclick: start }, texts.play);
  input.addEventListener("input", stop);
  const translation = element(
    "p",
    { class: "snapshot-translation" },
    element("span", { class: "name" }, texts.snapshotTranslation),
    element("span", { lang: data.languages.target }),
  );
  return [element("div", { class: "player" }, button, slider, translation)];
}

export function updateSliders(root, state, data, texts) {
  const setValue = (input, value, text) => {
    input.value = value;
    input.nextSibling.value = text;
    input.setAttribute("aria-valuetext", text);
  };
  const { translation, step, name } = data.snapshots[state.snapshot];
  const numSteps = data.tokens.target.length;
  root.querySelector(".slider.step").hidden = state.attention === "encoder"; // the encoder reads all at once
  const stepText = state.step === null ? texts.allSteps : texts.stepOf(state.step + 1, numSteps);
  setValue(root.querySelector("[name=step]"), state.step === null ? 0 : state.step + 1, stepText);
  const slider = root.querySelector("[name=snapshot]");
  if (slider) {
    setValue(slider, state.snapshot, step === null ? name : texts.snapshotStep(step));
    root.querySelector(".snapshot-translation span + span").textContent = translation || texts.noTranslation;
  }
}

// The most probable tokens of the chosen step; the token of the translation is among them in any case.
export function drawCandidates(container, state, data, texts) {
  const { candidates, probabilities } = data.snapshots[state.snapshot];
  container.hidden = state.step === null || state.attention === "encoder" || !candidates.length;
  if (container.hidden) return container.replaceChildren();
  const chosen = data.tokens.target[state.step];
  const items = candidates[state.step].map(([piece, probability]) =>
    createCandidate(piece, probability, piece === chosen, texts, data),
  );
  if (!candidates[state.step].some(([piece]) => piece === chosen))
    items.push(createCandidate(chosen, probabilities[state.step], true, texts, data));
  const prefix = readableTokens(data.tokens.decoder_input, texts).slice(0, state.step + 1).join(" ");
  container.replaceChildren(
    element("h2", {}, texts.candidates),
    element("p", { class: "prefix" }, `${texts.prefix}: `, element("span", { lang: data.languages.target }, prefix)),
    element("ol", {}, ...items),
  );
}

function createCandidate(piece, probability, isChosen, texts, data) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${100 * probability}%`;
  return element(
    "li",
    { class: isChosen ? "chosen" : null, "data-probability": probability },
    element("span", { class: "piece", lang: data.languages.target }, readableToken(piece, texts)),
    element("span", { class: "track" }, bar),
    element("span", {}, texts.percent((100 * probability).toFixed(2)) + (isChosen ? ` · ${texts.chosen}` : "")),
  );
}
