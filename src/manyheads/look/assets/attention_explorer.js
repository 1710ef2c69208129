// The interactive view of the attention of one sentence: showAttention(element, data).
//
// look/attention_data.py describes `data`. With `permalink` the address of the page follows the state of the view.

import { AttentionMaps } from "./attention_maps.js";
import { renderCanvas } from "./canvas_renderer.js";
import { createControls, createHeader, createOptions, updateControls } from "./controls.js";
import { createPlayer, createSliders, drawCandidates, updateSliders } from "./decoding_steps.js";
import { element, isTouchScreen } from "./dom.js";
import { createGridScene, drawGrid, stopObserving } from "./head_grid.js";
import { HeadNavigator, showMapTooltip } from "./head_navigator.js";
import { createHeatmapScene } from "./heatmap.js";
import { createLineScene } from "./line_diagram.js";
import { drawMeasures } from "./measures_table.js";
import { preferredLanguage } from "./page_languages.js";
import { Picture } from "./picture.js";
import { createHoverTable } from "./hover_table.js";
import { joinScenes } from "./scene.js";
import { SnapshotTransition } from "./snapshot_transition.js";
import { renderSvg } from "./svg_renderer.js";
import { TEXTS } from "./texts.js";
import { allHeads, fromFragment, initialState, limitLayers, toFragment } from "./view_state.js";
import { drawWeights } from "./weights_table.js";

const MIN_WIDTH = 260; // of an element that has no layout yet
const explorers = new WeakMap(); // the explorer of each element

// Replaces what the element showed before.
export function showAttention(root, data, { permalink = false, language = null } = {}) {
  explorers.get(root)?.close();
  explorers.set(root, new AttentionExplorer(root, data, permalink, language));
}

