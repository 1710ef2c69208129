// The header and the controls: languages, views, layers, heads, and the search for heads like the figures.

import { element } from "./dom.js";
import { LANGUAGES } from "./page_languages.js";
import { createSentencePair } from "./sentence_pair.js";
import { VIEWS, allHeads, attentionTypes } from "./view_state.js";

// `actions` holds change(difference), compareHeads(enabled), changeCompared(index, value), toggleHead(head) and
// findHead(pattern).
export function createHeader(data, texts, actions) {
  const { languages } = data;
  const rows = [
    ["source", texts.source, data.text.source, languages.source],
    ["target", texts.target, data.text.target, languages.target],
  ];
  return element(
    "header",
    {},
    element(
      "label",
      { class: "language" },
      element("span", { class: "language-name" }, texts.language),
      createSelect("language", Object.entries(LANGUAGES), (language) => actions.change({ language })),
    ),
    createSentencePair(rows),
  );
}

export function createControls(data, texts, actions) {
  const segments = (name, values) =>
    values.map((value) =>
      element(
        "button",
        { type: "button", "data-set": name, "data-value": value, onclick: () => actions.change({ [name]: value }) },
        texts[value],
      ),
    );
  return element(
    "div",
    { class: "controls" },
    createGroup("segments attention-types", texts.attention, ...segments("attention", attentionTypes(data))),
    createGroup("segments views", texts.view, ...segments("view", VIEWS)),
  );
}

// What the navigator and the views do not need at once.
export function createOptions(data, texts, actions) {
  return element(
    "div",
    { class: "options" },
    createGroup("choices", texts.heads, ...createChoices(data, texts, actions)),
    createGroup("chips", texts.heads, ...createHeadChips(data, texts, actions)),
    createGroup("finders", texts.find, ...createFinders(texts, actions)),
  );
}

function createGroup(className, label, ...children) {
  return element("div", { class: `group ${className}`, role: "group", "aria-label": label }, ...children);
}

function createSelect(name, options, onSelect) {
  const children = options.map(([value, text]) => element("option", { value }, text));
  return element("select", { name, onchange: (event) => onSelect(event.target.value) }, ...children);
}

function createCheckbox(name, onToggle) {
  return element("input", { type: "checkbox", name, onchange: (event) => onToggle(event.target.checked) });
}

function createChoices(data, texts, actions) {
  const { change } = actions;
  const countFromOne = (count) => Array.from({ length: count }, (_, n) => [n, String(n + 1)]);
  const [layers, heads] = [Math.max(...Object.values(data.layers)), data.heads].map(countFromOne);
  const sorts = ["position", ...data.measures].map((name) => [name, texts[name]]);
  const createLabel = (className, text, input) => element("label", { class: className }, `${text} `, input);
  const sortBy = (sort) => change({ sort, descending: sort !== "position" });
  return [
    createLabel("layer", texts.layer, createSelect("layer", layers, (value) => change({ layer: Number(value) }))),
    createLabel("head", texts.headNumber, createSelect("head", heads, (value) => change({ head: Number(value) }))),
    createLabel("words", texts.mergeWords, createCheckbox("words", (words) => change({ words }))),
    createLabel("compare", texts.compare, createCheckbox("compare", actions.compareHeads)),
    createLabel(
      "compared",
      texts.otherLayer,
      createSelect("other-layer", layers, (value) => actions.changeCompared(0, Number(value))),
    ),
    createLabel(
      "compared",
      texts.otherHead,
      createSelect("other-head", heads, (value) => actions.changeCompared(1, Number(value))),
    ),
    createLabel("sort", texts.sort, createSelect("sort", sorts, sortBy)),
  ];
}

function createHeadChips(data, texts, actions) {
  const createChip = (head) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = data.colors[head];
    const attributes = { type: "button", class: "chip", "data-chip": head };
    const name = `${texts.headNumber} ${head + 1}`;
    const onclick = () => actions.toggleHead(head);
    return element("button", { ...attributes, "aria-label": name, onclick }, swatch, String(head + 1));
  };
  const createAllButton = (name, heads) =>
    element("button", { type: "button", "data-chips": name, onclick: () => actions.change({ heads }) }, texts[name]);
  const all = allHeads(data);
  return [
    element("span", {}, texts.heads),
    ...all.map(createChip),
    createAllButton("all", all),
    createAllButton("none", []),
  ];
}

function createFinders(texts, actions) {
  return [
    element("span", {}, texts.find),
    ...["long", "sharp", "structural"].map((pattern) =>
      element(
        "button",
        { type: "button", "data-find": pattern, onclick: () => actions.findHead(pattern) },
        texts[pattern],
      ),
    ),
    element("output", { class: "find-result" }),
  ];
}

// Write the state into the controls, and hide those that the view has no use for.
export function updateControls(root, { state, data, texts, language }) {
  const input = (name) => root.querySelector(`[name="${name}"]`);
  const setVisible = (selector, visible) => root.querySelectorAll(selector).forEach((node) => (node.hidden = !visible));
  const hasPicture = state.view === "lines" || state.view === "head";
  const hasOneHead = state.view === "head" || (state.view === "lines" && state.compare !== null);
  setVisible("label.layer", hasPicture);
  setVisible("label.head", hasOneHead);
  setVisible("label.compare", hasPicture);
  setVisible("label.compared", hasPicture && state.compare !== null);
  setVisible("label.sort", !hasPicture);
  setVisible(".chips", state.view === "lines" && !state.compare);
  setVisible("[data-download]", state.view !== "table");
  for (const option of root.querySelectorAll("[name=layer] option, [name=other-layer] option"))
    option.hidden = option.disabled = Number(option.value) >= data.layers[state.attention];
  input("layer").value = state.layer;
  input("head").value = state.head;
  input("words").checked = state.words;
  input("compare").checked = state.compare !== null;
  if (state.compare) [input("other-layer").value, input("other-head").value] = state.compare;
  input("sort").value = state.sort;
  const edge = state.attention === "decoder" ? "edge_decoder" : "edge"; // the decoder cannot see the end
  input("sort").querySelector("[value=edge]").textContent = texts[edge];
  input("language").value = language;
  for (const button of root.querySelectorAll("[data-set]"))
    button.setAttribute("aria-pressed", state[button.dataset.set] === button.dataset.value);
  for (const chip of root.querySelectorAll("[data-chip]"))
    chip.setAttribute("aria-pressed", state.heads.includes(Number(chip.dataset.chip)));
}
