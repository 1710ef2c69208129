// One head as a heat map: queries in rows, keys in columns, with the weight in each cell where it fits.

import { textWidth, truncateText } from "./scene.js";

const MAX_COLUMNS_WITH_VALUES = 26;
const COLUMN_LABEL_ROTATION = -55; // degrees
const MAX_NAME_WIDTH = 110;

const clamp = (value, min, max) => Math.max(min, Math.min(max, value));
const formatWeight = (weight) => (weight >= 0.995 ? "1" : weight.toFixed(2).slice(1));

export function createHeatmapScene({ names, languages, map, color, active, pinned, title, colors, maxWidth }) {
  const layout = createHeatmapLayout(names, map, title, maxWidth);
  const { left, top, cellWidth, cellHeight, slant } = layout;
  const labels = createHeatmapLabels({ names, languages, active, pinned, colors, layout });
  if (title) labels.unshift({ text: title, name: title, x: 2, y: 12, size: 13, color: colors.faint });
  const cellAt = (x, y) => {
    const [column, row] = [Math.floor((x - left) / cellWidth), Math.floor((y - top) / cellHeight)];
    return row >= 0 && column >= 0 && row < map.rows && column < map.columns ? [row, column] : null;
  };
  return {
    width: Math.ceil(left + map.columns * cellWidth + slant), // whole pixels, for files
    height: Math.ceil(top + map.rows * cellHeight + 4),
    marks: createCells({ map, color, active, colors, layout }),
    labels,
    cellAt,
    keysAreHorizontal: true,
    background: colors.background,
  };
}

function createHeatmapLayout(names, map, title, maxWidth) {
  const withValues = map.columns <= MAX_COLUMNS_WITH_VALUES;
  const size = withValues ? 13 : 10;
  const widths = names.map((side) => Math.min(MAX_NAME_WIDTH, Math.max(...side.map((name) => textWidth(name, size, true)))));
  const left = widths[0] + 12;
  const rise = widths[1] * Math.sin((-COLUMN_LABEL_ROTATION * Math.PI) / 180) + 14;
  const slant = widths[1] * Math.cos((COLUMN_LABEL_ROTATION * Math.PI) / 180) + 10;
  const top = (title ? 28 : 4) + rise;
  const cellWidth = clamp((maxWidth - left - slant) / map.columns, withValues ? 25 : 7, withValues ? 46 : 20);
  const cellHeight = withValues ? Math.min(cellWidth, 34) : cellWidth;
  return { withValues, size, left, slant, top, cellWidth, cellHeight };
}

function createCells({ map, color, active, colors, layout }) {
  const { withValues, left, top, cellWidth, cellHeight } = layout;
  const [width, height] = [map.columns * cellWidth + 1, map.rows * cellHeight + 1];
  const max = map.weights.reduce((largest, weight) => Math.max(largest, weight), 1e-9); // contrast of each head
  const marks = [{ shape: "rect", x: left - 1, y: top - 1, w: width, h: height, color: colors.cell }];
  for (let row = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++) {
      const weight = map.weights[row * map.columns + column];
      const isShown = !active || active[1] === (active[0] ? column : row);
      const x = left + column * cellWidth;
      const y = top + row * cellHeight;
      marks.push({
        shape: "rect",
        x,
        y,
        w: cellWidth - 1,
        h: cellHeight - 1,
        color,
        opacity: (weight / max) * (isShown ? 1 : 0.12),
        data: { row, column, weight: weight.toFixed(4) },
      });
      if (withValues && isShown && weight >= 0.005) {
        marks.push({
          shape: "text",
          x: x + cellWidth / 2 - 0.5,
          y: y + cellHeight / 2,
          text: formatWeight(weight),
          size: 11,
          align: "center",
          color: weight / max > 0.85 ? colors.onColor : colors.text,
        });
      }
    }
  }
  return marks;
}

function createHeatmapLabels({ names, languages, active, pinned, colors, layout }) {
  const { size, left, top, cellWidth, cellHeight } = layout;
  const createLabel = (side, index, position) => {
    const isActive = active && active[0] === side && active[1] === index;
    return {
      token: [side, index],
      name: names[side][index],
      text: truncateText(names[side][index], size, MAX_NAME_WIDTH),
      size,
      language: languages[side],
      color: !active || isActive || active[0] !== side ? colors.text : colors.faint,
      bold: isActive,
      pinned: pinned && pinned[0] === side && pinned[1] === index,
      ...position,
    };
  };
  const rows = names[0].map((_, index) =>
    createLabel(0, index, {
      x: left - 6,
      y: top + (index + 0.5) * cellHeight,
      align: "right",
      box: { x: 0, y: top + index * cellHeight, w: left - 3, h: cellHeight - 1 },
    }),
  );
  const columns = names[1].map((_, index) =>
    createLabel(1, index, {
      x: left + (index + 0.5) * cellWidth,
      y: top - 6,
      rotation: COLUMN_LABEL_ROTATION,
      box: { x: left + index * cellWidth, y: top - 24, w: cellWidth - 1, h: 23 },
    }),
  );
  return [...rows, ...columns];
}
