// All layers and heads as small maps. Each is drawn when it scrolls into view.

import { element, svgElement } from "./dom.js";
import { headRole } from "./head_roles.js";
import { truncateText } from "./scene.js";
import { drawThumbnail } from "./thumbnail.js";

const observers = new WeakMap(); // the observer of the cards in each container

export function stopObserving(container) {
  observers.get(container)?.disconnect();
  observers.delete(container);
}

export function createThumbnail(map, color) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  drawThumbnail(canvas, map, color);
  canvas.className = map.columns > 60 ? "" : "pixelated"; // a large map is scaled down, and must be smoothed
  return canvas;
}

const MAX_LABELED = 16; // tokens of a side that have their names on small maps
const LABEL_WIDTH = 46; // pixels
const LABEL_HEIGHT = 12.5; // of a row with a name: rows are higher than wide where they must be

// The names of the queries on the left and of the keys below, of a map that is drawn with `size` pixels.
function createMapLabels(names, map, width, height) {
  const label = (text, attributes) => svgElement("text", { "font-size": 9, ...attributes }, truncateText(text, 9, LABEL_WIDTH));
  const rows = names[0].map((name, n) =>
    label(name, { x: LABEL_WIDTH - 3, y: ((n + 0.5) * height) / map.rows, "text-anchor": "end", "dominant-baseline": "central" }),
  );
  const columns = names[1].map((name, n) => {
    const x = LABEL_WIDTH + ((n + 0.5) * width) / map.columns;
    return label(name, { transform: `translate(${x + 3} ${height + 4}) rotate(-60)`, "text-anchor": "end" });
  });
  return svgElement("svg", { width: LABEL_WIDTH + width, height: height + LABEL_WIDTH, "aria-hidden": "true" }, ...rows, ...columns);
}

// Names on a map that is large enough for them.
function labelCard(card, names, map) {
  const box = card.querySelector(".map");
  const width = box.clientWidth - LABEL_WIDTH;
  if (map.rows > MAX_LABELED || map.columns > MAX_LABELED || width / map.columns < 9) return;
  const height = Math.max((width * map.rows) / map.columns, LABEL_HEIGHT * map.rows);
  card.classList.add("is-labeled");
  box.style.aspectRatio = "auto";
  box.style.height = `${height + LABEL_WIDTH}px`;
  const canvas = box.querySelector("canvas");
  Object.assign(canvas.style, { marginLeft: `${LABEL_WIDTH}px`, width: `${width}px`, height: `${height}px` });
  box.append(createMapLabels(names, map, width, height));
}

export function drawGrid(container, { maps, state, texts, onSelect, onPoint }) {
  const { colors, heads } = maps.data;
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        const [layer, head] = [Number(target.dataset.layer), Number(target.dataset.head)];
        const map = maps.map({ ...state, layer, head });
        target.querySelector(".map").append(createThumbnail(map, colors[head]));
        const names = [0, 1].map((side) => maps.labels(state.attention, side, state.words));
        if (state.sort === "position") labelCard(target, names, map);
      }
    },
    { rootMargin: "200px" },
  );
  stopObserving(container);
  observers.set(container, observer);
  const cards = maps.sortedHeads(state).map(([layer, head]) => {
    const value = state.sort === "position" ? null : maps.measures({ ...state, layer, head })[state.sort];
    const own = { ...state, layer, head };
    const role = texts.roles[headRole(maps.measures(own), maps.map(own), state.attention)];
    const caption = `${layer + 1}.${head + 1} ` + (value === null ? role : `· ${value.toFixed(2)}`);
    const card = element(
      "button",
      {
        type: "button",
        class: "card",
        "data-layer": layer,
        "data-head": head,
        "aria-label": `${texts.headName(layer + 1, head + 1)}, ${caption}`,
        onclick: () => onSelect(layer, head),
        onpointermove: (event) => onPoint(event, layer, head),
        onpointerleave: () => onPoint(null),
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
