// All layers x heads as small maps, each drawn when it comes into sight; and the table of measures.

import { element } from "./elements.js";

const watching = new WeakMap(); // who waits for the cards of each holder to come into sight

function stopWatching(holder) {
  watching.get(holder)?.disconnect();
  watching.delete(holder);
}

// A map as an image with a pixel a weight.
export function thumbnail(map, color) {
  const canvas = element("canvas", { width: map.columns, height: map.rows, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.columns, map.rows);
  const [red, green, blue] = [1, 3, 5].map((from) => parseInt(color.slice(from, from + 2), 16));
  map.weights.forEach((weight, n) => image.data.set([red, green, blue, Math.round(255 * weight)], 4 * n));
  context.putImageData(image, 0, 0);
  canvas.className = map.columns > 60 ? "" : "sharp"; // a large map is made smaller, and no weight may fall out
  return canvas;
}

export function drawGrid(holder, { maps, state, texts, onChoose }) {
  const { colors, heads } = maps.data;
  const loaded = new IntersectionObserver(
    (seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        loaded.unobserve(target);
        const [layer, head] = [Number(target.dataset.layer), Number(target.dataset.head)];
        target.querySelector(".map").append(thumbnail(maps.map({ ...state, layer, head }), colors[head]));
      }
    },
    { rootMargin: "200px" },
  );
  stopWatching(holder);
  watching.set(holder, loaded);
  const cards = maps.order(state).map(([layer, head]) => {
    const value = state.order === "position" ? null : maps.measures({ ...state, layer, head })[state.order];
    const caption = `${layer + 1}.${head + 1}` + (value === null ? "" : ` · ${value.toFixed(2)}`);
    const card = element(
      "button",
      {
        type: "button",
        class: "card",
        "data-layer": layer,
        "data-head": head,
        "aria-label": `${texts.nameOfHead(layer + 1, head + 1)}, ${caption}`,
        onclick: () => onChoose(layer, head),
      },
      element("span", { class: "map" }),
      element("span", {}, caption),
    );
    const shape = maps.map({ ...state, layer: 0, head: 0 });
    card.firstChild.style.aspectRatio = `${shape.columns} / ${shape.rows}`;
    loaded.observe(card);
    return card;
  });
  const grid = element("div", { class: "grid" }, ...cards);
  if (state.order === "position") grid.style.gridTemplateColumns = `repeat(${heads}, minmax(44px, 1fr))`;
  holder.replaceChildren(grid);
}

// The same as one picture, for a download.
export function gridScene({ maps, state, colors }) {
  const { heads, layers } = maps.data;
  const shape = maps.map({ ...state, layer: 0, head: 0 });
  const side = 110;
  const tall = Math.max(20, (side * shape.rows) / shape.columns);
  const marks = [];
  const labels = [];
  maps.order(state).forEach(([layer, head], n) => {
    const x = 10 + (n % heads) * (side + 10);
    const y = 10 + Math.floor(n / heads) * (tall + 28);
    marks.push({ shape: "rect", x, y, w: side, h: tall, color: colors.cell });
    marks.push({
      shape: "image",
      x,
      y,
      w: side,
      h: tall,
      canvas: thumbnail(maps.map({ ...state, layer, head }), maps.data.colors[head]),
    });
    labels.push({
      text: `${layer + 1}.${head + 1}`,
      x: x + side / 2,
      y: y + tall + 11,
      size: 12,
      align: "center",
      color: colors.faint,
    });
  });
  return {
    width: 10 + heads * (side + 10),
    height: 10 + layers * (tall + 28),
    marks,
    labels,
    background: colors.background,
  };
}

// ---- measures

export function drawTable(holder, { maps, state, texts, onChoose, onOrder }) {
  stopWatching(holder);
  const names = maps.data.measures;
  const heading = (name, text) => {
    const direction = state.order === name ? (state.falling ? "descending" : "ascending") : "none";
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[direction];
    return element(
      "th",
      { scope: "col", "aria-sort": direction },
      element("button", { type: "button", "data-order": name, onclick: () => onOrder(name) }, text + arrow),
    );
  };
  const rows = maps.order(state).map(([layer, head]) => {
    const values = maps.measures({ ...state, layer, head });
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = maps.data.colors[head];
    return element(
      "tr",
      { "data-layer": layer, "data-head": head },
      element(
        "th",
        { scope: "row" },
        element(
          "button",
          { type: "button", onclick: () => onChoose(layer, head) },
          swatch,
          texts.nameOfHead(layer + 1, head + 1),
        ),
      ),
      ...names.map((name) =>
        element("td", { "data-measure": name }, values[name] === null ? "–" : values[name].toFixed(3)),
      ),
    );
  });
  const title = (name) => (name === "edge" && state.kind === "decoder" ? texts.edge_decoder : texts[name]);
  const head = element(
    "tr",
    {},
    heading("position", texts.position),
    ...names.map((name) => heading(name, title(name))),
  );
  holder.replaceChildren(
    element("p", { class: "note" }, texts.aboutMeasures),
    element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": texts.table },
      element("table", { class: "measures" }, element("thead", {}, head), element("tbody", {}, ...rows)),
    ),
  );
}
