// The walk of a sentence through the model, led by Figure 1: showWalk(element, source).
//
// `source` has load(stack, layer), which returns or promises what look/forward_walk.py describes, with all numbers and
// parameters where there are not too many. Where the numbers come from, a server, a file or an engine in the page, is
// not known here.

import { ArchitectureDiagram } from "./architecture_diagram.js";
import { createCalculation } from "./calculation_view.js";
import { calculateCell, calculateLogit, calculateProbability, findOperands, formatNumber } from "./cell_calculation.js";
import { element } from "./dom.js";
import { formula } from "./formulas.js";
import { MatrixView } from "./matrix_view.js";
import { createNumbers } from "./numbers_table.js";
import { readableToken, readableTokens } from "./token_text.js";
import { findStep, findWeights, hasHeads, isInLayer, listStations, resolvePanel, stepRows } from "./walk_stations.js";
import { WALK_TEXTS } from "./walk_texts.js";

const PLAY_MILLISECONDS = 2600;
const walks = new WeakMap(); // the walk of each element

// Replaces what the element showed before. Resolves when the first layer is drawn. It opens where the one before was,
// or with `head` ({attention, layer, head}) at the weights of a head.
export function showWalk(root, source, { language = "en", head = null } = {}) {
  walks.get(root)?.close();
  const walk = new WalkExplorer(root, source, language, walks.get(root)?.position, head);
  walks.set(root, walk);
  return walk.start();
}

class WalkExplorer {
  constructor(root, source, language, position, openedHead) {
    Object.assign(this, { root, source, language, openedHead, texts: WALK_TEXTS[language] });
    this.position = { index: 0, phase: 0, head: 0, tokens: {}, ...position, cell: null };
    this.closed = new AbortController();
  }

