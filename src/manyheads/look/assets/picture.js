// An interactive picture of a scene. Token labels can be hovered, focused and pinned.
//
// Labels are always SVG, so that they can take the focus. Marks are SVG up to a number, and above it a canvas.

import { paintScene } from "./canvas_renderer.js";
import { svgElement } from "./dom.js";
import { renderMark, renderRoot, renderText } from "./svg_renderer.js";

const MAX_SVG_MARKS = 2500;

export class Picture {
  constructor(container, { onHover, onPin, onLeave }) {
    this.container = container;
    this.listeners = { onHover, onPin, onLeave };
    this.layout = "";
  }

  // Labels are built again only when they move, so that the focus stays where it is.
  draw(scene) {
    const positions = scene.labels.map((label) => [label.x, label.y, label.name]);
    const layout = JSON.stringify([scene.width, scene.height, positions]);
    if (layout !== this.layout) this.build(scene);
    this.layout = layout;
    this.scene = scene;
    this.drawMarks(scene);
    scene.labels.forEach((label, n) => this.updateLabel(this.labels[n], label));
  }

  build(scene) {
    this.svg = renderRoot(scene);
    this.svg.setAttribute("role", "group");
    this.svg.setAttribute("aria-label", scene.name);
    this.marks = svgElement("g", { "aria-hidden": "true" });
    this.labels = scene.labels.map((label) => (label.token ? this.buildToken(label) : renderText(label)));
    this.svg.append(this.marks, ...this.labels);
    this.canvas = null;
    this.container.replaceChildren(this.svg);
    for (const side of [0, 1]) this.tokensOfSide(side)[0]?.setAttribute("tabindex", "0");
  }

  drawMarks(scene) {
    const useCanvas = scene.marks.length > MAX_SVG_MARKS;
    this.marks.replaceChildren(...(useCanvas ? [] : scene.marks.map(renderMark)));
    this.canvas?.remove();
    this.canvas = null;
    if (useCanvas) {
      this.canvas = paintScene(scene, window.devicePixelRatio || 1, false);
      this.canvas.style.width = `${scene.width}px`;
      this.canvas.style.height = `${scene.height}px`;
      this.canvas.setAttribute("aria-hidden", "true");
      this.container.prepend(this.canvas);
    }
  }

  buildToken(label) {
    const [side, index] = label.token;
    const { x, y, w, h } = label.box;
    const box = svgElement("rect", { x, y, width: w, height: h, rx: 3, fill: "transparent", class: "box" });
    return svgElement(
      "g",
      {
        class: "token",
        role: "button",
        tabindex: -1,
        "aria-label": label.name,
        "data-side": side,
        "data-index": index,
        onpointerenter: () => this.listeners.onHover(label.token),
        onpointerleave: () => this.listeners.onLeave(),
        onfocus: () => this.listeners.onHover(label.token),
        onblur: () => this.listeners.onLeave(),
        onclick: () => this.listeners.onPin(label.token),
        onkeydown: (event) => this.handleKey(event, label.token),
      },
      box,
      renderText(label, { "aria-hidden": "true" }),
    );
  }

  updateLabel(node, label) {
    const text = label.token ? node.lastChild : node;
    text.setAttribute("fill", label.color);
    text.setAttribute("font-weight", label.bold ? 700 : 400);
    if (label.token) node.setAttribute("aria-pressed", label.pinned ? "true" : "false");
  }

  tokensOfSide(side) {
    return this.labels.filter((label) => label.dataset.side === String(side));
  }

  // Arrow keys move along a side and across to the other side; so do Home and End. The keys of a heat map
  // lie in a row, not in a column.
  handleKey(event, [side, index]) {
    const tokens = this.tokensOfSide(side);
    const others = this.tokensOfSide(1 - side);
    const across = others[Math.min(index, others.length - 1)];
    const [previous, next] = [tokens[index - 1], tokens[index + 1]];
    const horizontal = side === 1 && this.scene.keysAreHorizontal;
    const targets = {
      ...(horizontal
        ? { ArrowLeft: previous, ArrowRight: next, ArrowDown: across }
        : { ArrowUp: previous, ArrowDown: next, [side ? "ArrowLeft" : "ArrowRight"]: across }),
      Home: tokens[0],
      End: tokens.at(-1),
    };
    if (event.key in targets) {
      event.preventDefault();
      this.moveFocus(targets[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.listeners.onPin([side, index]);
    } else if (event.key === "Escape") {
      this.listeners.onPin(null);
    }
  }

  moveFocus(token) {
    if (!token) return;
    for (const other of this.tokensOfSide(token.dataset.side)) other.setAttribute("tabindex", -1);
    token.setAttribute("tabindex", 0);
    token.focus();
  }
}
