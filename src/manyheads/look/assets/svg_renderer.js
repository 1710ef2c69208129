// Render a scene as SVG.

import { svgElement } from "./dom.js";
import { FONT } from "./scene.js";

const TEXT_ANCHORS = { left: "start", right: "end", center: "middle" };

const roundCoordinate = (number) => Math.round(number * 10000) / 10000;

export function renderMark(mark) {
  const data = {};
  for (const [name, value] of Object.entries(mark.data ?? {})) data[`data-${name}`] = value;
  if (mark.shape === "line") {
    const { x1, y1, x2, y2, color, opacity, width } = mark;
    return svgElement("line", {
      x1: roundCoordinate(x1),
      y1: roundCoordinate(y1),
      x2: roundCoordinate(x2),
      y2: roundCoordinate(y2),
      stroke: color,
      "stroke-opacity": roundCoordinate(opacity),
      "stroke-width": roundCoordinate(width),
      "stroke-linecap": "round",
      ...data,
    });
  }
  if (mark.shape === "text") return renderText(mark, data);
  const { x, y, w, h } = mark;
  const box = { x: roundCoordinate(x), y: roundCoordinate(y), width: roundCoordinate(w), height: roundCoordinate(h) };
  if (mark.shape === "rect") {
    const { color, opacity = 1 } = mark;
    return svgElement("rect", { ...box, fill: color, "fill-opacity": roundCoordinate(opacity), ...data });
  }
  return svgElement("image", {
    ...box,
    href: mark.canvas.toDataURL(),
    preserveAspectRatio: "none",
    "image-rendering": "pixelated",
  });
}

export function renderText(label, attributes = {}) {
  const { x, y, text, size, color, align = "left", bold = false, rotation = 0, language = null } = label;
  const [left, top] = [roundCoordinate(x), roundCoordinate(y)];
  const position = rotation ? { transform: `translate(${left} ${top}) rotate(${rotation})` } : { x: left, y: top };
  const style = { fill: color, "font-size": size, "text-anchor": TEXT_ANCHORS[align], "dominant-baseline": "central" };
  const weight = { "font-weight": bold ? 700 : 400 };
  return svgElement("text", { ...position, ...style, ...weight, lang: language, ...attributes }, text);
}

export function renderRoot(scene) {
  const { width, height } = scene;
  return svgElement("svg", {
    viewBox: `0 0 ${roundCoordinate(width)} ${roundCoordinate(height)}`,
    width: roundCoordinate(width),
    height: roundCoordinate(height),
    "font-family": FONT,
  });
}

// The whole scene as an SVG document that needs no style sheet.
export function renderSvg(scene) {
  const svg = renderRoot(scene);
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  svg.append(svgElement("rect", { width: scene.width, height: scene.height, fill: scene.background }));
  svg.append(...scene.marks.map(renderMark), ...scene.labels.map((label) => renderText(label)));
  return svg;
}
