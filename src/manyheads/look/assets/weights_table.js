// The weights of the shown heads as tables.

import { element } from "./dom.js";

// Of each head the active row; without one all rows, but only of the chosen head or of the two that are
// compared: a table of every head of a layer would be too large for a browser.
export function drawWeights(container, { maps, state, panels, texts }) {
  if (!container.open || container.hidden) return;
  const { attention, words, snapshot, head: chosen, token, compare } = state;
  const [side, index] = token ?? [0, maps.rowOfStep(state)];
  const activeRow = side === 0 && index !== null && index !== undefined ? Number(index) : null;
  const all = panels.flat();
  const heads =
    activeRow === null && !compare ? [all.find(({ head }) => head === chosen) ?? all[0]].filter(Boolean) : all;
  const shown = heads.map(({ layer, head }) => [layer, head]);
  const key = JSON.stringify([attention, words, snapshot, activeRow, ...shown]);
  if (container.dataset.key === key) return;
  container.dataset.key = key;
  const [allRows, columns] = [0, 1].map((side) => maps.labels(attention, side, words));
  const rows = [...allRows.entries()].filter(([row]) => activeRow === null || row === activeRow);
  const tables = heads.map((head) => createWeightsTable(head, rows, columns, texts));
  container.lastChild.replaceChildren(
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": texts.weights }, ...tables),
  );
}

function createWeightsTable({ layer, head, map }, rows, columns, texts) {
  const createCell = (row, column) => element("td", {}, map.weights[row * map.columns + column].toFixed(4));
  const header = element(
    "tr",
    {},
    element("th", { scope: "col" }, texts.query),
    ...columns.map((name) => element("th", { scope: "col" }, name)),
  );
  const body = rows.map(([row, name]) =>
    element("tr", {}, element("th", { scope: "row" }, name), ...columns.map((_, column) => createCell(row, column))),
  );
  return element(
    "table",
    { "data-layer": layer, "data-head": head },
    element("caption", {}, texts.headName(layer + 1, head + 1)),
    element("thead", {}, header),
    element("tbody", {}, ...body),
  );
}
