// A line chart as SVG, which can be read with the pointer and the arrow keys. Several charts can share a cursor.

import { svgElement } from "./look/dom.js";
import { createLinearAxis, createLogarithmicAxis, createStepAxis, createTimeAxis, formatNumber } from "./chart_scale.js";

export const MAX_WIDTH = 560;
const HEIGHT = 256;
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 16, 10, 46];
const LABELS = HEIGHT - 26; // the baseline of the labels of the horizontal axis
const TICK = 5;
const NEAR = 0.01; // of the width: how far a point may be from the cursor to be read

// `lines` is [{name, series, color, points: [[x, value], ...], smoothed}], where x is a step or a time; `color` and
// `smoothed` may be missing. `places` are the x of all charts that share an axis, `width` the pixels to draw on.
// onCursor(x) is called when the reader moves the cursor, and onRead(text) with the values there. Returns the SVG, with
// moveTo(x) for the cursor of another chart.
export function createChart({ lines, places, width, isLogarithmic, isTime, label, texts, onCursor, onRead }) {
  const points = lines.flatMap((line) => line.points);
  const createX = isTime ? createTimeAxis : createStepAxis;
  const createY = isLogarithmic ? createLogarithmicAxis : createLinearAxis;
  const x = createX(places, [LEFT, width - RIGHT]);
  const y = createY(points.map(([, value]) => value), [HEIGHT - BOTTOM, TOP]);
  const cursor = svgElement("g", { class: "cursor" });
  const svg = svgElement(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0 },
    createAxes(x, y, width, isTime ? "" : texts.axes.step),
    ...lines.flatMap((line) => createCurve(line, x, y)),
    cursor,
  );
  const moveTo = addCursor({ svg, cursor, lines, x, y, width, texts, onCursor, onRead, isTime });
  return { svg, moveTo };
}

// `name` is that of the horizontal axis. Labels of times have units, and need none.
function createAxes(x, y, width, name) {
  const axes = svgElement("g", { class: "axis" });
  for (const value of y.ticks) {
    const height = y.position(value);
    axes.append(
      svgElement("line", { x1: LEFT, x2: width - RIGHT, y1: height, y2: height }),
      svgElement("text", { x: LEFT - 6, y: height + 4, "text-anchor": "end" }, y.format(value)),
    );
  }
  const bottom = HEIGHT - BOTTOM;
  if (name) axes.append(svgElement("text", { x: width - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, name));
  for (const value of [...x.ticks, ...x.end]) {
    const place = x.position(value);
    axes.append(
      svgElement("line", { class: "tick", x1: place, x2: place, y1: bottom, y2: bottom + TICK }),
      svgElement("text", { x: place, y: LABELS, "text-anchor": "middle" }, x.formatTick(value)),
    );
  }
  return axes;
}

// The points as a path; where they are smoothed, themselves faintly behind it.
function createCurve({ series, color, points, smoothed }, x, y) {
  const command = ([own, value], n) => `${n ? "L" : "M"}${x.position(own).toFixed(1)} ${y.position(value).toFixed(1)}`;
  const draw = (shown, name) => paint(svgElement("path", { class: name, d: shown.map(command).join("") }), color, "stroke");
  const dots = series === "valid" || points.length === 1 ? points : [];
  return [
    ...(smoothed ? [draw(points, `${series} faint`), draw(smoothed, series)] : [draw(points, series)]),
    ...dots.map(([own, value]) => createDot(series, color, x.position(own), y.position(value), 3)),
  ];
}

function createDot(series, color, cx, cy, r) {
  return paint(svgElement("circle", { class: series, cx, cy, r }), color, "fill");
}

// Colors are set as properties: the policy of a page may not allow style attributes.
function paint(node, color, property) {
  if (color) node.style[property] = color;
  return node;
}

// How far from the cursor a point is read. Training is logged so often that the nearest point will do.
function findTolerance(series, points, { position }, width) {
  const near = NEAR * (width - LEFT - RIGHT);
  if (series !== "train" || points.length < 2) return near;
  return Math.max(near, (position(points.at(-1)[0]) - position(points[0][0])) / (points.length - 1) / 2);
}

function addCursor({ svg, cursor, lines, x, y, width, texts, onCursor, onRead, isTime }) {
  const places = [...new Set(lines.flatMap(({ points }) => points.map(([own]) => own)))].sort((a, b) => a - b);
  const last = places.length - 1;
  let index = last;
  const read = (place, isVisible) => {
    const values = lines.flatMap(({ name, series, color, points }) => {
      const distance = ([own]) => Math.abs(x.position(own) - x.position(place));
      const nearest = points.reduce((best, point) => (distance(point) < distance(best) ? point : best), points[0]);
      return distance(nearest) <= findTolerance(series, points, x, width) ? [{ name, series, color, point: nearest }] : [];
    });
    const reading = values.map(({ name, point }) => `${name} ${formatNumber(point[1])}`).join(", ");
    const text = `${isTime ? texts.time : texts.step} ${x.format(place)}: ${reading}`;
    svg.setAttribute("aria-valuenow", index);
    svg.setAttribute("aria-valuetext", text);
    if (!isVisible) return;
    onRead(text);
    const line = svgElement("line", { x1: x.position(place), x2: x.position(place), y1: TOP, y2: HEIGHT - BOTTOM });
    const dots = values.map(({ series, color, point: [own, value] }) => createDot(series, color, x.position(own), y.position(value), 4.5));
    cursor.replaceChildren(line, ...dots);
  };
  const findNearest = (pixel) =>
    places.reduce((best, place, n) => (Math.abs(x.position(place) - pixel) < Math.abs(x.position(places[best]) - pixel) ? n : best), 0);
  const choose = (n) => {
    index = Math.max(0, Math.min(last, n));
    onCursor(places[index]);
  };
  svg.setAttribute("aria-valuemax", last);
  read(places[last], false);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    choose(findNearest(((event.clientX - box.left) / box.width) * width));
  });
  svg.addEventListener("keydown", (event) => {
    const [previous, next] = [index - 1, index + 1];
    const arrows = { ArrowLeft: previous, ArrowDown: previous, ArrowRight: next, ArrowUp: next };
    const target = { ...arrows, Home: 0, End: last }[event.key];
    if (target === undefined) return;
    choose(target);
    event.preventDefault();
  });
  return (place) => {
    index = findNearest(x.position(place));
    read(places[index], true);
  };
}
