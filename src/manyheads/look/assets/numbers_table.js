// The numbers of a matrix as a table, for those who want to read or copy them. It is built when it is opened.

import { element } from "./dom.js";

const FIRST_NUMBERS = 8; // of each vector; a map is shown whole

export function createNumbers(step, rows, { rowNames, labels, data, texts }) {
  let showsAll = Boolean(step.columns);
  const body = element("div", {});
  const details = element("details", { class: "numbers", ontoggle: () => details.open && fill() }, element("summary", {}, texts.numbers), body);
  const fill = () => {
    const size = rows[0].length;
    const count = showsAll ? size : Math.min(size, FIRST_NUMBERS);
    const scroll = element("div", { class: "scroll-x", tabindex: 0, role: "region", "aria-label": texts.numbers }, createNumbersTable(step, rows, count, { rowNames, labels, data, texts }));
    const toggle = () => {
      showsAll = !showsAll;
      fill();
      body.querySelector(".more").focus();
    };
    const more = element("button", { type: "button", class: "more", "aria-expanded": String(showsAll), onclick: toggle }, showsAll ? texts.fewNumbers : texts.allNumbers);
    body.replaceChildren(scroll, ...(step.columns || size <= FIRST_NUMBERS ? [] : [more]));
  };
  return details;
}

function createNumbersTable(step, rows, count, { rowNames, labels, data, texts }) {
  const language = (side) => (side === "source" ? data.languages.source : data.languages.target);
  const columns = step.columns ? labels[step.columns] : Array.from({ length: count }, (_, n) => String(n + 1));
  const header = columns.map((name) => element("th", { scope: "col", lang: step.columns ? language(step.columns) : null }, name));
  const cell = (value) =>
    value === null
      ? element("td", { class: "is-masked" }, element("span", { role: "img", "aria-label": texts.masked }, "−∞"))
      : element("td", { "data-value": value, title: String(value) }, value.toFixed(3));
  const body = rows.map((row, n) =>
    element("tr", {}, element("th", { scope: "row", lang: language(step.rows) }, rowNames[n]), ...row.slice(0, count).map(cell)),
  );
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, texts.token), ...header)),
    element("tbody", {}, ...body),
  );
}
