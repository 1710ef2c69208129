// A picture as plain shapes, painted alike as SVG and on a canvas.
//
// A scene has width, height, colors, `marks` (lines, cells, values: many) and `labels` (tokens and titles: few). Labels are always SVG,
// so that each can be pointed at and focused; marks become SVG as well, and above a number a canvas.

import { element, svgElement } from "./elements.js";

const MOST_MARKS_IN_SVG = 2500;
const FONT = "system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic', sans-serif";

const ruler = document.createElement("canvas").getContext("2d");

export function textWidth(text, size) {
  ruler.font = `${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// A label that fits, with its end left out where it must be.
export function shortened(text, size, most) {
  if (textWidth(text, size) <= most) return text;
  const letters = [...text];
  while (letters.length > 1 && textWidth(letters.join("") + "…", size) > most) letters.pop();
  return letters.join("") + "…";
}

// Two pictures as one.
export function sideBySide(scenes) {
  let x = 0;
  const marks = [];
  const labels = [];
  for (const scene of scenes) {
    const from = x;
    const moved = (one) =>
      one.shape === "line" ? { ...one, x1: one.x1 + from, x2: one.x2 + from } : { ...one, x: one.x + from };
    marks.push(...scene.marks.map(moved));
    labels.push(...scene.labels.map(moved));
    x += scene.width + 20;
  }
  return {
    width: x - 20,
    height: Math.max(...scenes.map((one) => one.height)),
    marks,
    labels,
    background: scenes[0].background,
  };
}

// ---- SVG

const ANCHORS = { left: "start", right: "end", center: "middle" };

function svgMark(mark) {
  const about = {};
  for (const [name, value] of Object.entries(mark.about ?? {})) about[`data-${name}`] = value;
  if (mark.shape === "line") {
    const { x1, y1, x2, y2, color, opacity, width } = mark;
    return svgElement("line", {
      x1: short(x1),
      y1: short(y1),
      x2: short(x2),
      y2: short(y2),
      stroke: color,
      "stroke-opacity": short(opacity),
      "stroke-width": short(width),
      "stroke-linecap": "round",
      ...about,
    });
  }
  if (mark.shape === "rect") {
    const { x, y, w, h, color, opacity = 1 } = mark;
    return svgElement("rect", {
      x: short(x),
      y: short(y),
      width: short(w),
      height: short(h),
      fill: color,
      "fill-opacity": short(opacity),
      ...about,
    });
  }
  if (mark.shape === "image") {
    const { x, y, w, h, canvas } = mark;
    return svgElement("image", {
      x: short(x),
      y: short(y),
      width: short(w),
      height: short(h),
      href: canvas.toDataURL(),
      preserveAspectRatio: "none",
      "image-rendering": "pixelated",
    });
  }
  return svgText(mark, about);
}

function svgText(mark, more = {}) {
  const { x, y, text, size, color, align = "left", bold = false, turn = 0, language = null } = mark;
  const at = turn ? { transform: `translate(${short(x)} ${short(y)}) rotate(${turn})` } : { x: short(x), y: short(y) };
  const look = { fill: color, "font-size": size, "text-anchor": ANCHORS[align], "dominant-baseline": "central" };
  return svgElement("text", { ...at, ...look, "font-weight": bold ? 700 : 400, lang: language, ...more }, text);
}

const short = (number) => Math.round(number * 10000) / 10000;

function svgRoot(scene) {
  const { width, height } = scene;
  return svgElement("svg", {
    viewBox: `0 0 ${short(width)} ${short(height)}`,
    width: short(width),
    height: short(height),
    "font-family": FONT,
  });
}

// The whole picture as one SVG that stands alone.
export function wholeSvg(scene) {
  const svg = svgRoot(scene);
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  svg.append(svgElement("rect", { width: scene.width, height: scene.height, fill: scene.background }));
  svg.append(...scene.marks.map(svgMark), ...scene.labels.map((label) => svgText(label)));
  return svg;
}

// ---- canvas

function paintText(context, { x, y, text, size, color, align = "left", bold = false, turn = 0 }) {
  context.save();
  context.translate(x, y);
  context.rotate((turn * Math.PI) / 180);
  context.font = `${bold ? "bold " : ""}${size}px ${FONT}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = color;
  context.fillText(text, 0, 0);
  context.restore();
}

function paintMark(context, mark) {
  if (mark.shape === "line") {
    context.globalAlpha = mark.opacity;
    context.strokeStyle = mark.color;
    context.lineWidth = mark.width;
    context.beginPath();
    context.moveTo(mark.x1, mark.y1);
    context.lineTo(mark.x2, mark.y2);
    context.stroke();
  } else if (mark.shape === "rect") {
    context.globalAlpha = mark.opacity ?? 1;
    context.fillStyle = mark.color;
    context.fillRect(mark.x, mark.y, mark.w, mark.h);
  } else {
    context.globalAlpha = 1;
    if (mark.shape === "text") return paintText(context, mark);
    context.imageSmoothingEnabled = false;
    context.drawImage(mark.canvas, mark.x, mark.y, mark.w, mark.h);
  }
}