class AttentionExplorer {
  constructor(root, data, permalink, language) {
    this.root = root;
    this.maps = new AttentionMaps(data);
    this.data = data;
    this.permalink = permalink;
    this.defaultLanguage = language ?? preferredLanguage();
    this.state = permalink ? fromFragment(location.hash.slice(1), data) : initialState(data);
    this.hovered = null; // the token under the pointer or with the focus
    this.findCounts = {}; // how often each pattern was searched for
    this.transition = new SnapshotTransition(this.maps, () => this.drawPictures());
    this.root.classList.add("look");
    this.build();
    this.closed = new AbortController();
    const options = { signal: this.closed.signal };
    if (permalink) window.addEventListener("hashchange", () => this.restore(), options);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh(), options);
    let width = root.clientWidth;
    this.resizeObserver = new ResizeObserver(() => {
      if (Math.abs(root.clientWidth - width) < 2) return;
      width = root.clientWidth;
      this.refresh();
    });
    this.resizeObserver.observe(root);
  }

  close() {
    this.closed.abort();
    this.transition.stop();
    this.resizeObserver.disconnect();
  }

  get language() {
    return this.state.language ?? this.defaultLanguage;
  }

  get texts() {
    return TEXTS[this.language];
  }

  // ---- state

  change(difference) {
    const previousLanguage = this.state.language;
    if ("attention" in difference && difference.attention !== this.state.attention) {
      const { layer, head, heads } = initialState(this.data, difference.attention);
      difference = { layer, head, heads, ...difference };
    }
    this.state = limitLayers({ ...this.state, ...difference }, this.data);
    this.root.querySelector(".find-result").textContent = ""; // findHead writes it again
    if ("attention" in difference || "words" in difference) {
      this.hovered = null;
      if (!("token" in difference)) this.state.token = null;
    }
    this.updateLink();
    if (this.state.language !== previousLanguage) {
      this.build();
      this.root.querySelector("[name=language]").focus();
    } else this.refresh();
  }

  updateLink() {
    const fragment = toFragment(this.state, this.data);
    this.root.querySelector(".link").href = `#${fragment}`;
    if (!this.permalink) return;
    try {
      history.replaceState(null, "", `#${fragment}`);
    } catch {
      // A frame without an address of its own, as in a notebook, has no history.
    }
  }

  restore() {
    this.state = fromFragment(location.hash.slice(1), this.data);
    this.build();
  }

  // Redraws once per frame, however many tokens the pointer crosses.
  hover(token) {
    this.hovered = token;
    this.pendingFrame ??= requestAnimationFrame(() => {
      this.pendingFrame = null;
      this.drawPictures();
    });
  }

  pin(token) {
    this.change({ token: String(token) === String(this.state.token) ? null : token });
  }

  toggleHead(head) {
    const { heads } = this.state;
    const toggled = heads.includes(head) ? heads.filter((other) => other !== head) : [...heads, head];
    this.change({ heads: toggled.sort((a, b) => a - b) });
  }

  // Opens a head of the navigator, or with null all heads of a layer.
  openHead(layer, head) {
    const { view, compare } = this.state;
    if (head === null) return this.change({ view: "lines", layer, heads: allHeads(this.data), compare: null });
    const isPicture = view === "lines" || view === "head";
    this.change({ view: isPicture ? view : "head", layer, head, heads: [head], compare });
  }

  // Starts with the next head of the same layer.
  compareHeads(enabled) {
    const { layer, head } = this.state;
    this.change({ compare: enabled ? [layer, (head + 1) % this.data.heads] : null });
  }

  sortBy(name) {
    const { sort, descending } = this.state;
    this.change({ sort: name, descending: sort === name ? !descending : name !== "position" });
    this.root.querySelector(`[data-sort="${name}"]`)?.focus();
  }

  // Shows a snapshot while training is played: the picture of the one before changes into it.
  playSnapshot(snapshot) {
    const before = this.state.snapshot;
    const numWeights = this.panels.flat().reduce((sum, { map }) => sum + map.weights.length, 0);
    this.transition.stop();
    if (snapshot === before + 1) this.transition.start(before, numWeights);
    this.change({ snapshot });
  }

  // Goes through the heads most like a figure of the paper, one per call.
  findHead(pattern) {
    const { attention, snapshot, view } = this.state;
    const results = this.data.snapshots[snapshot].figure_heads[attention][pattern];
    const output = this.root.querySelector(".find-result");
    if (!results.length) {
      output.textContent = this.texts.nothingFound;
      return;
    }
    const key = [snapshot, attention, pattern].join();
    const index = (this.findCounts[key] = ((this.findCounts[key] ?? -1) + 1) % results.length);
    const { layer, head, row, score } = results[index];
    const token = pattern === "structural" ? null : [0, row];
    const picture = { view: view === "head" ? "head" : "lines", heads: [head], compare: null, words: true };
    this.change({ ...picture, layer, head, step: null, token });
    const name = this.texts.headName(layer + 1, head + 1);
    output.textContent = this.texts.findResult(index + 1, results.length, name, score.toFixed(3));
  }

  // ---- layout

  build() {
    const { texts, data } = this;
    this.root.lang = this.language;
    this.maps.setTexts(texts);
    this.parts = {
      about: element("p", { class: "about" }),
      pictures: element("div", { class: "pictures" }),
      overview: element("div", { class: "overview" }), // the grid or the table
      status: element("div", { class: "status", "aria-live": "polite" }),
      tooltip: element("div", { class: "map-tooltip", hidden: true, "aria-hidden": "true" }),
      hint: element("p", { class: "note hint" }),
      weights: element(
        "details",
        { class: "weights", ontoggle: () => this.drawWeights() },
        element("summary", {}, texts.weights),
        element("div", {}),
      ),
      candidates: element("section", { class: "step-candidates", "aria-label": texts.candidates }),
    };
    this.pictures = [];
    const { about, pictures, overview, status, hint, weights, candidates } = this.parts;
    const change = (difference) => this.change(difference);
    const actions = {
      change,
      compareHeads: (enabled) => this.compareHeads(enabled),
      changeCompared: (index, value) =>
        change({ compare: this.state.compare.map((old, n) => (n === index ? value : old)) }),
      toggleHead: (head) => this.toggleHead(head),
      findHead: (pattern) => this.findHead(pattern),
    };
    this.navigator = new HeadNavigator({ maps: this.maps, texts, onSelect: (layer, head) => this.openHead(layer, head) });
    this.parts.reading = element("div", { class: "reading" }, hint, status);
    const main = [this.navigator.caption, about, pictures, overview, this.parts.tooltip, this.parts.reading];
    this.root.replaceChildren(
      createHeader(data, texts, actions),
      element(
        "section",
        { class: "surface", "aria-label": texts.attention },
        createControls(data, texts, actions),
        ...createPlayer(data, texts, { change, play: (snapshot) => this.playSnapshot(snapshot) }),
        element("div", { class: "look-body" }, this.navigator.root, element("div", { class: "look-main" }, ...main)),
        createSliders(data, texts, change),
        candidates,
        createOptions(data, texts, actions),
        weights,
        this.createFooter(),
      ),
    );
    this.root.style.setProperty("--navigator-width", `${Math.min(440, Math.max(330, 58 * data.heads))}px`);
    this.updateLink();
    this.refresh();
  }

  createFooter() {
    const { texts } = this;
    const createDownload = (format) =>
      element(
        "button",
        { type: "button", "data-download": format, onclick: () => this.download(format) },
        texts.download(format.toUpperCase()),
      );
    return element(
      "footer",
      {},
      createDownload("svg"),
      createDownload("png"),
      element("a", { class: "link", href: "#" }, texts.link),
    );
  }

  refresh() {
    const { state, texts, parts, root, data } = this;
    const hasPicture = state.view === "lines" || state.view === "head";
    updateControls(root, { state, data, texts, language: this.language });
    const aboutNewest = data.snapshots.length > 1 && state.attention !== "encoder" ? ` ${texts.aboutNewest}` : "";
    parts.about.textContent = texts[`about_${state.attention}`] + aboutNewest;
    this.navigator.update(state);
    for (const part of [parts.pictures, parts.reading, parts.weights]) part.hidden = !hasPicture;
    parts.overview.hidden = hasPicture;
    const hint = isTouchScreen() ? texts.touchHint : texts.hint;
    parts.hint.textContent = state.view === "lines" ? `${hint} ${texts.hiddenLines}` : hint;
    if (hasPicture) this.drawPictures();
    else this.drawOverview();
    updateSliders(root, state, data, texts);
    drawCandidates(parts.candidates, state, data, texts);
    this.drawWeights();
  }

  drawOverview() {
    const { maps, state, texts } = this;
    const { overview } = this.parts;
    const onSelect = (layer, head) => this.change({ view: "head", layer, head });
    stopObserving(overview);
    const onPoint = (event, layer, head) => {
      this.parts.tooltip.hidden = true;
      const root = this.parts.tooltip.parentElement;
      if (event) showMapTooltip(this.parts.tooltip, event, { maps, state: { ...state, layer, head }, texts, root });
    };
    if (state.view === "grid") drawGrid(overview, { maps, state, texts, onSelect, onPoint });
    else drawMeasures(overview, { maps, state, texts, onSelect, onSort: (name) => this.sortBy(name) });
  }

  drawWeights() {
    const { maps, state, panels, texts } = this;
    drawWeights(this.parts.weights, { maps, state, panels, texts });
  }

  // ---- pictures

  // The token that is shown alone.
  get active() {
    const row = this.maps.rowOfStep(this.state);
    return this.hovered ?? this.state.token ?? (row === null ? null : [0, row]);
  }

  // The heads of each picture: one picture, or two side by side.
  get panels() {
    const { view, layer, head, heads, compare } = this.state;
    const createPanel = (layer, head) => ({
      layer,
      head,
      color: this.data.colors[head],
      map: this.maps.map({ ...this.state, layer, head }),
    });
    if (compare) return [[createPanel(layer, head)], [createPanel(...compare)]];
    return [view === "head" ? [createPanel(layer, head)] : heads.map((other) => createPanel(layer, other))];
  }

  labels(side) {
    return this.maps.labels(this.state.attention, side, this.state.words);
  }

  readColors() {
    const style = getComputedStyle(this.root);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      text: color("text"),
      faint: color("faint"),
      cell: color("cell"),
      background: color("surface"),
      onColor: color("on-color"),
    };
  }

  // On the page the title of a single picture stands above it.
  createScenes({ isFile = false } = {}) {
    const { attention, view, token, layer } = this.state;
    const colors = this.readColors();
    if (view === "grid") return [createGridScene({ maps: this.maps, state: this.state, colors })];
    const names = [0, 1].map((side) => this.labels(side));
    const languages = [0, 1].map((side) => this.maps.language(attention, side));
    const width = Math.max(this.parts.pictures.parentElement.clientWidth, MIN_WIDTH);
    const isNarrow = width < 560;
    return this.panels.map((shown, _, { length }) => {
      const move = ({ layer, head }) => this.transition.map({ ...this.state, layer, head });
      const heads = isFile ? shown : shown.map((own) => ({ ...own, map: move(own) }));
      const single = heads.length === 1 ? heads[0] : null;
      const title = single ? this.texts.headName(single.layer + 1, single.head + 1) : this.texts.layerName(layer + 1);
      const maxWidth = (isNarrow ? width : (width - 16 * (length - 1)) / length) - 8; // gaps and padding of attention.css
      const shownTitle = isFile || length > 1 ? title : "";
      const shared = { names, languages, active: this.active, pinned: token, title: shownTitle, colors, maxWidth };
      const scene =
        view === "head"
          ? createHeatmapScene({ ...shared, map: single.map, color: single.color })
          : createLineScene({ ...shared, heads });
      return { ...scene, name: `${this.texts.figure}: ${title}` };
    });
  }

  drawPictures() {
    if (this.parts.pictures.hidden) return;
    const scenes = this.createScenes();
    if (scenes.length !== this.pictures.length) {
      const listeners = {
        onHover: (token) => this.hover(token),
        onPin: (token) => this.pin(token),
        onLeave: () => this.hover(null),
      };
      const containers = scenes.map(() => element("div", { class: "picture" }));
      this.parts.pictures.replaceChildren(...containers);
      this.pictures = containers.map((container) => new Picture(container, listeners));
      containers.forEach((container, n) =>
        container.addEventListener("pointermove", (event) => this.showCellWeight(event, n)),
      );
    }
    scenes.forEach((scene, n) => this.pictures[n].draw(scene));
    this.showActiveWeights();
  }

  // Writes the weight under the pointer of a heat map into the status line.
  showCellWeight(event, n) {
    const { scene, svg } = this.pictures[n];
    if (!scene.cellAt) return;
    const corner = svg.getBoundingClientRect();
    const cell = scene.cellAt(event.clientX - corner.left, event.clientY - corner.top);
    if (!cell) return;
    const [row, column] = cell;
    const { weights, columns } = this.panels[n][0].map;
    const weight = weights[row * columns + column].toFixed(4);
    this.parts.status.textContent = `“${this.labels(0)[row]}” → “${this.labels(1)[column]}”: ${weight}`;
  }

  // Writes the largest weights of the active token, for each head, into the status line.
  showActiveWeights() {
    const { active, texts } = this;
    this.parts.status.replaceChildren();
    const [side, index] = active ?? [];
    const name = active && this.labels(side)[index];
    this.parts.hint.hidden = Boolean(name);
    if (!name) return;
    const caption = element("p", {}, element("b", {}, `“${name}”`), ` ${side ? texts.attendedBy : texts.attendsTo}:`);
    const names = this.labels(1 - side);
    const table = createHoverTable({ panels: this.panels.flat(), side, index, names, texts });
    this.parts.status.replaceChildren(caption, table);
  }

  async download(format) {
    const scene = joinScenes(this.createScenes({ isFile: true }));
    const blob =
      format === "svg"
        ? new Blob([new XMLSerializer().serializeToString(renderSvg(scene))], { type: "image/svg+xml" })
        : await new Promise((resolve) => renderCanvas(scene).toBlob(resolve, "image/png"));
    const url = URL.createObjectURL(blob);
    const { view, attention, layer } = this.state;
    const suffix = view === "grid" ? "" : `-${layer + 1}`;
    element("a", { href: url, download: `attention-${view}-${attention}${suffix}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}
