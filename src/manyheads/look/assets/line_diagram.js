// Figures 3 to 5: a line from each query to each key, one color per head, with the weight as its opacity.

import { textWidth, truncateText } from "./scene.js";

export const MIN_LINE_WEIGHT = 0.01;
export const MAX_LINES = 4000; // beyond it only the strongest are drawn
const MAX_LABEL_WIDTH = 170;
const MAX_LINE_WIDTH = 640;
const MIN_HIGHLIGHTED_WEIGHT = 0.05;

// `heads` is [{layer, head, color, map}]; `active` is null or [side, index], the token shown alone.
export function createLineScene({ names, languages, heads, active, pinned, title, colors, maxWidth }) {
  const rowHeight = Math.max(names[0].length, names[1].length) > 60 ? 15 : 25;
  const size = rowHeight > 20 ? 14 : 11;
  const widest = (side) => Math.max(...side.map((name) => textWidth(name, size, true)));
  const widths = names.map((side) => Math.min(MAX_LABEL_WIDTH, maxWidth * 0.33, widest(side)) + 14);
  const width = Math.floor(Math.min(maxWidth, widths[0] + widths[1] + MAX_LINE_WIDTH)); // whole pixels, for files
  const top = title ? 30 : 8;
  const height = top + Math.max(names[0].length, names[1].length) * rowHeight + 8;
  const layout = {
    widths,
    rowHeight,
    size,
    left: widths[0],
    right: width - widths[1],
    y: (index) => top + (index + 0.5) * rowHeight,
  };
  const marks = createLines(heads, active, layout);
  if (active) marks.push(...createStripes(heads, active, layout));
  const labels = createLineLabels({ names, languages, heads, active, pinned, colors, layout });
  if (title)
    labels.unshift({ text: title, name: title, x: width / 2, y: 13, size: 13, align: "center", color: colors.faint });
  return { width, height, marks, labels, background: colors.background };
}

function createLines(heads, active, { left, right, rowHeight, y }) {
  const lines = [];
  heads.forEach(({ head, color, map }, n) => {
    const offset = (n - (heads.length - 1) / 2) * Math.min(2.2, (rowHeight - 8) / Math.max(heads.length, 1));
    forEachWeight(map, active, (row, column, weight) => {
      if (weight < MIN_LINE_WEIGHT) return;
      lines.push({
        shape: "line",
        x1: left,
        y1: y(row) + offset,
        x2: right,
        y2: y(column) + offset,
        color,
        opacity: weight,
        width: 1 + 2 * weight,
        data: { head, row, column, weight: weight.toFixed(4) },
      });
    });
  });
  lines.sort((a, b) => a.opacity - b.opacity); // strong lines on top
  lines.splice(0, lines.length - MAX_LINES);
  return lines;
}

function forEachWeight(map, active, callback) {
  for (let row = 0; row < map.rows; row++) {
    if (active && active[0] === 0 && active[1] !== row) continue;
    for (let column = 0; column < map.columns; column++) {
      if (active && active[0] === 1 && active[1] !== column) continue;
      callback(row, column, map.weights[row * map.columns + column]);
    }
  }
}

// Backgrounds of the labels opposite to the active token: the weight from each head, in its color.
function createStripes(heads, active, { left, right, widths, y, rowHeight }) {
  const stripes = [];
  const [side] = active;
  const total = (side ? widths[0] : widths[1]) - 2;
  const w = total / heads.length;
  heads.forEach(({ color, map }, n) => {
    forEachWeight(map, active, (row, column, weight) => {
      if (weight < MIN_LINE_WEIGHT) return;
      stripes.push({
        shape: "rect",
        x: (side ? left - total : right) + n * w,
        y: y(side ? row : column) - rowHeight / 2 + 2,
        w,
        h: rowHeight - 4,
        color,
        opacity: 0.6 * weight,
      });
    });
  });
  return stripes;
}

function createLineLabels({ names, languages, heads, active, pinned, colors, layout }) {
  const { left, right, widths, rowHeight, size, y } = layout;
  const highlighted = active ? findHighlighted(heads, active) : null;
  return [0, 1].flatMap((side) =>
    names[side].map((name, index) => {
      const isActive = active && active[0] === side && active[1] === index;
      const isVisible = !active || isActive || (active[0] !== side && highlighted.has(index));
      return {
        token: [side, index],
        name,
        text: truncateText(name, size, widths[side] - 14),
        size,
        language: languages[side],
        x: side ? right + 7 : left - 7,
        y: y(index),
        align: side ? "left" : "right",
        box: { x: side ? right : 0, y: y(index) - rowHeight / 2, w: widths[side], h: rowHeight },
        color: isVisible ? colors.text : colors.faint,
        bold: isActive,
        pinned: pinned && pinned[0] === side && pinned[1] === index,
      };
    }),
  );
}

function findHighlighted(heads, active) {
  const indices = new Set();
  for (const { map } of heads) {
    forEachWeight(map, active, (row, column, weight) => {
      if (weight >= MIN_HIGHLIGHTED_WEIGHT) indices.add(active[0] ? row : column);
    });
  }
  return indices;
}
