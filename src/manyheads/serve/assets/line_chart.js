// A line chart over steps as SVG, which can be read with the pointer and the arrow keys.

import { svgElement } from "./look/dom.js";

const [WIDTH, HEIGHT] = [560, 240];
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 12, 10, 30];

// `lines` is [{series, points: [[step, value], ...]}]; onRead(text) gets the values at the cursor.
export function createChart({ lines, isLogarithmic, label, texts, onRead }) {
  const scale = createScale(lines, isLogarithmic);
  const cursor = svgElement("g", { class: "cursor" });
  const svg = svgElement(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0 },
    createAxes(scale),
    ...createCurves(lines, scale),
    cursor,
  );
  addCursor({ svg, cursor, lines, scale, texts, onRead });
  return svg;
}

function createAxes({ x, y, stepTicks, valueTicks }) {
  const axes = svgElement("g", { class: "axis" });
  for (const value of valueTicks)
    axes.append(
      svgElement("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svgElement("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, formatNumber(value)),
    );
  for (const step of stepTicks) {
    const attributes = { x: x(step), y: HEIGHT - 10, "text-anchor": "middle" };
    axes.append(svgElement("text", attributes, step.toLocaleString("en")));
  }
  return axes;
}

function createCurves(lines, { x, y }) {
  const command = ([step, value], n) => `${n ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
  const paths = lines.map(({ series, points }) =>
    svgElement("path", { class: series, d: points.map(command).join("") }),
  );
  const withDots = lines.filter(({ series, points }) => series === "valid" || points.length === 1);
  const dots = withDots.flatMap(({ series, points }) =>
    points.map(([step, value]) => svgElement("circle", { class: series, cx: x(step), cy: y(value), r: 3 })),
  );
  return [...paths, ...dots];
}

function addCursor({ svg, cursor, lines, scale, texts, onRead }) {
  const { x, y } = scale;
  const steps = [...new Set(lines.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
  const last = steps.length - 1;
  let index = last;
  const moveTo = (n, isVisible = true) => {
    index = Math.max(0, Math.min(last, n));
    const step = steps[index];
    const values = lines.flatMap(({ series, points }) => {
      const point = points.find(([other]) => other === step);
      return point ? [[series, point[1]]] : [];
    });
    const reading = values.map(([series, value]) => `${texts[series]} ${formatNumber(value)}`).join(", ");
    const text = `${texts.step} ${step.toLocaleString("en")}: ${reading}`;
    svg.setAttribute("aria-valuenow", index);
    svg.setAttribute("aria-valuetext", text);
    if (!isVisible) return;
    onRead(text);
    cursor.replaceChildren(
      svgElement("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM }),
      ...values.map(([series, value]) => svgElement("circle", { class: series, cx: x(step), cy: y(value), r: 4.5 })),
    );
  };
  svg.setAttribute("aria-valuemax", last);
  moveTo(index, false);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const position = ((event.clientX - box.left) / box.width) * WIDTH;
    const distance = (step) => Math.abs(x(step) - position);
    moveTo(steps.reduce((best, step, n) => (distance(step) < distance(steps[best]) ? n : best), 0));
  });
  svg.addEventListener("keydown", (event) => {
    const [previous, next] = [index - 1, index + 1];
    const arrows = { ArrowLeft: previous, ArrowDown: previous, ArrowRight: next, ArrowUp: next };
    const target = { ...arrows, Home: 0, End: last }[event.key];
    if (target === undefined) return;
    moveTo(target);
    event.preventDefault();
  });
}

export function formatNumber(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 0.001 && size < 1000) return String(Number(value.toPrecision(4)));
  const notation = size >= 1000 ? "compact" : "scientific";
  return Intl.NumberFormat("en", { notation, maximumSignificantDigits: 3 }).format(value);
}

// Functions from steps and values to coordinates, and the ticks of the axes.
function createScale(lines, isLogarithmic) {
  const points = lines.flatMap((line) => line.points);
  const steps = points.map(([step]) => step);
  const values = points.map(([, value]) => value).filter((value) => !isLogarithmic || value > 0);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const transform = isLogarithmic ? (value) => Math.log10(Math.max(value, 1e-9)) : (value) => value;
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (!isLogarithmic) low = Math.min(low, 0);
  if (high === low) high = low + 1;
  const valueTicks = isLogarithmic ? powersOfTen(low, high) : roundTicks(low, high, 5);
  high = Math.max(high, valueTicks.at(-1));
  const share = (value) => (transform(value) - transform(low)) / (transform(high) - transform(low));
  const inRange = roundTicks(first, last, 4).filter(
    (step) => step >= first && step <= last && Number.isInteger(step),
  );
  return {
    x: (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT),
    y: (value) => HEIGHT - BOTTOM - share(value) * (HEIGHT - TOP - BOTTOM),
    valueTicks,
    stepTicks: inRange.length > 1 ? inRange : [...new Set([first, last])],
  };
}

// Round numbers; the last is not below `high`.
function roundTicks(low, high, maxCount) {
  const minSpacing = (high - low || 1) / maxCount;
  const power = 10 ** Math.floor(Math.log10(minSpacing));
  const spacing = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= minSpacing);
  const ticks = [];
  for (let n = Math.ceil(low / spacing); ; n++) {
    ticks.push(Number((n * spacing).toPrecision(12)));
    if (n * spacing >= high) return ticks;
  }
}

function powersOfTen(low, high) {
  const powers = [];
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) powers.push(10 ** power);
  const stride = Math.ceil(powers.length / 5);
  const ticks = powers.filter((_, n) => n % stride === 0);
  return ticks.length > 1 ? ticks : [low, high];
}
