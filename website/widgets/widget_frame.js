// The frame of a widget: controls above, numbers below, which are computed again after every change.
//
// A widget is a function that returns or promises {title, controls, draw}: `controls` is a list of {name, label, type, ...}, and `draw(state)` returns
// {summary, parts}: a sentence for everybody, screen readers included, and elements. Texts are written with say().

import { element } from "../../src/manyheads/look/assets/dom.js";

const isKorean = document.documentElement.lang === "ko";

// The text in the language of the page.
export const say = (english, korean) => (isKorean ? korean : english);

let numWidgets = 0;

export async function showWidget(root, widget) {
  if (!widget) throw new Error(`no widget named ${root.dataset.widget}`);
  const id = `widget-${numWidgets++}`;
  root.replaceChildren(element("p", { class: "widget-summary" }, say("Loading…", "불러오는 중입니다…")));
  try {
    fillWidget(root, id, await widget());
  } catch (error) {
    root.replaceChildren(element("p", { class: "widget-summary" }, error.message));
    if (!(error instanceof MissingModelError)) throw error;
  }
}

// There is no model beside the pages.
export class MissingModelError extends Error {}

function fillWidget(root, id, { title, controls, draw }) {
  const state = Object.fromEntries(controls.map(({ name, value }) => [name, value]));
  const summary = element("p", { class: "widget-summary", "aria-live": "polite" });
  const output = element("div", { class: "widget-parts" });
  const update = () => {
    const { summary: text, parts } = draw(state);
    summary.textContent = text;
    output.replaceChildren(...parts);
  };
  const nodes = controls.map((control) => createControl(id, control, state, update));
  root.setAttribute("role", "group");
  root.setAttribute("aria-labelledby", id);
  const heading = element("p", { class: "widget-title", id }, title);
  root.replaceChildren(heading, element("div", { class: "widget-controls" }, ...nodes), summary, output);
  update();
}

function createControl(id, control, state, update) {
  const { name, label, type } = control;
  const fieldId = `${id}-${name}`;
  const change = (value) => {
    state[name] = value;
    update();
  };
  const create = { range: createRange, choice: createChoice, text: createText }[type];
  return element("div", { class: "widget-control" }, element("label", { for: fieldId }, label), ...create(fieldId, control, change));
}

// Values from a list, or from min to max.
function createRange(fieldId, { value, values, min, max, step = 1, format = String }, change) {
  const read = (input) => (values ? values[Number(input.value)] : Number(input.value));
  const shown = element("output", { for: fieldId }, format(value));
  const limits = values ? { min: 0, max: values.length - 1, step: 1, value: values.indexOf(value) } : { min, max, step, value };
  const input = element("input", {
    ...{ type: "range", id: fieldId, ...limits },
    oninput: () => {
      shown.textContent = format(read(input));
      change(read(input));
    },
  });
  return [input, shown];
}

function createChoice(fieldId, { value, options }, change) {
  const nodes = options.map(([key, text]) => element("option", { value: key, selected: key === value }, text));
  return [element("select", { id: fieldId, onchange: ({ target }) => change(target.value) }, ...nodes)];
}

function createText(fieldId, { value, maxLength = 200, lang }, change) {
  const input = element("input", { type: "text", id: fieldId, value, lang, maxlength: maxLength, spellcheck: "false" });
  input.addEventListener("input", () => change(input.value));
  return [input];
}
