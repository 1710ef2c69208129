// The steps of a walkthrough as tables of numbers. look/forward_walk.py describes the data.

import { element } from "./look/dom.js";
import { formula } from "./formulas.js";

export const DEFAULT_WIDTH = 8; // numbers of each vector

// `expanded` holds the steps that show all their numbers.
export function createWalk(context) {
  const { data, texts } = context;
  const sections = [];
  let part = "";
  data.steps.forEach((step, n) => {
    if (step.part !== part) {
      part = step.part;
      sections.push(element("section", { class: "part", "data-part": part }, element("h3", {}, texts.parts[part])));
    }
    sections.at(-1).append(createStep(step, n, context));
  });
  if (data.candidates.length) sections.at(-1).append(createCandidates(context));
  return [createSentencePair(data), ...sections];
}

function createSentencePair(data) {
  return element(
    "p",
    { class: "sentence-pair" },
    element("span", { lang: data.languages.source }, data.source),
    " → ",
    element("span", { lang: data.languages.target }, data.target),
  );
}

function createStep(step, n, context) {
  const { data, texts } = context;
  const [title, explanation] = texts.steps[step.name];
  const axes = step.axes.map((axis) => texts.axes[axis]);
  return element(
    "article",
    { class: "step", "data-step": `${step.part}.${step.name}` },
    element("h4", {}, title),
    element("p", { class: "formula" }, formula(step, data)),
    element(
      "p",
      { class: "shape quiet" },
      `${texts.shape}: `,
      element("span", { class: "sizes" }, step.shape.join(" × ")),
      ` (${axes.join(" × ")})`,
    ),
    element("p", { class: "explanation" }, explanation),
    element("div", { class: "values" }, createValues(step, n, title, context)),
    createExample(step, context),
  );
}

function createValues(step, n, title, context) {
  const { texts, expanded, onExpand } = context;
  const isExpanded = expanded.has(n);
  const size = step.shape.at(-1);
  const numShown = step.columns || isExpanded ? size : Math.min(size, DEFAULT_WIDTH);
  const table = createValuesTable(step, title, numShown, context);
  const scroll = element("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": title }, table);
  if (step.columns || size <= DEFAULT_WIDTH) return scroll;
  const toggle = element(
    "button",
    { type: "button", class: "more", "aria-expanded": String(isExpanded), onclick: () => onExpand(n) },
    isExpanded ? texts.fewNumbers : `${texts.allNumbers} (${texts.firstOf(DEFAULT_WIDTH, size)})`,
  );
  return element("div", {}, scroll, toggle);
}

// The columns of a map are tokens; those of vectors are numbered.
function createValuesTable(step, title, numShown, context) {
  const { data, head, texts } = context;
  const { tokens, languages } = data;
  const rows = selectHead(step, head);
  const language = (side) => (side === "source" ? languages.source : languages.target);
  const columns = step.columns
    ? tokens[step.columns]
    : Array.from({ length: numShown }, (_, index) => columnName(step, index, data));
  const columnLanguage = step.columns ? language(step.columns) : null;
  const max = Math.max(...rows.flatMap((row) => row.slice(0, numShown)).map((value) => Math.abs(value ?? 0)), 1e-9);
  const header = element(
    "tr",
    {},
    element("th", { scope: "col" }, texts.token),
    ...columns.map((name) => element("th", { scope: "col", lang: columnLanguage }, name)),
  );
  const body = rows.map((row, index) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", lang: language(step.rows) }, tokens[step.rows][index]),
      ...row.slice(0, numShown).map((value) => createCell(value, max, step, texts)),
    ),
  );
  return element(
    "table",
    { class: step.columns ? "map" : "vectors" },
    element("caption", { class: "visually-hidden" }, title),
    element("thead", {}, header),
    element("tbody", {}, ...body),
  );
}

// The rows of one head of [T, H, K] and [H, T, S]; [T, D] as it is.
function selectHead({ axes, values }, head) {
  if (axes[0] === "H") return values[head];
  return axes[1] === "H" ? values.map((row) => row[head]) : values;
}

// The columns of logits are pieces with their ids, from 0; those of other vectors are numbered from 1.
function columnName(step, index, data) {
  if (step.name !== "logits") return String(index + 1);
  const piece = data.vocabulary?.[index];
  return piece === undefined ? `id ${index}` : `${piece} (id ${index})`;
}

// The color shows the sign, its strength the size; the number says both.
function createCell(value, max, step, texts) {
  if (value === null)
    return element("td", { class: "masked" }, element("span", { "aria-label": texts.masked, role: "img" }, "−∞"));
  const cell = element("td", {}, value.toFixed(step.name === "weights" ? 3 : 2));
  cell.title = String(value);
  cell.dataset.value = value;
  const strength = Math.round((35 * Math.abs(value)) / max);
  cell.style.background = `color-mix(in srgb, var(${value < 0 ? "--minus" : "--plus"}) ${strength}%, transparent)`;
  return cell;
}

// One number of a map, computed in full.
function createExample(step, { data, head, texts }) {
  const { tokens, d_k, attention } = data;
  const rows = selectHead(step, head);
  const row = Math.min(1, rows.length - 1);
  const name = tokens[step.rows][row];
  let text = "";
  if (step.name === "scores" && attention === "scaled-dot") {
    const score = rows[row][0];
    if (score === null) return null;
    const root = Math.sqrt(d_k);
    const product = (score * root).toFixed(3);
    text = `q(${name}) · k(${tokens[step.columns][0]}) / √${d_k} = ${product} / ${root.toFixed(3)} = ${score.toFixed(3)}`;
  } else if (step.name === "weights") {
    const total = rows[row].reduce((sum, weight) => sum + weight, 0);
    text = `${texts.sumsTo(name)} ${total.toFixed(3)}`;
  } else return null;
  return element("p", { class: "example quiet" }, `${texts.example}: `, text);
}

function createCandidates({ data, texts }) {
  const { candidates, tokens, languages } = data;
  const createCandidate = (piece, probability, isChosen) =>
    element(
      "td",
      { class: isChosen ? "chosen" : null },
      element("span", { lang: languages.target }, piece),
      ` ${(100 * probability).toFixed(1)}%`,
    );
  const rows = candidates.map((ranked, n) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", lang: languages.target }, tokens.decoder_input[n]),
      ...ranked.map(([piece, probability]) => createCandidate(piece, probability, piece === tokens.target[n])),
    ),
  );
  const header = element(
    "tr",
    {},
    element("th", { scope: "col" }, texts.after),
    ...candidates[0].map((_, n) => element("th", { scope: "col" }, `${n + 1}`)),
  );
  const table = element("table", { class: "candidates" }, element("thead", {}, header), element("tbody", {}, ...rows));
  return element(
    "article",
    { class: "step", "data-step": "output.candidates" },
    element("h4", {}, texts.candidates),
    element("p", { class: "formula" }, "p = softmax(logits)"),
    element("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": texts.candidates }, table),
  );
}
