// Figure 1 of the paper as navigation: every block can be chosen, and a token moves from block to block.

import { svgElement } from "./dom.js";
import { FONT, textWidth, truncateText } from "./scene.js";

const SIZE = { width: 392, height: 600 };
const COLUMNS = { encoder: 42, decoder: 226 }; // left edges of the blocks
const BLOCK_WIDTH = 124;
const LINE_HEIGHT = 15;
const MAX_LAYER_BUTTONS = 8;
const LAYER_WIDTH = 32; // of the area of a layer button that can be touched
const MARKER_SIZE = 13; // of its letters, as in walk.css
const MOVE_MILLISECONDS = 480;

// Block: [top, height, color]. Both columns share the baseline of their stacks.
const LAYOUT = {
  encoder: {
    encoder_norm: [196, 24, "norm"],
    feed_forward_add: [244, 26, "norm"],
    feed_forward: [277, 34, "feed-forward"],
    self_add: [333, 26, "norm"],
    self: [366, 52, "attention"],
    embedding: [512, 40, "embedding"],
  },
  decoder: {
    softmax: [32, 26, "softmax"],
    linear: [70, 26, "linear"],
    decoder_norm: [108, 24, "norm"],
    feed_forward_add: [154, 26, "norm"],
    feed_forward: [187, 34, "feed-forward"],
    cross_add: [243, 26, "norm"],
    cross: [276, 40, "attention"],
    self_add: [333, 26, "norm"],
    self: [366, 52, "attention"],
    embedding: [512, 40, "embedding"],
  },
};
const STACK_BOXES = { encoder: [231, 440], decoder: [141, 440] };
const PLUS_Y = 479;
const MEMORY_Y = 210; // of the line out of the encoder
const INPUT_Y = 572; // of the lines into both stacks

export class ArchitectureDiagram {
  // `stations` as walk_stations.js lists them; onSelect(stack, layer, block).
  constructor({ stations, stacks, texts, onSelect }) {
    Object.assign(this, { stations, stacks, texts, onSelect });
    this.layers = { encoder: 0, decoder: 0 };
    this.blocks = new Map();
    this.layerButtons = [];
    this.marker = this.createMarker();
    this.svg = svgElement(
      "svg",
      {
        class: "architecture",
        viewBox: `0 0 ${SIZE.width} ${SIZE.height}`,
        role: "group",
        "aria-label": texts.diagram,
        "font-family": FONT,
        onkeydown: (event) => this.handleKey(event),
      },
      ...Object.keys(LAYOUT).flatMap((stack) => this.createStackBoxes(stack)),
      ...this.createWires(), // over the boxes of the stacks, under the blocks
      ...Object.keys(LAYOUT).flatMap((stack) => this.createStack(stack)),
      ...this.createCaptions(),
      this.marker,
    );
  }

  // The first station of a block; the same block of every layer has the same label.
  findStation(stack, block) {
    return this.stations.find((station) => station.stack === stack && station.block === block);
  }

  // The box around the blocks of a layer, and the edges of those behind it.
  createStackBoxes(stack) {
    const [top, bottom] = STACK_BOXES[stack];
    const x = COLUMNS[stack] - 10;
    const box = { x, y: top, width: BLOCK_WIDTH + 20, height: bottom - top, rx: 9 };
    const shadows = this.stacks[stack] > 1 ? [5, 2.5].map((d) => ({ ...box, x: x + d, y: top - d })) : [];
    return [...shadows, box].map((shape) => svgElement("rect", { ...shape, class: "stack" }));
  }

  createStack(stack) {
    const blocks = Object.keys(LAYOUT[stack]).filter((block) => this.findStation(stack, block));
    return [...blocks.map((block) => this.createBlock(stack, block)), ...this.createLayerButtons(stack)];
  }

  createBlock(stack, block) {
    const [y, height, color] = LAYOUT[stack][block];
    const x = COLUMNS[stack];
    const lines = this.texts.blocks[this.findStation(stack, block).label];
    const name = `${this.texts[stack]}: ${lines.join(" ")}`;
    const middle = y + height / 2 - ((lines.length - 1) * LINE_HEIGHT) / 2;
    const node = svgElement(
      "g",
      {
        class: `block ${color}`,
        role: "button",
        tabindex: -1,
        "aria-label": name,
        "data-block": `${stack}.${block}`,
        onclick: () => this.onSelect(stack, this.layers[stack], block),
      },
      svgElement("rect", { x, y, width: BLOCK_WIDTH, height, rx: 5 }),
      ...lines.map((line, n) =>
        svgElement(
          "text",
          { x: x + BLOCK_WIDTH / 2, y: middle + LINE_HEIGHT * n, "text-anchor": "middle", "dominant-baseline": "central" },
          line,
        ),
      ),
    );
    this.blocks.set(`${stack}.${block}`, node);
    return node;
  }

