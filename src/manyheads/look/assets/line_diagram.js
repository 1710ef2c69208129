// Figures 3 to 5: a line from each word to what it looks at, one color a head, the stronger the darker.

import { shortened, textWidth } from "./scene.js";

export const LEAST = 0.01; // of a weight that is drawn
export const MOST_LINES = 4000; // beyond, the strongest: the rest would only be a veil
const WIDEST_LABEL = 170;

// `heads` are [{layer, head, color, map}]; `alone` is null or [side, place].
export function linesScene({ names, languages, heads, alone, pressed, title, colors, room }) {
  const rowHeight = Math.max(names[0].length, names[1].length) > 60 ? 15 : 25;
  const size = rowHeight > 20 ? 14 : 11;
  const widths = names.map((side) => Math.min(WIDEST_LABEL, room * 0.33, widest(side, size)) + 14);
  const width = Math.min(room, widths[0] + widths[1] + 440);
  const top = title ? 30 : 8;
  const height = top + Math.max(names[0].length, names[1].length) * rowHeight + 8;
  const y = (place) => top + (place + 0.5) * rowHeight;
  const left = widths[0];
  const right = width - widths[1];
  const marks = [];
  heads.forEach(({ head, color, map }, n) => {
    const shift = (n - (heads.length - 1) / 2) * Math.min(2.2, (rowHeight - 8) / Math.max(heads.length, 1));
    eachWeight(map, alone, (row, column, weight) => {
      if (weight < LEAST) return;
      marks.push({
        shape: "line",
        x1: left,
        y1: y(row) + shift,
        x2: right,
        y2: y(column) + shift,
        color,
        opacity: weight,
        width: 1 + 2 * weight,
        about: { head, row, column, weight: weight.toFixed(4) },
      });
    });
  });
  marks.sort((a, b) => a.opacity - b.opacity); // the strong on top
  marks.splice(0, marks.length - MOST_LINES);
  if (alone) marks.push(...stripes({ heads, alone, left, right, widths, y, rowHeight }));
  const lit = alone ? litPlaces(heads, alone) : null;
  const labels = [0, 1].flatMap((side) =>
    names[side].map((name, place) => {
      const own = alone && alone[0] === side && alone[1] === place;
      return {
        token: [side, place],
        name,
        text: shortened(name, size, widths[side] - 14),
        size,
        language: languages[side],
        x: side ? right + 7 : left - 7,
        y: y(place),
        align: side ? "left" : "right",
        box: { x: side ? right : 0, y: y(place) - rowHeight / 2, w: widths[side], h: rowHeight },
        color: !alone || own || (alone[0] !== side && lit.has(place)) ? colors.text : colors.faint,
        bold: own,
        pressed: pressed && pressed[0] === side && pressed[1] === place,
      };
    }),
  );
  if (title)
    labels.unshift({ text: title, name: title, x: width / 2, y: 13, size: 13, align: "center", color: colors.faint });
  return { width, height, marks, labels, background: colors.background };
}

const widest = (names, size) => Math.max(...names.map((name) => textWidth(name, size)));

function eachWeight(map, alone, tell) {
  for (let row = 0; row < map.rows; row++) {
    if (alone && alone[0] === 0 && alone[1] !== row) continue;
    for (let column = 0; column < map.columns; column++) {
      if (alone && alone[0] === 1 && alone[1] !== column) continue;
      tell(row, column, map.weights[row * map.columns + column]);
    }
  }
}

// Behind the words at the other end: what each head gives them, in its color.
function stripes({ heads, alone, left, right, widths, y, rowHeight }) {
  const found = [];
  const [side] = alone;
  const room = (side ? widths[0] : widths[1]) - 2;
  heads.forEach(({ color, map }, n) => {
    eachWeight(map, alone, (row, column, weight) => {
      if (weight < LEAST) return;
      const place = side ? row : column;
      const w = room / heads.length;
      found.push({
        shape: "rect",
        x: (side ? left - room : right) + n * w,
        y: y(place) - rowHeight / 2 + 2,
        w,
        h: rowHeight - 4,
        color,
        opacity: 0.6 * weight,
      });
    });
  });
  return found;
}

function litPlaces(heads, alone) {
  const places = new Set();
  for (const { map } of heads) {
    eachWeight(map, alone, (row, column, weight) => weight >= 0.05 && places.add(alone[0] ? row : column));
  }
  return places;
}