  async start() {
    this.data = await this.source.load("encoder", 0);
    if (this.closed.signal.aborted) return;
    this.stations = listStations(this.data);
    if (this.openedHead) Object.assign(this.position, findWeights(this.stations, this.openedHead));
    if (this.position.index >= this.stations.length) this.position.index = this.position.phase = 0;
    this.position.head = Math.min(this.position.head, this.data.heads - 1);
    this.build();
    const options = { signal: this.closed.signal };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawStage(), options);
    let width = this.parts.panels.clientWidth;
    this.resizeObserver = new ResizeObserver(() => {
      if (Math.abs(this.parts.panels.clientWidth - width) < 4) return;
      width = this.parts.panels.clientWidth;
      this.drawPanels();
    });
    this.resizeObserver.observe(this.parts.panels);
    await this.go(this.position.index, this.position.phase);
  }

  close() {
    this.closed.abort();
    this.pause();
    this.resizeObserver?.disconnect();
  }

  get station() {
    return this.stations[this.position.index];
  }

  get phase() {
    return this.station.phases[this.position.phase];
  }

  get side() {
    return this.station.stack === "encoder" ? "source" : "decoder_input";
  }

  get row() {
    return Math.min(this.position.tokens[this.side] ?? 1, this.data.tokens[this.side].length - 1);
  }

  // ---- layout

  build() {
    const { texts } = this;
    const button = (name, onclick) => element("button", { type: "button", class: name, onclick }, texts[name]);
    this.diagram = new ArchitectureDiagram({
      stations: this.stations,
      stacks: this.data.stacks,
      texts,
      onSelect: (stack, layer, block) => (block ? this.selectBlock(stack, layer, block) : this.selectLayer(stack, layer)),
    });
    const parts = (this.parts = {
      where: element("p", { class: "where" }),
      title: element("h3", { tabindex: -1 }),
      phases: element("ol", { class: "phases" }),
      about: element("p", { class: "about-phase" }),
      tokens: element("div", { class: "token-row", role: "group", "aria-label": texts.token }),
      heads: element("div", { class: "head-row", role: "group", "aria-label": texts.head }),
      panels: element("div", { class: "panels" }),
      legend: element("p", { class: "legend" }, ...["plus", "minus"].flatMap((sign) => [element("span", { class: `swatch ${sign}`, "aria-hidden": "true" }), element("span", {}, texts[sign])])),
      note: element("p", { class: "note" }),
      calculation: element("section", { class: "calculation", tabindex: 0, "aria-label": texts.calculation, "aria-live": "polite" }),
      back: button("back", () => this.stepBy(-1)),
      next: button("next", () => this.stepBy(1)),
      play: button("play", () => (this.timer ? this.pause() : this.play())),
      progress: element("span", { class: "quiet progress" }),
      tooltip: element("div", { class: "tooltip", hidden: true, "aria-hidden": "true" }),
    });
    this.diagramToggle = element("button", {
      type: "button",
      class: "diagram-toggle",
      "aria-label": texts.showDiagram,
      "aria-expanded": "false",
      onclick: () => this.toggleDiagram(),
    });
    this.map = element("div", { class: "walk-map" }, this.diagram.svg, this.diagramToggle);
    this.root.classList.add("walk");
    this.root.replaceChildren(
      this.map,
      element(
        "div",
        { class: "walk-stage" },
        element("div", { class: "walk-head" }, parts.where, element("div", { class: "walk-buttons" }, parts.back, parts.next, parts.play, parts.progress)),
        parts.title,
        parts.about,
        parts.phases,
        parts.tokens,
        parts.heads,
        parts.panels,
        parts.legend,
        parts.note,
      ),
      parts.calculation,
      parts.tooltip,
    );
  }

  toggleDiagram(isOpen = !this.map.classList.contains("is-open")) {
    this.map.classList.toggle("is-open", isOpen);
    this.diagramToggle.setAttribute("aria-expanded", String(isOpen));
  }

  // ---- movement

  selectBlock(stack, layer, block) {
    this.pause();
    const matches = (station) => station.stack === stack && station.layer === layer && station.block === block;
    const anywhere = (station) => station.stack === stack && station.block === block;
    const index = [matches, anywhere].map((test) => this.stations.findIndex(test)).find((found) => found >= 0);
    this.toggleDiagram(false);
    if (index !== undefined) this.goAndShow(index, 0);
  }

  // Another layer, at the same block and phase where the stack has them.
  selectLayer(stack, layer) {
    this.pause();
    const { block, phases } = this.station;
    const find = (name) => this.stations.findIndex((own) => isInLayer(own) && own.stack === stack && own.layer === layer && own.block === name);
    const same = isInLayer(this.station) ? find(block) : -1;
    this.toggleDiagram(false);
    if (same < 0) return this.goAndShow(find("self"), 0);
    const phase = this.stations[same].phases.length === phases.length ? this.position.phase : 0;
    return this.goAndShow(same, phase);
  }

  stepBy(direction, isPlaying = false) {
    if (!isPlaying) this.pause();
    const go = (...position) => (isPlaying ? this.go(...position) : this.goAndShow(...position));
    const { index, phase } = this.position;
    const nextPhase = phase + direction;
    if (this.station.phases[nextPhase]) return go(index, nextPhase);
    const next = this.stations[index + direction];
    if (!next) return this.pause();
    return go(index + direction, direction > 0 ? 0 : next.phases.length - 1);
  }

  // On a phone the buttons stay in sight while the title of the station may be above the screen.
  async goAndShow(index, phase) {
    await this.go(index, phase);
    if (this.parts.title.getBoundingClientRect().top < 0) this.parts.title.scrollIntoView();
  }

  play() {
    if (this.isAtEnd) this.go(0, 0);
    this.timer = setInterval(() => (this.isAtEnd ? this.pause() : this.stepBy(1, true)), PLAY_MILLISECONDS);
    this.parts.play.textContent = this.texts.pause;
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.parts) this.parts.play.textContent = this.texts.play;
  }

  get isAtEnd() {
    return this.position.index === this.stations.length - 1 && this.position.phase === this.station.phases.length - 1;
  }

  // Loads the layer of a station and draws it. A station that was asked for later wins.
  async go(index, phase) {
    const { stack, layer } = this.stations[index];
    const moving = (this.moving = {});
    this.root.setAttribute("aria-busy", "true");
    const data = await this.source.load(stack, layer);
    if (moving !== this.moving || this.closed.signal.aborted) return;
    this.root.removeAttribute("aria-busy");
    this.data = data;
    Object.assign(this.position, { index, phase, cell: null });
    this.root.classList.remove("has-choice");
    this.labels = Object.fromEntries(Object.entries(data.tokens).map(([side, tokens]) => [side, readableTokens(tokens, this.texts)]));
    this.drawStage();
  }

  selectToken(row) {
    this.position.tokens[this.side] = row;
    this.position.cell = null;
    this.drawStage();
  }

  selectHead(head) {
    this.position.head = head;
    this.position.cell = null;
    this.drawStage();
  }

  selectCell(name, row, column) {
    this.parts.tooltip.hidden = true; // with arrow keys it would be that of another cell
    this.position.cell = { name, row, column };
    const step = findStep(this.data, name);
    if (step.rows === this.side) this.position.tokens[this.side] = row;
    this.drawTokens();
    this.drawNote();
    this.updateMarks();
    this.drawCalculation();
    this.root.classList.add("has-choice");
    this.revealCell(name, row);
  }

  // Where the calculation lies at the bottom of the screen, the chosen cell stays above it.
  revealCell(name, row) {
    const { calculation } = this.parts;
    if (getComputedStyle(calculation).bottom !== "0px") return;
    const { canvas, top, cellHeight } = this.views.get(name);
    const covered = canvas.getBoundingClientRect().top + top + (row + 1) * cellHeight - calculation.getBoundingClientRect().top;
    if (covered > 0) scrollBy(0, covered + 8);
  }

  // ---- drawing

  readColors() {
    const style = getComputedStyle(this.root);
    const names = ["text", "faint", "cell", "surface", "edge", "accent", "plus", "minus", "on-strong"];
    return Object.fromEntries(names.map((name) => [name.replace(/-(\w)/, (_, letter) => letter.toUpperCase()), style.getPropertyValue(`--${name}`).trim()]));
  }

  drawStage() {
    const { texts, station, phase, parts, data } = this;
    const stackName = texts[station.stack];
    const blockName = texts.blocks[station.label].join(" ");
    const [title, about] = texts.phases[phase.name];
    parts.where.textContent = `${isInLayer(station) ? texts.layerOf(stackName, station.layer + 1, data.stacks[station.stack]) : stackName} · ${blockName}`;
    parts.title.textContent = title;
    parts.about.textContent = about;
    this.drawPhases();
    this.drawTokens(true);
    this.drawHeads();
    this.drawPanels();
    const total = this.stations.reduce((sum, { phases }) => sum + phases.length, 0);
    const before = this.stations.slice(0, this.position.index).reduce((sum, { phases }) => sum + phases.length, 0);
    parts.progress.textContent = texts.progress(before + this.position.phase + 1, total);
    parts.back.disabled = before + this.position.phase === 0;
    parts.next.disabled = this.isAtEnd;
  }

  drawPhases() {
    const { texts, station, parts } = this;
    parts.phases.hidden = station.phases.length < 2;
    if (parts.phases.hidden) return parts.phases.replaceChildren();
    parts.phases.replaceChildren(
      ...station.phases.map(({ main }, n) => {
        const name = texts.panels[resolvePanel(main, this.data).split(".")[1]];
        const label = station.phases[n].name === "projections" ? "Q, K, V" : name;
        const isCurrent = n === this.position.phase;
        const onclick = () => {
          this.pause();
          this.go(this.position.index, n);
        };
        return element("li", {}, element("button", { type: "button", "aria-current": isCurrent ? "step" : null, onclick }, label));
      }),
    );
  }

  drawTokens(animate = false) {
    const { parts, side, data } = this;
    const language = side === "source" ? data.languages.source : data.languages.target;
    parts.tokens.replaceChildren(
      ...this.labels[side].map((label, n) =>
        element("button", { type: "button", class: "chip", lang: language, "aria-pressed": String(n === this.row), onclick: () => this.selectToken(n) }, label),
      ),
    );
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.diagram.update(this.station, this.labels[side][this.row], { animate: animate && !isStill });
  }

  drawHeads() {
    const { parts, data, texts } = this;
    const names = this.phase.panels.map((panel) => resolvePanel(panel, data));
    parts.heads.hidden = data.heads < 2 || !names.some((name) => hasHeads(findStep(data, name)));
    parts.heads.replaceChildren(
      element("span", { class: "quiet" }, texts.head),
      ...Array.from({ length: data.heads }, (_, head) => {
        const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
        swatch.style.background = data.colors[head];
        return element("button", { type: "button", class: "chip", "aria-label": `${texts.head} ${head + 1}`, "aria-pressed": String(head === this.position.head), onclick: () => this.selectHead(head) }, swatch, String(head + 1));
      }),
    );
  }

  drawPanels() {
    const { parts, phase, data } = this;
    this.views = new Map();
    const names = phase.panels.map((panel) => resolvePanel(panel, data));
    const panels = names.map((name, n) => this.createPanel(name, phase.panels[n]));
    if (phase.ends) panels.push(this.createEnding(phase.ends));
    parts.panels.replaceChildren(...panels);
    parts.panels.dataset.phase = phase.name;
    parts.legend.hidden = [...this.views.values()].every(({ color }) => color);
    parts.tooltip.hidden = true; // of a panel that is gone
    this.drawNote();
    const main = phase.main && resolvePanel(phase.main, data);
    if (main && !phase.ends && !this.position.cell) this.position.cell = { name: main, ...this.defaultCell(main) };
    this.updateMarks();
    this.drawCalculation();
  }

  drawNote() {
    const { parts, phase, texts } = this;
    const hasMask = [...this.views.values()].some(({ rows }) => rows.flat().includes(null));
    const notes = hasMask ? [this.side === "source" ? texts.windowNote : texts.maskedNote] : [];
    if (this.side === "decoder_input" && !phase.ends)
      notes.push(texts.decoderNote(this.labels.decoder_input[this.row], this.labels.target[this.row]));
    parts.note.textContent = notes.join(" ");
  }

  // The names of the rows of a step. A row of a map of cross-attention has read one token and is about the next, which
  // is its name in the attention view: here it has both.
  rowNames({ part, rows, columns }) {
    if (part !== "cross" || !columns) return this.labels[rows];
    return this.labels[rows].map((token, n) => `${token} → ${this.labels.target[n]}`);
  }

  // The strongest number of the chosen token.
  defaultCell(name) {
    const rows = stepRows(findStep(this.data, name), this.position.head);
    const row = Math.min(this.row, rows.length - 1);
    const isMap = Boolean(findStep(this.data, name).columns);
    const sizes = rows[row].map((value) => (value === null ? -Infinity : isMap ? value : Math.abs(value)));
    return { row, column: sizes.indexOf(Math.max(...sizes)) };
  }

  // Weights without the zeros of masked scores, which never had a chance.
  maskWeights(name, rows) {
    const scores = stepRows(findStep(this.data, name.replace("weights", "scores")), this.position.head);
    return rows.map((row, r) => row.map((weight, c) => (scores[r][c] === null ? null : weight)));
  }

  createPanel(name, panel) {
    const { data, texts } = this;
    const step = findStep(data, name);
    const rows = stepRows(step, this.position.head);
    const kind = name.split(".")[1];
    const title = panel.startsWith("x:") || (panel.startsWith("y:") && data.norm === "post") ? texts.panels.input : texts.panels[kind];
    const format = step.columns ? "map" : hasHeads(step) ? "head" : "vector";
    const view = new MatrixView({
      format,
      rows: kind === "weights" ? this.maskWeights(name, rows) : rows,
      rowNames: this.rowNames(step),
      columns: step.columns ? this.labels[step.columns] : null,
      color: kind === "weights" ? data.colors[this.position.head] : null,
      name: texts.panelName(title, rows.length, rows[0].length),
      texts,
      onHover: (cell, event) => this.showTooltip(name, cell, event),
      onSelect: ([row, column]) => this.selectCell(name, row, column),
    });
    this.views.set(name, view);
    const expression = panel === name ? formula(step, data) : "";
    return element(
      "figure",
      { class: `panel is-${format}`, "data-step": name },
      element(
        "figcaption",
        {},
        element("b", {}, title),
        expression ? element("span", { class: "formula" }, expression) : null,
        element("span", { class: "shape quiet", title: step.axes.map((axis) => texts.axes[axis]).join(" × ") }, element("span", { class: "sizes" }, step.shape.join(" × "))),
      ),
      view.canvas,
      createNumbers(step, rows, { rowNames: this.rowNames(step), labels: this.labels, data, texts }),
    );
  }

  updateMarks() {
    const { cell } = this.position;
    const colors = this.readColors();
    const operands = cell ? findOperands(cell.name, cell.row, cell.column, this.data) : {};
    const total = this.parts.panels.clientWidth || 600;
    const isCompact = this.views.size > 2;
    const count = { map: 0, head: 0, vector: 0 };
    for (const view of this.views.values()) count[view.format]++;
    for (const [name, view] of this.views) {
      const step = findStep(this.data, name);
      const perRow = view.format === "vector" || total < 520 ? 1 : Math.min(3, count[view.format]);
      const share = Math.floor((total - 14 * (perRow - 1)) / perRow) - 1; // a rounded pixel more would break the row
      const width = view.isLegible(share, isCompact) ? share : total - 1;
      const isChosen = cell?.name === name;
      const row = isChosen ? cell.row : step.rows === this.side ? this.row : null;
      const column = isChosen && view.columns ? cell.column : null;
      view.draw({ width, colors, isCompact }, { row, column, cell: isChosen ? [cell.row, cell.column] : null, operand: operands[name] });
    }
  }

  drawCalculation() {
    const { parts, texts, data, labels } = this;
    const { cell, head } = this.position;
    const heading = element("h4", {}, texts.calculation);
    const colors = this.readColors();
    if (this.phase.ends) return this.drawCandidateCalculation(heading, colors);
    if (!cell) return parts.calculation.replaceChildren(heading, element("p", { class: "quiet" }, texts.chooseCell));
    const calculation = calculateCell(cell.name, cell.row, cell.column, { data, head, labels, texts });
    const step = findStep(data, cell.name);
    const kind = cell.name.split(".")[1];
    const column = step.columns ? labels[step.columns][cell.column] : String(cell.column + 1);
    const isMasked = calculation.result === null;
    const code = (isMasked && data.code?.mask) || data.code?.[cell.name] || data.code?.[kind];
    const title = `${texts.panels[kind]}[${this.rowNames(step)[cell.row]}, ${column}] = `;
    const value = isMasked ? "−∞" : formatNumber(calculation.result);
    parts.calculation.replaceChildren(heading, ...createCalculation(calculation, { title, value, code, texts, colors }));
  }

  // ---- the end: candidates with logits or probabilities

  get pieces() {
    return this.data.output.pieces.map((step) => step.map((piece) => readableToken(piece, this.texts)));
  }

  // The last of a step is the target token; it is shown where it is not among the best.
  candidateIndices(row) {
    const ids = this.data.output.ids[row];
    const best = ids.slice(0, -1).map((_, n) => n);
    return ids.slice(0, -1).includes(ids.at(-1)) ? best : [...best, ids.length - 1];
  }

  createEnding(kind) {
    const { data, texts, row } = this;
    const { ids, logits, log_sum_exp: normalizers } = data.output;
    const indices = this.candidateIndices(row);
    this.candidate = Math.min(this.candidate ?? 0, indices.length - 1);
    const value = (index) => (kind === "logits" ? logits[row][index] : Math.exp(logits[row][index] - normalizers[row]));
    const max = kind === "logits" ? Math.max(...indices.map((index) => Math.abs(value(index)))) : 1;
    const items = indices.map((index, n) => {
      const bar = element("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${Math.max(0, (100 * value(index)) / max)}%`;
      const isTarget = ids[row][index] === ids[row].at(-1);
      const onclick = () => {
        this.candidate = n;
        this.drawPanels();
        this.parts.panels.querySelectorAll(".candidate")[n]?.focus();
      };
      return element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "candidate", "aria-pressed": String(n === this.candidate), "data-value": value(index), onclick },
          element("span", { class: "piece", lang: data.languages.target }, this.pieces[row][index]),
          element("span", { class: "track" }, bar),
          element("span", { class: "amount" }, kind === "logits" ? formatNumber(value(index), 2) : texts.percent((100 * value(index)).toFixed(1))),
          isTarget ? element("span", { class: "quiet" }, texts.written) : null,
        ),
      );
    });
    const prefix = this.labels.decoder_input.slice(0, row + 1).join(" ");
    return element(
      "div",
      { class: "ending", "data-step": `output.${kind}` },
      element("p", { class: "prefix" }, `${texts.after} `, element("b", { lang: data.languages.target }, prefix), ` ${texts.nextToken}`),
      element("ol", { class: "candidates-list" }, ...items),
      kind === "probabilities" ? this.createWholeSentence() : null,
    );
  }

  // The most probable token after each prefix: what the decoder writes, token by token.
  createWholeSentence() {
    const { data, texts, pieces } = this;
    const { ids, logits, log_sum_exp: normalizers } = data.output;
    const items = pieces.map((step, n) => {
      const probability = Math.exp(logits[n][0] - normalizers[n]);
      const isTarget = ids[n][0] === ids[n].at(-1);
      const shade = element("span", { class: "share", "aria-hidden": "true" });
      shade.style.width = `${100 * probability}%`;
      return element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "written", "aria-pressed": String(n === this.row), onclick: () => this.selectToken(n) },
          element("span", { lang: data.languages.target }, step[0]),
          element("span", { class: "quiet" }, texts.percent((100 * probability).toFixed(0)) + (isTarget ? "" : " ≠")),
          shade,
        ),
      );
    });
    return element("div", { class: "whole" }, element("p", { class: "prefix" }, texts.wholeSentence), element("ol", { class: "written-list" }, ...items));
  }

  drawCandidateCalculation(heading, colors) {
    const { data, texts, row, pieces } = this;
    const index = this.candidateIndices(row)[this.candidate];
    const isLogit = this.phase.ends === "logits";
    const context = { data, head: this.position.head, texts, pieces };
    const calculation = (isLogit ? calculateLogit : calculateProbability)(row, index, context);
    const code = data.code?.[isLogit ? "logits" : "probability"];
    const title = `${isLogit ? texts.logit : "p"}(${pieces[row][index]}) = `;
    const value = isLogit ? formatNumber(calculation.result) : texts.percent((100 * calculation.result).toFixed(2));
    this.parts.calculation.replaceChildren(heading, ...createCalculation(calculation, { title, value, code, texts, colors }));
  }

  showTooltip(name, cell, event) {
    const { tooltip } = this.parts;
    tooltip.hidden = !cell;
    if (!cell) return;
    const step = findStep(this.data, name);
    const value = this.views.get(name).rows[cell[0]][cell[1]];
    const column = step.columns ? this.labels[step.columns][cell[1]] : String(cell[1] + 1);
    const text = value === null ? this.texts.masked : formatNumber(value, 4);
    tooltip.textContent = this.texts.cellName(this.rowNames(step)[cell[0]], column, text);
    const box = this.root.getBoundingClientRect();
    tooltip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - tooltip.offsetWidth)}px`;
    tooltip.style.top = `${event.clientY - box.top + 14}px`;
  }
}