  // The N of the figure: one button for each layer, from the bottom up.
  createLayerButtons(stack) {
    const count = this.stacks[stack];
    const [top, bottom] = STACK_BOXES[stack];
    const x = stack === "encoder" ? 16 : SIZE.width - 16;
    if (count > MAX_LAYER_BUTTONS) {
      this[`${stack}Label`] = svgElement("text", { x, y: (top + bottom) / 2, class: "caption", "text-anchor": "middle" });
      return [this[`${stack}Label`]];
    }
    const step = Math.min(36, (bottom - top) / count);
    const start = (top + bottom) / 2 + (step * (count - 1)) / 2;
    return Array.from({ length: count }, (_, layer) => {
      const y = start - layer * step;
      const button = svgElement(
        "g",
        {
          class: "layer-button",
          role: "button",
          tabindex: -1,
          "aria-label": this.texts.layerOf(this.texts[stack], layer + 1, count),
          "data-layer": `${stack}.${layer}`,
          onclick: () => this.onSelect(stack, layer, null),
        },
        svgElement("rect", { class: "touch-area", x: x - LAYER_WIDTH / 2, y: y - step / 2, width: LAYER_WIDTH, height: step }),
        svgElement("circle", { cx: x, cy: y, r: Math.min(13, step / 2 - 1) }),
        svgElement("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, String(layer + 1)),
      );
      this.layerButtons.push(button);
      return button;
    });
  }

  // Lines between the blocks, residual connections, and the encoder's output.
  createWires() {
    const wire = (d, name = "wire") => svgElement("path", { d, class: name });
    const center = (stack) => COLUMNS[stack] + BLOCK_WIDTH / 2;
    const wires = [];
    for (const stack of Object.keys(LAYOUT)) {
      const top = stack === "encoder" ? MEMORY_Y : 20;
      wires.push(wire(`M${center(stack)} ${INPUT_Y}V${top}`));
      for (const part of ["self", "cross", "feed_forward"]) {
        const sublayer = LAYOUT[stack][part];
        if (!sublayer || !this.hasResidual(stack, part)) continue;
        const add = LAYOUT[stack][`${part}_add`];
        const from = sublayer[0] + sublayer[1] + 8;
        const to = add[0] + add[1] / 2;
        const side = stack === "encoder" ? COLUMNS.encoder : COLUMNS.decoder + BLOCK_WIDTH;
        const out = stack === "encoder" ? side - 6 : side + 6;
        wires.push(wire(`M${center(stack)} ${from}H${out}V${to}H${side}`));
      }
    }
    const cross = LAYOUT.decoder.cross;
    const memoryX = COLUMNS.encoder + BLOCK_WIDTH + 31;
    const y = cross[0] + cross[1] / 2;
    wires.push(wire(`M${center("encoder")} ${MEMORY_Y}H${memoryX}V${y}H${COLUMNS.decoder}`, "wire memory"));
    return wires;
  }

  hasResidual(stack, part) {
    return Boolean(this.findStation(stack, `${part}_add`)?.label.startsWith("add"));
  }

  createCaptions() {
    const { texts } = this;
    const text = (x, y, content) => svgElement("text", { x, y, class: "caption", "text-anchor": "middle" }, content);
    const plus = (stack) => {
      const x = COLUMNS[stack] + BLOCK_WIDTH / 2;
      return [
        svgElement("circle", { cx: x, cy: PLUS_Y, r: 8, class: "plus" }),
        svgElement("path", { d: `M${x - 4} ${PLUS_Y}h8M${x} ${PLUS_Y - 4}v8`, class: "wire" }),
        svgElement("path", { d: `M${x + 20} ${PLUS_Y}q5 -10 10 0t10 0`, class: "wire" }),
      ];
    };
    return [
      ...["encoder", "decoder"].filter((stack) => this.findStation(stack, "embedding").label === "embedding").flatMap(plus),
      text(COLUMNS.encoder + BLOCK_WIDTH / 2, INPUT_Y + 16, texts.inputs),
      text(COLUMNS.decoder + BLOCK_WIDTH / 2, INPUT_Y + 16, texts.outputs),
      text(COLUMNS.decoder + BLOCK_WIDTH / 2, 13, texts.probabilitiesCaption),
    ];
  }

  createMarker() {
    this.markerText = svgElement("text", { "text-anchor": "middle", "dominant-baseline": "central" });
    this.markerBox = svgElement("rect", { height: 20, rx: 10, y: -10 });
    return svgElement("g", { class: "marker", "aria-hidden": "true" }, this.markerBox, this.markerText);
  }

  // ---- the current station

  update({ stack, layer, block }, token, { animate = false } = {}) {
    this.layers[stack] = layer;
    const current = `${stack}.${block}`;
    for (const [name, node] of this.blocks) {
      node.setAttribute("aria-current", name === current ? "step" : "false");
      node.setAttribute("tabindex", name === current ? 0 : -1);
    }
    for (const button of this.layerButtons)
      button.setAttribute("aria-pressed", button.dataset.layer === `${stack}.${layer}`);
    for (const name of ["encoder", "decoder"]) {
      const label = this[`${name}Label`];
      if (label) label.textContent = `${this.layers[name] + 1}/${this.stacks[name]}`;
    }
    this.svg.classList.toggle("reads-memory", block === "cross");
    this.moveMarker(stack, block, token, animate);
  }

  moveMarker(stack, block, token, animate) {
    const [y, height] = LAYOUT[stack][block];
    const target = [COLUMNS[stack] + BLOCK_WIDTH + (stack === "encoder" ? 26 : -BLOCK_WIDTH - 26), y + height / 2];
    this.markerText.textContent = truncateText(token, MARKER_SIZE, 74);
    const width = Math.max(24, textWidth(this.markerText.textContent, MARKER_SIZE, true) + 14);
    this.markerBox.setAttribute("width", width);
    this.markerBox.setAttribute("x", -width / 2);
    const place = ([x, at]) => this.marker.setAttribute("transform", `translate(${x} ${at})`);
    cancelAnimationFrame(this.frame);
    const start = this.position;
    this.position = target;
    if (!animate || !start) return place(target);
    const began = performance.now();
    const move = (now) => {
      const share = Math.min(1, Math.max(0, (now - began) / MOVE_MILLISECONDS));
      const eased = share * share * (3 - 2 * share);
      place(start.map((from, n) => from + eased * (target[n] - from)));
      if (share < 1) this.frame = requestAnimationFrame(move);
    };
    this.frame = requestAnimationFrame(move);
  }

  // ---- keyboard: up and down along a stack, left and right across to the other

  handleKey(event) {
    const node = event.target.closest("[role=button]");
    if (!node) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      node.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      return;
    }
    const target = this.neighbor(node, event.key);
    if (!target) return;
    event.preventDefault();
    node.setAttribute("tabindex", -1);
    target.setAttribute("tabindex", 0);
    target.focus();
  }