function canvasOf(scene, scale, withLabels) {
  const canvas = element("canvas", { width: Math.ceil(scene.width * scale), height: Math.ceil(scene.height * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  if (withLabels) {
    context.fillStyle = scene.background;
    context.fillRect(0, 0, scene.width, scene.height);
  }
  for (const mark of scene.marks) paintMark(context, mark);
  context.globalAlpha = 1;
  if (withLabels) for (const label of scene.labels) paintText(context, label);
  return canvas;
}

// The whole picture with twice as many pixels, or as many as a browser can hold.
export function wholeCanvas(scene) {
  const scale = Math.min(2, 16000 / Math.max(scene.width, scene.height));
  return canvasOf(scene, scale, true);
}

// ---- on the page

// Shows scenes in a holder. Labels that are tokens can be pointed at, focused and pressed; when only their
// looks change they stay where they are, and so does the focus.
export class Picture {
  constructor(holder, { onPoint, onPress, onLeave }) {
    this.holder = holder;
    this.listeners = { onPoint, onPress, onLeave };
    this.layout = "";
  }

  draw(scene) {
    const layout = JSON.stringify([scene.width, scene.height, scene.labels.map((one) => [one.x, one.y, one.name])]);
    if (layout !== this.layout) this.build(scene);
    this.layout = layout;
    this.scene = scene;
    this.paintMarks(scene);
    scene.labels.forEach((label, n) => this.dress(this.labels[n], label));
  }

  build(scene) {
    this.svg = svgRoot(scene);
    this.svg.setAttribute("role", "group");
    this.svg.setAttribute("aria-label", scene.name);
    this.marks = svgElement("g", { "aria-hidden": "true" });
    this.labels = scene.labels.map((label) => (label.token ? this.token(label) : svgText(label)));
    this.svg.append(this.marks, ...this.labels);
    this.canvas = null;
    this.holder.replaceChildren(this.svg);
    for (const side of [0, 1]) this.tokensOf(side)[0]?.setAttribute("tabindex", "0");
  }

  paintMarks(scene) {
    const asCanvas = scene.marks.length > MOST_MARKS_IN_SVG;
    this.marks.replaceChildren(...(asCanvas ? [] : scene.marks.map(svgMark)));
    this.canvas?.remove();
    this.canvas = null;
    if (asCanvas) {
      this.canvas = canvasOf(scene, window.devicePixelRatio || 1, false);
      this.canvas.style.width = `${scene.width}px`;
      this.canvas.style.height = `${scene.height}px`;
      this.canvas.setAttribute("aria-hidden", "true");
      this.holder.prepend(this.canvas);
    }
  }

  token(label) {
    const [side, place] = label.token;
    const { x, y, w, h } = label.box;
    const box = svgElement("rect", { x, y, width: w, height: h, rx: 3, fill: "transparent", class: "box" });
    const made = svgElement(
      "g",
      {
        class: "token",
        role: "button",
        tabindex: -1,
        "aria-label": label.name,
        "data-side": side,
        "data-place": place,
        onpointerenter: () => this.listeners.onPoint(label.token),
        onpointerleave: () => this.listeners.onLeave(),
        onfocus: () => this.listeners.onPoint(label.token),
        onblur: () => this.listeners.onLeave(),
        onclick: () => this.listeners.onPress(label.token),
        onkeydown: (event) => this.key(event, label.token),
      },
      box,
      svgText(label, { "aria-hidden": "true" }),
    );
    return made;
  }

  dress(made, label) {
    const text = label.token ? made.lastChild : made;
    text.setAttribute("fill", label.color);
    text.setAttribute("font-weight", label.bold ? 700 : 400);
    if (label.token) made.setAttribute("aria-pressed", label.pressed ? "true" : "false");
  }

  tokensOf(side) {
    return this.labels.filter((one) => one.dataset.side === String(side));
  }

  // Arrows along a side, and across to the other one; Home and End. The columns of a heat map lie sideways.
  key(event, [side, place]) {
    const own = this.tokensOf(side);
    const other = this.tokensOf(1 - side);
    const across = other[Math.min(place, other.length - 1)];
    const [back, on] = [own[place - 1], own[place + 1]];
    const lying = side === 1 && this.scene.sideways;
    const moves = {
      ...(lying ? { ArrowLeft: back, ArrowRight: on, ArrowDown: across } : { ArrowUp: back, ArrowDown: on }),
      ...(lying ? {} : { [side ? "ArrowLeft" : "ArrowRight"]: across }),
      Home: own[0],
      End: own.at(-1),
    };
    if (event.key in moves) {
      event.preventDefault();
      const next = moves[event.key];
      if (!next) return;
      for (const one of this.labels) if (one.dataset.side === next.dataset.side) one.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.listeners.onPress([side, place]);
    } else if (event.key === "Escape") {
      this.listeners.onPress(null);
    }
  }
}
