// The largest weights of one token as a small table: a row for each head.

import { element } from "./dom.js";

const NUM_LARGEST = 3;

// `panels` is [{layer, head, color, map}]; side 0 attends, side 1 is attended to.
export function createHoverTable({ panels, side, index, names, texts }) {
  const rows = panels.map(({ layer, head, color, map }) => {
    const weights = names.map((label, other) => {
      const [row, column] = side ? [other, index] : [index, other];
      return [map.weights[row * map.columns + column], label];
    });
    const largest = weights.sort((a, b) => b[0] - a[0]).slice(0, NUM_LARGEST);
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = color;
    return element(
      "tr",
      { "data-layer": layer, "data-head": head },
      element("th", { scope: "row" }, swatch, `${layer + 1}.${head + 1}`),
      ...largest.map(([weight, label]) => {
        const bar = element("span", { class: "share", "aria-hidden": "true" });
        bar.style.width = `${100 * weight}%`;
        bar.style.background = color;
        return element("td", { "data-weight": weight.toFixed(4) }, element("span", {}, label), ` ${weight.toFixed(2)}`, bar);
      }),
    );
  });
  return element("table", { class: "hover-table", "aria-label": texts.weights }, element("tbody", {}, ...rows));
}
