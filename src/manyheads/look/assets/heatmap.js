// One head as a heat map: rows look at columns, with the value in each cell where there is room.

import { shortened, textWidth } from "./scene.js";

const WITH_VALUES = 26; // columns: up to so many each cell has its number
const TURNED = -55; // degrees, of the names of columns
const LONGEST_NAME = 110;

export function heatScene({ names, languages, map, color, alone, pressed, title, colors, room }) {
  const values = map.columns <= WITH_VALUES;
  const size = values ? 13 : 10;
  const longest = names.map((side) => Math.min(LONGEST_NAME, Math.max(...side.map((name) => textWidth(name, size)))));
  const left = longest[0] + 12;
  const rise = longest[1] * Math.sin((-TURNED * Math.PI) / 180) + 14;
  const lean = longest[1] * Math.cos((TURNED * Math.PI) / 180) + 10;
  const top = (title ? 28 : 4) + rise;
  const cell = clamp((room - left - lean) / map.columns, values ? 25 : 7, values ? 46 : 20);
  const tall = values ? Math.min(cell, 34) : cell;
  const marks = [
    { shape: "rect", x: left - 1, y: top - 1, w: map.columns * cell + 1, h: map.rows * tall + 1, color: colors.cell },
  ];
  for (let row = 0; row < map.rows; row++) {
    for (let column = 0; column < map.columns; column++) {
      const weight = map.weights[row * map.columns + column];
      const shown = !alone || alone[1] === (alone[0] ? column : row);
      const x = left + column * cell;
      const y = top + row * tall;
      const about = { row, column, weight: weight.toFixed(4) };
      marks.push({
        shape: "rect",
        x,
        y,
        w: cell - 1,
        h: tall - 1,
        color,
        opacity: weight * (shown ? 1 : 0.12),
        about,
      });
      if (values && shown && weight >= 0.005) {
        const ink = weight > 0.85 ? colors.onColor : colors.text;
        marks.push({
          shape: "text",
          x: x + cell / 2 - 0.5,
          y: y + tall / 2,
          text: brief(weight),
          size: 11,
          align: "center",
          color: ink,
        });
      }
    }
  }
  const labelOf = (side, place, more) => {
    const own = alone && alone[0] === side && alone[1] === place;
    return {
      token: [side, place],
      name: names[side][place],
      text: shortened(names[side][place], size, LONGEST_NAME),
      size,
      language: languages[side],
      color: !alone || own || alone[0] !== side ? colors.text : colors.faint,
      bold: own,
      pressed: pressed && pressed[0] === side && pressed[1] === place,
      ...more,
    };
  };
  const rows = names[0].map((_, place) =>
    labelOf(0, place, {
      x: left - 6,
      y: top + (place + 0.5) * tall,
      align: "right",
      box: { x: 0, y: top + place * tall, w: left - 3, h: tall - 1 },
    }),
  );
  const columns = names[1].map((_, place) =>
    labelOf(1, place, {
      x: left + (place + 0.5) * cell,
      y: top - 6,
      turn: TURNED,
      box: { x: left + place * cell, y: top - 24, w: cell - 1, h: 23 },
    }),
  );
  const width = left + map.columns * cell + lean;
  const labels = [...rows, ...columns];
  if (title) labels.unshift({ text: title, name: title, x: 2, y: 12, size: 13, color: colors.faint });
  const at = (x, y) => {
    const [column, row] = [Math.floor((x - left) / cell), Math.floor((y - top) / tall)];
    return row >= 0 && column >= 0 && row < map.rows && column < map.columns ? [row, column] : null;
  };
  return {
    width,
    height: top + map.rows * tall + 4,
    marks,
    labels,
    at,
    sideways: true,
    background: colors.background,
  };
}

const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

const brief = (weight) => (weight >= 0.995 ? "1" : weight.toFixed(2).slice(1));
