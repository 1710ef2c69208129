// Shows what cell_calculation.js computes: vectors as strips, the largest terms, the sum, and the line of code.

import { formatNumber } from "./cell_calculation.js";
import { element } from "./dom.js";

const NUM_TERMS = 5;

export function createCalculation(calculation, { title, value, code, texts, colors }) {
  const { symbols, strips, terms, lines, softmax, missing, masked } = calculation;
  return [
    element("p", { class: "calculation-title" }, title, element("b", { class: "calculation-value" }, value)),
    symbols ? element("p", { class: "symbols" }, symbols) : null,
    strips.length ? element("div", { class: "strips" }, ...strips.map((strip) => createStrip(strip, colors))) : null,
    softmax ? createSoftmaxTable(calculation, texts) : null,
    terms.length ? createTerms(terms, texts) : null,
    missing ? element("p", { class: "note" }, texts.missingNumbers) : null,
    lines.length ? element("p", { class: `sums${masked ? " is-masked" : ""}` }, ...lines.flatMap((line, n) => (n ? [element("br"), line] : [line]))) : null,
    code ? createCodeLine(code, texts) : null,
  ].filter((node) => node !== null);
}

// A vector as a strip of colors, one column for each number.
function createStrip({ label, values }, colors) {
  const canvas = element("canvas", { width: values.length, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const scale = Math.max(1e-9, ...values.map(Math.abs));
  values.forEach((value, n) => {
    context.globalAlpha = Math.sqrt(Math.abs(value) / scale);
    context.fillStyle = value < 0 ? colors.minus : colors.plus;
    context.fillRect(n, 0, 1, 1);
  });
  return element("div", { class: "strip" }, element("span", {}, label), canvas);
}

function createTerms(terms, texts) {
  const sorted = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const shown = sorted.slice(0, NUM_TERMS);
  const rest = sorted.slice(NUM_TERMS);
  const restSum = rest.reduce((sum, { value }) => sum + value, 0);
  const details = element("details", { ontoggle: () => fill() }, element("summary", {}, texts.allTerms));
  const fill = () => {
    if (details.open && details.children.length === 1)
      details.append(element("div", { class: "scroll-y", tabindex: 0, role: "region", "aria-label": texts.allTerms }, createTermTable(terms)));
  };
  return element(
    "div",
    { class: "terms" },
    element("p", { class: "quiet" }, texts.largestTerms),
    createTermTable(shown),
    rest.length ? element("p", { class: "quiet" }, `+ ${texts.otherTerms(rest.length, formatNumber(restSum))}`) : null,
    rest.length ? details : null,
  );
}

function createTermTable(terms) {
  const rows = terms.map(({ label, factors: [first, second], value }) =>
    element(
      "tr",
      { "data-term": value },
      element("th", { scope: "row" }, label),
      element("td", {}, formatNumber(first)),
      element("td", {}, `× ${formatNumber(second)}`),
      element("td", {}, `= ${formatNumber(value)}`),
    ),
  );
  return element("table", { class: "terms-table" }, element("tbody", {}, ...rows));
}

function createSoftmaxTable({ softmax, chosen }, texts) {
  const header = ["", texts.score, "exp", texts.weight].map((name) => (name ? element("th", { scope: "col" }, name) : element("td", {})));
  const rows = softmax.map(({ label, score, exponential, weight }, n) => {
    const bar = element("span", { class: "share", "aria-hidden": "true" });
    bar.style.width = `${100 * weight}%`;
    return element(
      "tr",
      { class: n === chosen ? "chosen" : score === null ? "is-masked" : null },
      element("th", { scope: "row" }, label),
      element("td", {}, score === null ? "−∞" : formatNumber(score, 2)),
      element("td", {}, formatNumber(exponential)),
      element("td", { class: "with-share" }, bar, formatNumber(weight)),
    );
  });
  return element(
    "div",
    { class: "scroll-y", tabindex: 0, role: "region", "aria-label": texts.calculation },
    element("table", { class: "softmax-table" }, element("thead", {}, element("tr", {}, ...header)), element("tbody", {}, ...rows)),
  );
}

// A long line is broken before a dot, or after a space or a bracket, not inside a name.
function createCodeLine({ file, line, text }, texts) {
  const parts = text.split(/(?<=[([ ])|(?=\.)/).map((part) => element("span", { class: "code-part" }, part));
  return element(
    "div",
    { class: "code-line" },
    element("span", { class: "quiet" }, `${texts.code}: ${file.replace("src/manyheads/", "")}:${line}`),
    element("pre", {}, element("code", { "data-file": file, "data-line": line }, ...parts)),
  );
}
