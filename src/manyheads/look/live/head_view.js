// Every head as a small map, and the chosen one large. Heads can be cut.

import { element, isTouchScreen } from "../assets/dom.js";
import { headRole } from "../assets/head_roles.js";
import { createHeatmapScene } from "../assets/heatmap.js";
import { createLineScene } from "../assets/line_diagram.js";
import { measureMap } from "../assets/map_measures.js";
import { Picture } from "../assets/picture.js";
import { drawThumbnail } from "../assets/thumbnail.js";
import { readableTokens } from "../assets/token_text.js";
import { BOS_ID, EOS_ID } from "./subwords.js";
import { ATTENTION_TYPES, headKey } from "./transformer.js";
import { takeHead } from "./translator.js";
import { markWords } from "./variant_list.js";

const MAX_MEASURED_HEADS = 160; // beyond it, measuring what every head does takes too long
const NUM_LISTED = 4; // of the weights of a token
const MIN_PICTURE_WIDTH = 240;
const MAX_HEADS_WITH_ROLE = 5; // of a layer: more leave no room for a word under a map
const MIN_LOSS = 0.005; // of log p, below which it is 0.00
const PAUSE = 0; // milliseconds between two heads that are measured

export class HeadView {
  constructor(page) {
    this.page = page;
    this.measured = new WeakMap(); // by sentence: {condition, losses}
    const { texts } = page;
    this.grid = element("div", { class: "head-grid" });
    this.cutCount = element("span", { class: "cut-count", "aria-live": "polite" });
    this.restore = element(
      "button",
      { type: "button", class: "restore", onclick: () => this.restoreHeads() },
      texts.restore,
    );
    this.title = element("h3", {});
    this.about = element("p", { class: "hint" });
    this.cut = element("button", { type: "button", class: "cut", onclick: () => page.toggleCuts([this.key]) });
    this.cutLayer = element("button", {
      type: "button",
      class: "cut-layer",
      onclick: () => page.toggleCuts(this.layerKeys),
    });
    this.cutEffect = element("p", { class: "cut-effect", hidden: true });
    this.views = ["lines", "map"].map((view) =>
      element("button", { type: "button", "data-view": view, onclick: () => this.setView(view) }, texts[view]),
    );
    this.container = element("div", { class: "picture" });
    this.status = element("p", { class: "status", "aria-live": "polite" });
    this.node = this.createLayout();
    this.picture = new Picture(this.container, {
      onHover: (token) => page.hover(this.toToken(token)),
      onLeave: () => page.hover(null),
      onPin: (token) => this.pin(token),
    });
    this.container.addEventListener("pointermove", (event) => this.showCell(event));
    this.observer = new ResizeObserver(() => this.drawPicture());
    this.observer.observe(this.node);
  }

  createLayout() {
    const { texts } = this.page;
    return element(
      "section",
      { class: "card attention", "aria-label": texts.attention },
      element(
        "div",
        { class: "attention-head" },
        element("h2", { class: "visually-hidden" }, texts.attention),
        element("p", { class: "hint" }, texts.attentionHint),
        element("div", { class: "cuts" }, this.cutCount, this.restore),
      ),
      element(
        "div",
        { class: "attention-body" },
        element("div", {}, this.grid, (this.gridHint = element("p", { class: "hint" }, texts.importanceHint))),
        element(
          "div",
          { class: "detail" },
          element(
            "div",
            { class: "actions" },
            this.title,
            element("div", { class: "segments", role: "group", "aria-label": texts.view }, ...this.views),
            this.cut,
            this.cutLayer,
          ),
          this.about,
          this.cutEffect,
          this.container,
          this.status,
          element("p", { class: "hint" }, isTouchScreen() ? texts.pictureHintTouch : texts.pictureHint),
        ),
      ),
    );
  }

  get key() {
    const { attention, layer, head } = this.page.state.head;
    return headKey(attention, layer, head);
  }

  get layerKeys() {
    const { attention, layer } = this.page.state.head;
    return this.page
      .listHeads()
      .filter((own) => own.attention === attention && own.layer === layer)
      .map(({ key }) => key);
  }

