// Render a scene on a canvas.

import { element } from "./dom.js";
import { FONT } from "./scene.js";

const MAX_CANVAS_SIDE = 16000; // pixels that a browser can hold

function paintText(context, { x, y, text, size, color, align = "left", bold = false, rotation = 0 }) {
  context.save();
  context.translate(x, y);
  context.rotate((rotation * Math.PI) / 180);
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

// The marks alone, or with the background and the labels.
export function paintScene(scene, scale, withLabels) {
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

// The whole scene at twice its size, or as large as a browser can hold.
export function renderCanvas(scene) {
  const scale = Math.min(2, MAX_CANVAS_SIDE / Math.max(scene.width, scene.height));
  return paintScene(scene, scale, true);
}
