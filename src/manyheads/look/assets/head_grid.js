// All layers and heads as small maps. Each is drawn when it scrolls into view.

import { element } from "./dom.js";

const observers = new WeakMap(); // the observer of the cards in each container

export function stopObserving(container) {
  observers.get(container)?.disconnect();
  observers.delete(container);
}

// A map as an image with one pixel per weight.
function createThumbnail(map, color) {
  const canvas = element("canvas", { width: map.columns, height: map.rows, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.columns, map.rows);
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
  map.weights.forEach((weight, n) => image.data.set([red, green, blue, Math.round(255 * weight)], 4 * n));
  context.putImageData(image, 0, 0);
  canvas.className = map.columns > 60 ? "" : "pixelated"; // a large map is scaled down, and must be smoothed
  return canvas;
}

export function drawGrid(container, { maps, state, texts, onSelect }) {
  const { colors, heads } = maps.data;
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        const [layer, head] = [Number(target.dataset.layer), Number(target.dataset.head)];
        target.querySelector(".map").append(createThumbnail(maps.map({ ...state, layer, head }), colors[head]));
      }
    },
    { rootMargin: "200px" },
  );
  stopObserving(container);
  observers.set(container, observer);
  const cards = maps.sortedHeads(state).map(([layer, head]) => {
    const value = state.sort === "position" ? null : maps.measures({ ...state, layer, head })[state.sort];
    const caption = `${layer + 1}.${head + 1}` + (value === null ? "" : ` · ${value.toFixed(2)}`);
    const card = element(
      "button",
      {
        type: "button",
        class: "card",
        "data-layer": layer,
        "data-head": head,
        "aria-label": `${texts.headName(layer + 1, head + 1)}, ${caption}`,
        onclick: () => onSelect(layer, head),
      },
      element("span", { class: "map" }),
      element("span", {}, caption),
    );
    const shape = maps.map({ ...state, layer: 0, head: 0 });
    card.firstChild.style.aspectRatio = `${shape.columns} / ${shape.rows}`;
    observer.observe(card);
    return card;
  });
  const grid = element("div", { class: "grid" }, ...cards);
  if (state.sort === "position") grid.style.gridTemplateColumns = `repeat(${heads}, minmax(44px, 1fr))`;
  container.replaceChildren(grid);
}

// The grid as one scene, for a download.
export function createGridScene({ maps, state, colors }) {
  const { heads } = maps.data;
  const layers = maps.data.layers[state.attention];
  const shape = maps.map({ ...state, layer: 0, head: 0 });
  const width = 110;
  const height = Math.max(20, (width * shape.rows) / shape.columns);
  const marks = [];
  const labels = [];
  maps.sortedHeads(state).forEach(([layer, head], n) => {
    const x = 10 + (n % heads) * (width + 10);
    const y = 10 + Math.floor(n / heads) * (height + 28);
    const box = { x, y, w: width, h: height };
    const canvas = createThumbnail(maps.map({ ...state, layer, head }), maps.data.colors[head]);
    marks.push({ shape: "rect", ...box, color: colors.cell }, { shape: "image", ...box, canvas });
    labels.push({
      text: `${layer + 1}.${head + 1}`,
      x: x + width / 2,
      y: y + height + 11,
      size: 12,
      align: "center",
      color: colors.faint,
    });
  });
  return {
    width: 10 + heads * (width + 10),
    height: 10 + layers * (height + 28),
    marks,
    labels,
    background: colors.background,
  };
}