  restoreHeads() {
    this.cut.focus({ preventScroll: true }); // the button disappears
    this.page.setCuts(new Set());
  }

  setView(view) {
    this.page.state.view = view;
    this.refresh();
  }

  // ---- drawing

  refresh() {
    const { page } = this;
    const { attention, state, texts } = page;
    this.node.hidden = !attention || state.panel !== "attention";
    if (this.node.hidden) return;
    this.pinned = null;
    this.buildGrid();
    const { cuts, head } = state;
    const isCut = cuts.has(this.key);
    this.cutCount.textContent = cuts.size ? texts.cutCount(cuts.size) : "";
    this.restore.hidden = !cuts.size;
    this.title.textContent = texts.headName(texts[head.attention], head.layer + 1, head.head + 1);
    const note = texts.roleNotes[this.roleOf(head)];
    this.about.textContent = `${texts[`about_${head.attention}`]} ${texts.roleHere(note)}`;
    this.cut.textContent = isCut ? texts.uncut : texts.cut;
    this.cut.setAttribute("aria-pressed", String(isCut));
    const isLayerCut = this.layerKeys.every((key) => cuts.has(key));
    this.cutLayer.textContent = isLayerCut ? texts.uncutAll : texts.cutAll;
    this.cutLayer.setAttribute("aria-pressed", String(isLayerCut));
    for (const button of this.views) button.setAttribute("aria-pressed", String(button.dataset.view === state.view));
    this.drawPicture();
  }

  // What the cuts did to the translation, beside the buttons: on most screens the translation itself is out of sight
  // here. `whole` is the translation with all heads, or null where none is cut.
  showCutEffect(whole) {
    const { texts, result, translator } = this.page;
    this.cutEffect.hidden = whole === null;
    if (whole === null) return;
    const translation = element("span", { lang: translator.languages.target }, ...markWords(result.text, whole));
    this.cutEffect.replaceChildren(...(whole === result.text ? [texts.cutSame] : texts.cutEffect(translation)));
  }

  roleOf({ attention, layer, head }) {
    const map = takeHead(this.page.attention.maps[attention][layer], head);
    return headRole(measureMap(map, attention), map, attention);
  }

  // The buttons stay, so that the focus does; their maps are drawn again.
  buildGrid() {
    const { page } = this;
    const heads = page.listHeads();
    const layout = JSON.stringify(heads);
    if (layout !== this.gridLayout) {
      this.gridLayout = layout;
      this.buttons = new Map(heads.map((head) => [head.key, this.createHeadButton(head)]));
      this.grid.replaceChildren(...ATTENTION_TYPES.map((attention) => this.createGroup(attention, heads)));
    }
    const style = getComputedStyle(this.node);
    for (const { attention, layer, head, key } of heads) {
      const { button, canvas, role } = this.buttons.get(key);
      const map = takeHead(page.attention.maps[attention][layer], head);
      drawThumbnail(canvas, map, style.getPropertyValue(`--${attention}`).trim());
      button.setAttribute("aria-pressed", String(key === this.key));
      button.tabIndex = key === this.key ? 0 : -1; // the arrow keys reach the others
      button.classList.toggle("is-cut", page.state.cuts.has(key));
      role.textContent = page.texts.roles[this.roleOf({ attention, layer, head })];
    }
    this.labelHeads();
    this.gridHint.hidden = heads.length > MAX_MEASURED_HEADS;
  }

  createGroup(attention, heads) {
    const { texts, translator } = this.page;
    const layers = Array.from({ length: translator.numLayers[attention] }, (_, layer) => {
      const own = heads.filter((head) => head.attention === attention && head.layer === layer);
      const row = element("div", { class: "head-line" }, ...own.map(({ key }) => this.buttons.get(key).button));
      row.style.gridTemplateColumns = `28px repeat(${own.length}, minmax(0, 1fr))`;
      row.prepend(element("span", { class: "layer-name", title: texts.layer(layer + 1) }, String(layer + 1)));
      return row;
    });
    const group = element("div", { class: `head-group ${attention}`, role: "group", "aria-label": texts[attention] });
    group.append(element("h3", {}, texts[attention]), ...layers);
    return group;
  }

