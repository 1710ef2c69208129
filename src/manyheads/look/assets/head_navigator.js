// All heads of the attention type as small maps, one row for each layer: always visible, and a click opens a head.

import { element } from "./dom.js";
import { createThumbnail } from "./head_grid.js";
import { headRole } from "./head_roles.js";

const MIN_WIDTH_WITH_ROLE = 48; // pixels of a small map

export class HeadNavigator {
  // onSelect(layer, head), or with head null for a whole layer.
  constructor({ maps, texts, onSelect }) {
    Object.assign(this, { maps, texts, onSelect });
    this.key = "";
    this.caption = element("h2", { class: "look-title" }); // above the picture
    this.grid = element("div", { class: "navigator-grid" });
    this.tooltip = element("div", { class: "map-tooltip", hidden: true, "aria-hidden": "true" });
    const hint = element("p", { class: "navigator-hint" }, texts.navigatorHint);
    this.root = element("nav", { class: "navigator", "aria-label": texts.navigator }, this.grid, hint, this.tooltip);
  }

  role(state, layer, head) {
    const own = { ...state, layer, head };
    return headRole(this.maps.measures(own), this.maps.map(own), state.attention);
  }

  update(state) {
    const key = JSON.stringify([state.attention, state.words, state.snapshot]);
    if (key !== this.key) this.build(state);
    this.key = key;
    this.state = state;
    const { layer, head, view, heads, compare } = state;
    const isWholeLayer = view === "lines" && !compare && heads.length !== 1;
    const isShown = (button) =>
      Number(button.dataset.layer) === layer && (isWholeLayer ? heads.includes(Number(button.dataset.head)) : Number(button.dataset.head) === head);
    const hasPicture = view === "lines" || view === "head";
    for (const button of this.grid.querySelectorAll("[data-head]"))
      button.setAttribute("aria-pressed", String(hasPicture && isShown(button)));
    const role = this.role(state, layer, head);
    this.caption.textContent = !hasPicture
      ? this.texts[view]
      : isWholeLayer
        ? this.texts.layerName(layer + 1)
        : `${this.texts.headName(layer + 1, head + 1)}: ${this.texts.roleNotes[role]}`;
  }

  build(state) {
    const { maps, texts } = this;
    const { heads, colors } = maps.data;
    const layers = maps.data.layers[state.attention];
    const shape = maps.map({ ...state, layer: 0, head: 0 });
    this.grid.style.gridTemplateColumns = `auto repeat(${heads}, minmax(24px, 1fr))`;
    const rows = Array.from({ length: layers }, (_, layer) => {
      const name = element("button", { type: "button", class: "layer-name", "aria-label": texts.allHeadsOf(layer + 1), onclick: () => this.onSelect(layer, null) }, String(layer + 1));
      const buttons = Array.from({ length: heads }, (_, head) => {
        const role = this.role(state, layer, head);
        const map = element("span", { class: "map" });
        map.style.aspectRatio = `${shape.columns} / ${shape.rows}`;
        return element(
          "button",
          {
            type: "button",
            "data-layer": layer,
            "data-head": head,
            "aria-label": `${texts.headName(layer + 1, head + 1)}: ${texts.roleNotes[role]}`,
            onclick: () => this.onSelect(layer, head),
            onpointermove: (event) => this.showTooltip(event, layer, head),
            onpointerleave: () => (this.tooltip.hidden = true),
          },
          map,
          element("span", { class: "role", "aria-hidden": "true" }, texts.roles[role]),
        );
      });
      return [name, ...buttons];
    });
    this.grid.replaceChildren(...rows.flat());
    this.grid.classList.toggle("has-roles", this.grid.clientWidth / heads >= MIN_WIDTH_WITH_ROLE);
    this.drawRow(rows, 0, state, colors, (this.drawing = {}));
  }

  // One layer after another, so that hundreds of heads do not hold up the page.
  drawRow(rows, layer, state, colors, drawing) {
    if (!rows[layer] || drawing !== this.drawing) return;
    rows[layer].slice(1).forEach((button, head) => {
      button.firstChild.replaceChildren(createThumbnail(this.maps.map({ ...state, layer, head }), colors[head]));
    });
    if (layer < 7) this.drawRow(rows, layer + 1, state, colors, drawing);
    else setTimeout(() => this.drawRow(rows, layer + 1, state, colors, drawing), 0);
  }

  showTooltip(event, layer, head) {
    showMapTooltip(this.tooltip, event, { maps: this.maps, state: { ...this.state, layer, head }, texts: this.texts, root: this.root });
  }
}

// The head, and the tokens and weight of the cell under the pointer.
export function showMapTooltip(tooltip, event, { maps, state, texts, root }) {
  const box = event.currentTarget.querySelector(".map").getBoundingClientRect();
  const map = maps.map(state);
  const row = Math.floor(((event.clientY - box.top) / box.height) * map.rows);
  const column = Math.floor(((event.clientX - box.left) / box.width) * map.columns);
  const isInside = row >= 0 && column >= 0 && row < map.rows && column < map.columns;
  const [query, key] = [maps.labels(state.attention, 0, state.words)[row], maps.labels(state.attention, 1, state.words)[column]];
  const cell = isInside ? `“${query}” → “${key}” ${map.weights[row * map.columns + column].toFixed(2)}` : "";
  tooltip.replaceChildren(element("b", {}, texts.headName(state.layer + 1, state.head + 1)), ...(cell ? [element("br"), cell] : []));
  tooltip.hidden = false;
  const frame = root.getBoundingClientRect();
  tooltip.style.left = `${Math.max(0, Math.min(event.clientX - frame.left + 14, frame.width - tooltip.offsetWidth))}px`;
  tooltip.style.top = `${event.clientY - frame.top + 16}px`;
}
