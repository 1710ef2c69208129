// A matrix as colors on a canvas: one row for each token, with its name. A cell can be pointed at and chosen, also
// with the arrow keys.

import { element } from "./dom.js";
import { FONT, textWidth, truncateText } from "./scene.js";

const MAX_ROW_NAME = 84; // pixels
const MAX_PAIR_NAME = 132; // of a row with the name of two tokens
const FONT_SIZE = 12;
const COLUMN_ANGLE = -0.87; // radians, of the names of the columns of a map
const PAIR_MARK = " → ";
const MIN_CELL_WIDTH = 14; // of a map beside another
const MAX_CELL_HEIGHT = 26; // of a map
const MAX_VALUES = 15; // columns of a map with numbers in its cells

// At most four characters, which fit into a cell. Weights near zero are left out.
export function formatCell(value, isWeight) {
  if (isWeight) return value >= 0.005 ? value.toFixed(2).replace(/^0/, "") : "";
  return value.toFixed(Math.abs(value) < 9.95 ? 1 : 0).replace("-", "−");
}

const readRgb = (color) => [1, 3, 5].map((n) => parseInt(color.slice(n, n + 2), 16));

function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// The color of text with more contrast to a cell, which has a color with some opacity. Colors as #rrggbb.
function readableColor(color, opacity, { cell, text, onStrong }) {
  const [over, under] = [readRgb(color), readRgb(cell)];
  const shown = luminance(over.map((value, n) => opacity * value + (1 - opacity) * under[n]));
  const contrast = (own) => {
    const [low, high] = [luminance(readRgb(own)), shown].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  return contrast(text) >= contrast(onStrong) ? text : onStrong;
}

const isPair = (name) => name.includes(PAIR_MARK);

// Of a pair of tokens both are shortened, so that the second stays.
function truncateName(name, width) {
  if (!isPair(name) || textWidth(name, FONT_SIZE, true) <= width) return truncateText(name, FONT_SIZE, width);
  const half = (width - textWidth(PAIR_MARK, FONT_SIZE, true)) / 2;
  return name.split(PAIR_MARK).map((part) => truncateText(part, FONT_SIZE, half)).join(PAIR_MARK);
}

export class MatrixView {
  // rows: arrays of numbers, null where masked. columns: names, or null for vectors. `color` of weights is that of
  // their head; without one the sign has a color. onHover(cell or null) and onSelect([row, column]).
  constructor(options) {
    Object.assign(this, { columns: null, color: null, ...options });
    this.size = [this.rows.length, Math.max(1, ...this.rows.map((row) => row.length))];
    this.scale = this.rows.flat().reduce((largest, value) => Math.max(largest, Math.abs(value ?? 0)), 1e-9);
    this.marks = { row: null, column: null, cell: null, operand: null };
    this.canvas = element("canvas", {
      role: "application",
      tabindex: 0,
      "aria-roledescription": this.texts.matrix,
      "aria-label": this.name,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.onHover(null),
      onclick: (event) => this.click(event),
      onkeydown: (event) => this.handleKey(event),
    });
    this.context = this.canvas.getContext("2d");
  }

  layout(width, isCompact) {
    const [rows, columns] = this.size;
    const nameWidth = Math.max(...this.rowNames.map((name) => textWidth(name, FONT_SIZE, true)));
    this.left = Math.min(this.rowNames.some(isPair) && !isCompact ? MAX_PAIR_NAME : MAX_ROW_NAME, nameWidth) + 8;
    const columnName = this.columns ? Math.max(...this.columns.map((name) => textWidth(name, FONT_SIZE))) : 0;
    const [rise, slant] = [Math.min(MAX_ROW_NAME, columnName) * 0.77 + 12, Math.min(MAX_ROW_NAME, columnName) * 0.64];
    this.top = this.columns ? rise : 2;
    const free = width - this.left - (this.columns ? Math.max(6, slant - 8) : 2);
    this.cellHeight = rows > 24 ? 9 : isCompact || rows > 14 ? 13 : 17;
    this.cellWidth = this.columns ? Math.max(7, Math.min(40, free / columns)) : Math.max(0.5, Math.min(16, free / columns));
    if (this.columns) this.cellHeight = Math.min(this.cellWidth, MAX_CELL_HEIGHT);
    this.width = Math.ceil(this.left + columns * this.cellWidth + (this.columns ? Math.max(6, slant - 8) : 2));
    this.height = Math.ceil(this.top + rows * this.cellHeight + 2);
  }

  // Whether the names of the columns of a map have room.
  isLegible(width, isCompact) {
    this.layout(width, isCompact);
    return !this.columns || this.cellWidth >= MIN_CELL_WIDTH;
  }

  draw({ width, colors, isCompact }, marks = this.marks) {
    this.marks = marks;
    this.layout(width, isCompact);
    const ratio = window.devicePixelRatio || 1;
    const { canvas, context } = this;
    canvas.width = this.width * ratio;
    canvas.height = this.height * ratio;
    canvas.style.width = `${this.width}px`;
    canvas.style.height = `${this.height}px`;
    context.scale(ratio, ratio);
    this.drawCells(colors);
    this.drawNames(colors);
    this.drawMarks(colors);
  }

  drawCells(colors) {
    const { context, left, top, cellWidth, cellHeight } = this;
    const gap = cellWidth > 5 ? 1 : 0;
    const withValues = this.columns && this.size[1] <= MAX_VALUES && cellWidth >= 25;
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.rows.forEach((row, r) => {
      const y = top + r * cellHeight;
      context.globalAlpha = 1;
      context.fillStyle = colors.cell;
      context.fillRect(left, y, this.size[1] * cellWidth - gap, cellHeight - 1);
      row.forEach((value, c) => {
        const x = left + c * cellWidth;
        if (value === null) return this.drawMasked(x, y, colors);
        const strength = Math.abs(value) / this.scale;
        context.globalAlpha = this.color ? strength : Math.sqrt(strength);
        context.fillStyle = this.color ?? (value < 0 ? colors.minus : colors.plus);
        context.fillRect(x, y, Math.max(cellWidth - gap, 0.6), cellHeight - 1);
        if (!withValues) return;
        context.globalAlpha = 1;
        context.fillStyle = readableColor(context.fillStyle, this.color ? strength : Math.sqrt(strength), colors);
        context.fillText(formatCell(value, Boolean(this.color)), x + cellWidth / 2 - 0.5, y + cellHeight / 2);
      });
    });
    context.globalAlpha = 1;
  }

  // Hatched, so that a masked cell never looks like a small number.
  drawMasked(x, y, colors) {
    const { context, cellWidth, cellHeight } = this;
    const [w, h] = [cellWidth - 1, cellHeight - 1];
    context.save();
    context.globalAlpha = 1;
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.fillStyle = colors.surface;
    context.fillRect(x, y, w, h);
    context.strokeStyle = colors.edge;
    context.lineWidth = 1;
    for (let d = -h; d < w; d += 5) {
      context.beginPath();
      context.moveTo(x + d, y + h);
      context.lineTo(x + d + h, y);
      context.stroke();
    }
    context.restore();
  }

  drawNames(colors) {
    const { context, left, top, cellWidth, cellHeight, marks } = this;
    context.textBaseline = "middle";
    const write = (text, x, y, bold) => {
      context.font = `${bold ? "bold " : ""}${cellHeight < 12 ? 9 : cellHeight < 15 ? 11 : FONT_SIZE}px ${FONT}`;
      context.fillStyle = bold ? colors.accent : colors.text;
      context.fillText(text, x, y);
    };
    context.textAlign = "right";
    this.rowNames.forEach((name, r) =>
      write(truncateName(name, this.left - 6), left - 5, top + (r + 0.5) * cellHeight, r === marks.row),
    );
    context.textAlign = "left";
    this.columns?.forEach((name, c) => {
      context.save();
      context.translate(left + (c + 0.5) * cellWidth, top - 5);
      context.rotate(COLUMN_ANGLE);
      write(truncateText(name, FONT_SIZE, MAX_ROW_NAME), 0, 0, c === marks.column);
      context.restore();
    });
  }

  drawMarks(colors) {
    const { context, left, top, cellWidth, cellHeight, marks } = this;
    const [rows, columns] = this.size;
    const frame = (x, y, w, h, width) => {
      context.strokeStyle = colors.accent;
      context.lineWidth = width;
      context.strokeRect(left + x * cellWidth - 0.5, top + y * cellHeight - 0.5, w * cellWidth, h * cellHeight);
    };
    const { operand, cell } = marks;
    if (operand) {
      const { row, column } = operand;
      if (row !== undefined && column !== undefined) frame(column, row, 1, 1, 2);
      else if (row !== undefined) frame(0, row, columns, 1, 2);
      else frame(column, 0, 1, rows, 2);
    }
    if (cell) frame(cell[1], cell[0], 1, 1, 2.5);
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - this.left, event.clientY - box.top - this.top];
    const [row, column] = [Math.floor(y / this.cellHeight), Math.floor(x / this.cellWidth)];
    const isInside = row >= 0 && row < this.size[0] && column < this.rows[row].length;
    return isInside ? [row, column] : null;
  }

  point(event) {
    const cell = this.cellAt(event);
    this.onHover(cell && cell[1] >= 0 ? cell : null, event);
  }

  // A click on a name chooses the token, with the cell that was chosen before or the first.
  click(event) {
    const cell = this.cellAt(event);
    if (cell) this.onSelect(cell[1] >= 0 ? cell : [cell[0], this.marks.cell?.[1] ?? 0]);
  }

  handleKey(event) {
    const [row, column] = this.marks.cell ?? [this.marks.row ?? 0, 0];
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, this.rows[row]?.length - 1],
      Enter: [row, column], " ": [row, column],
    }; // prettier-ignore
    const target = moves[event.key];
    if (!target) return;
    event.preventDefault();
    const [r, c] = target;
    if (r >= 0 && r < this.size[0] && c >= 0 && c < this.rows[r].length) this.onSelect(target);
  }
}