  createHeadButton({ attention, layer, head, key }) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    const bar = element("span", { class: "importance", "aria-hidden": "true" }, element("span", {}));
    const role = element("span", { class: "role", "aria-hidden": "true" });
    role.hidden = this.page.translator.config.heads > MAX_HEADS_WITH_ROLE;
    const button = element(
      "button",
      {
        type: "button",
        class: "head",
        "data-key": key,
        onclick: () => this.page.selectHead({ attention, layer, head }),
        ondblclick: () => this.page.toggleCuts([key]),
        onkeydown: (event) => this.pressKey(event, key),
      },
      canvas,
      bar,
      role,
    );
    return { button, canvas, role, bar: bar.firstChild, name: [attention, layer + 1, head + 1] };
  }

  pressKey(event, key) {
    const { page } = this;
    if (event.key === "x" || event.key === "Delete") return page.toggleCuts([key]);
    const row = page.translator.config.heads;
    const distance = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[event.key];
    if (!distance || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const heads = page.listHeads();
    const next = heads[heads.findIndex((head) => head.key === key) + distance];
    if (!next) return;
    const { attention, layer, head } = next;
    page.selectHead({ attention, layer, head });
    this.buttons.get(next.key).button.focus();
  }

  // The model and the cuts that losses are measured with.
  get condition() {
    const { model, cuts } = this.page.state;
    return JSON.stringify([model, [...cuts].sort()]);
  }

  // What it costs to cut each head in the present sentence, or null before it is measured.
  get losses() {
    const measured = this.measured.get(this.page.sentence);
    return measured?.condition === this.condition ? measured.losses : null;
  }

  labelHeads() {
    const { losses } = this;
    const largest = Math.max(1e-9, ...(losses?.values() ?? []));
    for (const key of this.buttons.keys()) {
      const loss = losses?.get(key) ?? null;
      this.labelHead(key, loss, Math.max(0, loss ?? 0) / largest);
    }
  }

  // Names a head with what it costs to cut it, if that is known.
  labelHead(key, loss, share) {
    const { texts, state } = this.page;
    const { button, bar, name } = this.buttons.get(key);
    const [attention, layer, head] = name;
    const parts = [texts.headName(texts[attention], layer, head), this.buttons.get(key).role.textContent];
    if (state.cuts.has(key)) parts.push(texts.isCut);
    if (loss !== null) parts.push(this.describeLoss(loss));
    button.title = parts.join(", ");
    button.setAttribute("aria-label", parts.join(", "));
    bar.style.width = `${Math.round(100 * share)}%`;
  }

  describeLoss(loss) {
    const { texts } = this.page;
    if (Math.abs(loss) < MIN_LOSS) return texts.importanceNone;
    return loss > 0 ? texts.importance(loss.toFixed(2)) : texts.importanceGain((-loss).toFixed(2));
  }

  // For every head the log probability that the present translation loses without it.
  async measureImportance(signal) {
    const { page } = this;
    const { sentence, translator, state } = page;
    const heads = page.listHeads().filter(({ key }) => !state.cuts.has(key));
    if (!page.attention || this.node.hidden || this.losses || heads.length > MAX_MEASURED_HEADS) return;
    const { condition } = this;
    const sum = (scores) => scores.reduce((total, score) => total + score, 0);
    const whole = sum(page.attention.scores);
    const losses = new Map();
    for (const { key } of heads) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      signal.throwIfAborted();
      const cuts = new Set([...state.cuts, key]);
      losses.set(key, whole - sum(translator.score(sentence.sourceIds, sentence.ids, { cuts })));
    }
    this.measured.set(sentence, { condition, losses });
    this.labelHeads();
  }

  // ---- the picture

  // Labels of queries and keys of an attention type.
  names(attention) {
    const { translator, sentence, texts } = this.page;
    const source = () => readableTokens(translator.source.listPieces(sentence.sourceIds), texts);
    const target = (ids) => readableTokens(translator.target.listPieces(ids), texts);
    if (attention === "encoder") return [source(), source()];
    if (attention === "cross") return [target([...sentence.ids, EOS_ID]), source()];
    const input = target([BOS_ID, ...sentence.ids]);
    return [input, input];
  }

  // A token of the page as one of the picture, [0 or 1, index], and back.
  fromToken(token) {
    const { attention } = this.page.state.head;
    if (!token) return null;
    if (attention === "cross") return [token.side === "target" ? 0 : 1, token.index];
    if (token.picture) return token.picture;
    if (attention === "encoder") return token.side === "source" ? [0, token.index] : null;
    return token.side === "target" ? [0, token.index + 1] : null; // the decoder reads what it has written
  }

  toToken(own) {
    if (!own) return null;
    const { attention } = this.page.state.head;
    const [side, index] = own;
    if (attention === "cross") return { side: side ? "source" : "target", index };
    if (attention === "encoder") return { side: "source", index, picture: own };
    return { side: "target", index: index - 1, picture: own };
  }

  pin(token) {
    this.pinned = token && String(token) !== String(this.pinned) ? token : null;
    this.drawPicture();
  }

  drawPicture() {
    const { page } = this;
    const { attention: result, state, texts, translator } = page;
    if (!result || this.node.hidden || !state.head) return;
    const { attention, layer, head } = state.head;
    const style = getComputedStyle(this.node);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const { source, target } = translator.languages;
    const languages = { encoder: [source, source], decoder: [target, target], cross: [target, source] }[attention];
    const map = takeHead(result.maps[attention][layer], head);
    const names = this.names(attention);
    const active = this.fromToken(page.hovered) ?? this.pinned;
    const shared = {
      ...{ names, languages, active, pinned: this.pinned, title: "" },
      colors: {
        ...{ text: color("text"), faint: color("faint"), cell: color("cell") },
        ...{ background: color("surface"), onColor: color("on-color") },
      },
      maxWidth: Math.max(MIN_PICTURE_WIDTH, this.container.clientWidth - 8),
    };
    const scene =
      state.view === "map"
        ? createHeatmapScene({ ...shared, map, color: color(attention) })
        : createLineScene({ ...shared, heads: [{ layer, head, color: color(attention), map }] });
    const name = texts.headName(texts[attention], layer + 1, head + 1);
    this.picture.draw({ ...scene, name: `${texts.figure}: ${name}` });
    this.container.classList.toggle("is-cut", state.cuts.has(this.key));
    this.showWeights(active, map, names);
  }

  // The largest weights of a token in words.
  showWeights(active, map, names) {
    const { texts } = this.page;
    if (!active || names[active[0]][active[1]] === undefined) return void (this.status.textContent = "");
    const [side, index] = active;
    const weights = names[1 - side].map((label, other) => {
      const [row, column] = side ? [other, index] : [index, other];
      return { label, weight: map.weights[row * map.columns + column] };
    });
    const listed = weights.sort((a, b) => b.weight - a.weight).slice(0, NUM_LISTED);
    const text = listed.map(({ label, weight }) => `${label} ${texts.percent((100 * weight).toFixed(1))}`).join(", ");
    this.status.textContent = `${(side ? texts.attendedBy : texts.attendsTo)(names[side][index])}: ${text}`;
  }

  // The weight under the pointer of a map.
  showCell(event) {
    const { scene, svg } = this.picture;
    if (!scene?.cellAt) return;
    const corner = svg.getBoundingClientRect();
    const cell = scene.cellAt(event.clientX - corner.left, event.clientY - corner.top);
    if (!cell) return;
    const [row, column] = cell;
    const { attention, layer, head } = this.page.state.head;
    const { weights, columns } = takeHead(this.page.attention.maps[attention][layer], head);
    const [queries, keys] = this.names(attention);
    const weight = this.page.texts.percent((100 * weights[row * columns + column]).toFixed(1));
    this.status.textContent = `“${queries[row]}” → “${keys[column]}”: ${weight}`;
  }
}