  neighbor(node, key) {
    if (node.dataset.layer) {
      const buttons = this.layerButtons;
      const index = buttons.indexOf(node);
      const [stack] = node.dataset.layer.split(".");
      const toBlocks = stack === "encoder" ? "ArrowRight" : "ArrowLeft";
      if (key === toBlocks) return this.blocks.get(`${stack}.self`);
      return { ArrowUp: buttons[index + 1], ArrowDown: buttons[index - 1] }[key];
    }
    const [stack, block] = node.dataset.block.split(".");
    const names = [...this.blocks.keys()].filter((name) => name.startsWith(stack));
    const index = names.indexOf(`${stack}.${block}`);
    if (key === "ArrowUp") return this.blocks.get(names[index - 1]);
    if (key === "ArrowDown") return this.blocks.get(names[index + 1]);
    if (key === (stack === "encoder" ? "ArrowRight" : "ArrowLeft")) return this.nearestBlock(node, stack);
    if (key === (stack === "encoder" ? "ArrowLeft" : "ArrowRight"))
      return this.layerButtons.find((button) => button.dataset.layer === `${stack}.${this.layers[stack]}`);
    return null;
  }

  nearestBlock(node, stack) {
    const other = stack === "encoder" ? "decoder" : "encoder";
    const height = ([name]) => Math.abs(LAYOUT[other][name.split(".")[1]][0] - Number(node.querySelector("rect").getAttribute("y")));
    const candidates = [...this.blocks].filter(([name]) => name.startsWith(other));
    return candidates.sort((a, b) => height(a) - height(b))[0]?.[1];
  }
}
