// Figures of the widgets: tables of shaded numbers, bars and lines.

import { element, svgElement } from "../../src/manyheads/look/assets/dom.js";

export function formatNumber(value, digits = 3) {
  if (value === 0 || !Number.isFinite(value)) return String(value).replace("-Infinity", "-∞").replace("Infinity", "∞");
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e7) return value.toExponential(digits - 1);
  return size >= 1000 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(digits)).toString();
}

// A table with a name for each row and column. `shade(row, column)` is a share of the color from 0 to 1.
export function createTable({ caption, columns, rows, cells, shade = () => 0, format = formatNumber }) {
  const head = element("tr", {}, element("td"), ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((name, row) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      ...cells[row].map((value, column) => {
        const node = element("td", {}, typeof value === "number" ? format(value) : value);
        node.style.setProperty("--share", Math.min(1, Math.max(0, shade(row, column))));
        return node;
      }),
    ),
  );
  const table = element("table", { class: "widget-table" }, element("caption", {}, element("span", {}, caption)), element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "widget-scroll", tabindex: 0, role: "region", "aria-label": caption }, table);
}

const WIDTH = 560;
const HEIGHT = 240;
const MARGIN = { left: 62, right: 12, top: 12, bottom: 38 };
const DASHES = ["none", "7 4", "2 3", "9 3 2 3"];

// Lines {name, points: [[x, y]]} over linear or logarithmic axes; `mark` is a vertical line at an x.
export function createLinePlot({ label, xName, yName, lines, isLogX = false, isLogY = false, mark = null }) {
  const all = lines.flatMap(({ points }) => points).filter(([, y]) => Number.isFinite(y) && (!isLogY || y > 0));
  const scaleX = createScale(all.map(([x]) => x), isLogX, MARGIN.left, WIDTH - MARGIN.right);
  const scaleY = createScale(all.map(([, y]) => y), isLogY, HEIGHT - MARGIN.bottom, MARGIN.top);
  const text = (x, y, content, anchor = "middle") => svgElement("text", { x, y, "text-anchor": anchor }, content);
  const nodes = lines.map(({ points }, index) => {
    const path = points.filter(([, y]) => !isLogY || y > 0).map(([x, y], i) => `${i ? "L" : "M"}${scaleX(x).toFixed(1)} ${scaleY(y).toFixed(1)}`);
    return svgElement("path", { d: path.join(""), class: `widget-line line-${index}`, "stroke-dasharray": DASHES[index % DASHES.length] });
  });
  const { left, right, top, bottom } = MARGIN;
  const axes = svgElement("path", { class: "widget-axis", d: `M${left} ${top}V${HEIGHT - bottom}H${WIDTH - right}` });
  const marks = mark === null ? [] : [svgElement("path", { class: "widget-mark", d: `M${scaleX(mark)} ${top}V${HEIGHT - bottom}` })];
  const labels = [
    text(left, HEIGHT - bottom + 15, formatNumber(scaleX.min), "start"),
    text(WIDTH - right, HEIGHT - bottom + 15, formatNumber(scaleX.max), "end"),
    text((left + WIDTH - right) / 2, HEIGHT - 6, xName),
    text(left - 6, HEIGHT - bottom, formatNumber(scaleY.min), "end"),
    text(left - 6, top + 10, formatNumber(scaleY.max), "end"),
    text(left + 6, top + 10, yName, "start"),
  ];
  const svg = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, axes, ...nodes, ...marks, ...labels);
  return element("figure", { class: "widget-plot" }, svg, createLegend(lines));
}

function createLegend(lines) {
  const entries = lines.map(({ name }, index) => {
    const sample = svgElement("path", { d: "M0 6H26", class: `widget-line line-${index}`, "stroke-dasharray": DASHES[index % DASHES.length] });
    const svg = svgElement("svg", { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" }, sample);
    return element("span", {}, svg, ` ${name}`);
  });
  return element("figcaption", {}, ...entries);
}

function createScale(values, isLog, start, end) {
  const map = isLog ? Math.log : (value) => value;
  const [min, max] = [Math.min(...values), Math.max(...values)];
  const range = map(max) - map(min) || 1;
  const scale = (value) => start + ((map(Math.min(max, Math.max(min, value))) - map(min)) / range) * (end - start);
  return Object.assign(scale, { min, max });
}

// A grid of small squares, from -limit to limit or from 0 to limit, too many for numbers.
export function createGrid({ label, rows, columns, value, limit }) {
  const size = Math.max(3, Math.min(16, Math.floor(540 / columns)));
  const cells = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const share = value(row, column) / limit;
      const attributes = { x: column * size, y: row * size, width: size, height: size, class: share < 0 ? "is-negative" : "is-positive" };
      const title = svgElement("title", {}, `${row}, ${column}: ${formatNumber(value(row, column))}`);
      cells.push(svgElement("rect", { ...attributes, "fill-opacity": Math.min(1, Math.abs(share)).toFixed(3) }, title));
    }
  }
  const svg = svgElement("svg", { viewBox: `0 0 ${columns * size} ${rows * size}`, width: columns * size, role: "img", "aria-label": label }, ...cells);
  return element("div", { class: "widget-scroll widget-grid", tabindex: 0, role: "region", "aria-label": label }, svg);
}
