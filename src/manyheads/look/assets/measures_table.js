// The table of measures of every head, which can be sorted by each of them.

import { element } from "./dom.js";

export function drawMeasures(container, { maps, state, texts, onSelect, onSort }) {
  const names = maps.data.measures;
  const heading = (name, text) => {
    const direction = state.sort === name ? (state.descending ? "descending" : "ascending") : "none";
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[direction];
    return element(
      "th",
      { scope: "col", "aria-sort": direction },
      element("button", { type: "button", "data-sort": name, onclick: () => onSort(name) }, text + arrow),
    );
  };
  const rows = maps.sortedHeads(state).map(([layer, head]) => {
    const values = maps.measures({ ...state, layer, head });
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = maps.data.colors[head];
    const name = texts.headName(layer + 1, head + 1);
    return element(
      "tr",
      { "data-layer": layer, "data-head": head },
      element(
        "th",
        { scope: "row" },
        element("button", { type: "button", onclick: () => onSelect(layer, head) }, swatch, name),
      ),
      ...names.map((measure) =>
        element("td", { "data-measure": measure }, values[measure] === null ? "–" : values[measure].toFixed(3)),
      ),
    );
  });
  const title = (name) => (name === "edge" && state.attention === "decoder" ? texts.edge_decoder : texts[name]);
  const header = element(
    "tr",
    {},
    heading("position", texts.position),
    ...names.map((name) => heading(name, title(name))),
  );
  container.replaceChildren(
    element("p", { class: "note" }, texts.aboutMeasures),
    element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": texts.table },
      element("table", { class: "measures" }, element("thead", {}, header), element("tbody", {}, ...rows)),
    ),
  );
}
