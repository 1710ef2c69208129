// The attention of one sentence, to look at: showAttention(element, data).
//
// `data` is what look/maps.py describes. Where `permalink` is set the address of the page follows what is shown.

import { element } from "./elements.js";
import { drawGrid, drawTable, gridScene } from "./grid.js";
import { heatScene } from "./heat.js";
import { linesScene } from "./lines.js";
import { Maps } from "./maps.js";
import { Picture, sideBySide, wholeCanvas, wholeSvg } from "./scene.js";
import { VIEWS, firstState, fromFragment, kindsOf, toFragment } from "./state.js";
import { LANGUAGES, TEXTS, preferredLanguage } from "./texts.js";

const LEAST_WIDTH = 260; // where the element is not laid out yet
const shown = new WeakMap(); // what each element shows

// What the element showed before makes room.
export function showAttention(root, data, { permalink = false, language = null } = {}) {
  shown.get(root)?.close();
  shown.set(root, new View(root, data, permalink, language));
}

class View {
  constructor(root, data, permalink, language) {
    this.root = root;
    this.maps = new Maps(data);
    this.data = data;
    this.permalink = permalink;
    this.language = language ?? preferredLanguage();
    this.state = permalink ? fromFragment(location.hash.slice(1), data) : firstState(data);
    this.pointed = null; // the token under the pointer or with the focus
    this.found = {}; // how often each "find" was pressed
    this.root.classList.add("look");
    this.build();
    this.closed = new AbortController();
    const until = { signal: this.closed.signal };
    if (permalink) window.addEventListener("hashchange", () => this.restore(), until);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh(), until);
    let width = root.clientWidth;
    this.resized = new ResizeObserver(() => {
      if (Math.abs(root.clientWidth - width) < 2) return;
      width = root.clientWidth;
      this.refresh();
    });
    this.resized.observe(root);
  }

  close() {
    this.closed.abort();
    this.resized.disconnect();
  }

  get texts() {
    return TEXTS[this.state.language ?? this.language];
  }

  // ---- what is shown

  change(difference) {
    const before = this.state.language;
    this.state = { ...this.state, ...difference };
    if ("kind" in difference || "words" in difference) {
      this.pointed = null;
      if (!("token" in difference)) this.state.token = null;
    }
    this.remember();
    if (this.state.language !== before) {
      this.build();
      this.root.querySelector("[name=language]").focus();
    } else this.refresh();
  }

  remember() {
    const fragment = toFragment(this.state, this.data);
    this.root.querySelector(".link").href = `#${fragment}`;
    if (!this.permalink) return;
    try {
      history.replaceState(null, "", `#${fragment}`);
    } catch {
      // A frame without an address of its own, as in a notebook, keeps none.
    }
  }

  restore() {
    this.state = fromFragment(location.hash.slice(1), this.data);
    this.build();
  }

  // Drawn once a frame, however many tokens the pointer crosses in it.
  point(token) {
    this.pointed = token;
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.drawPictures();
    });
  }

  press(token) {
    this.change({ token: String(token) === String(this.state.token) ? null : token });
  }

  get alone() {
    const row = this.maps.rowOfStep(this.state);
    return this.pointed ?? this.state.token ?? (row === null ? null : [0, row]);
  }

  // The heads of each picture: one picture, or two side by side.
  get panels() {
    const { view, layer, head, on, beside } = this.state;
    const of = (layer, head) => ({
      layer,
      head,
      color: this.data.colors[head],
      map: this.maps.map({ ...this.state, layer, head }),
    });
    if (beside) return [[of(layer, head)], [of(...beside)]];
    return [view === "head" ? [of(layer, head)] : on.map((one) => of(layer, one))];
  }

  scenes() {
    const { kind, words, view, token, layer } = this.state;
    const style = getComputedStyle(this.root);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const colors = {
      text: color("text"),
      faint: color("faint"),
      cell: color("cell"),
      background: color("background"),
      onColor: color("on-color"),
    };
    if (view === "grid") return [gridScene({ maps: this.maps, state: this.state, colors })];
    const names = [0, 1].map((side) => this.maps.names(kind, side, words));
    const languages = [0, 1].map((side) => this.maps.language(kind, side));
    const narrow = this.root.clientWidth < 700;
    return this.panels.map((heads, _, { length }) => {
      const one = heads.length === 1 ? heads[0] : null;
      const title = one ? this.texts.nameOfHead(one.layer + 1, one.head + 1) : this.texts.nameOfLayer(layer + 1);
      const wide = Math.max(this.root.clientWidth, LEAST_WIDTH);
      const room = (narrow ? wide : (wide - 16 * (length - 1)) / length) - 8; // less the gaps and paddings of page.css
      const shared = { names, languages, alone: this.alone, pressed: token, title, colors, room };
      const made =
        view === "head" ? heatScene({ ...shared, map: one.map, color: one.color }) : linesScene({ ...shared, heads });
      return { ...made, name: `${this.texts.figure}: ${title}` };
    });
  }

  // ---- drawing

  build() {
    const { texts } = this;
    this.root.lang = this.state.language ?? this.language;
    this.parts = {
      about: element("p", { class: "about" }),
      pictures: element("div", { class: "pictures" }),
      sheet: element("div", { class: "sheet" }), // the grid or the table
      status: element("p", { class: "status", "aria-live": "polite" }),
      numbers: element(
        "details",
        { class: "numbers", ontoggle: () => this.drawNumbers() },
        element("summary", {}, texts.numbers),
        element("div", {}),
      ),
      steps: element("section", { class: "steps", "aria-label": texts.candidates }),
    };
    this.pictures = [];
    this.root.replaceChildren(
      this.translation(),
      this.controls(),
      this.parts.about,
      this.parts.pictures,
      this.parts.sheet,
      this.parts.status,
      element("p", { class: "note hint" }),
      this.sliders(),
      this.parts.steps,
      this.parts.numbers,
      this.footer(),
    );
    this.remember();
    this.refresh();
  }

  refresh() {
    const { state, texts, parts } = this;
    const drawn = state.view === "lines" || state.view === "head";
    this.showControls(drawn);
    parts.about.textContent = texts[`about_${state.kind}`];
    for (const part of [parts.pictures, parts.status, parts.numbers, this.root.querySelector(".hint")])
      part.hidden = !drawn;
    parts.sheet.hidden = drawn;
    this.root.querySelector(".hint").textContent = state.view === "lines" ? `${texts.hint} ${texts.small}` : texts.hint;
    const onChoose = (layer, head) => this.change({ view: "head", layer, head });
    const shared = { maps: this.maps, state, texts, onChoose };
    if (drawn) this.drawPictures();
    else if (state.view === "grid") drawGrid(parts.sheet, shared);
    else drawTable(parts.sheet, { ...shared, onOrder: (name) => this.orderBy(name) });
    this.drawStep();
    this.drawNumbers();
  }

  drawPictures() {
    if (this.parts.pictures.hidden) return;
    const scenes = this.scenes();
    if (scenes.length !== this.pictures.length) {
      const listeners = {
        onPoint: (token) => this.point(token),
        onPress: (token) => this.press(token),
        onLeave: () => this.point(null),
      };
      const holders = scenes.map(() => element("div", { class: "picture" }));
      this.parts.pictures.replaceChildren(...holders);
      this.pictures = holders.map((holder) => new Picture(holder, listeners));
      holders.forEach((holder, n) => holder.addEventListener("pointermove", (event) => this.pointAtCell(event, n)));
    }
    scenes.forEach((scene, n) => this.pictures[n].draw(scene));
    this.tell();
  }

  // The value under the pointer of a heat map.
  pointAtCell(event, n) {
    const { scene, svg } = this.pictures[n];
    if (!scene.at) return;
    const corner = svg.getBoundingClientRect();
    const cell = scene.at(event.clientX - corner.left, event.clientY - corner.top);
    if (!cell) return;
    const [names, map] = [
      [0, 1].map((side) => this.maps.names(this.state.kind, side, this.state.words)),
      this.panels[n][0].map,
    ];
    const weight = map.weights[cell[0] * map.columns + cell[1]];
    this.parts.status.textContent = `“${names[0][cell[0]]}” → “${names[1][cell[1]]}”: ${weight.toFixed(4)}`;
  }

  // In words what is alone in the picture: for each head where most of it goes.
  tell() {
    const { alone, texts, state } = this;
    this.parts.status.textContent = "";
    if (!alone) return;
    const [side, place] = alone;
    const names = [0, 1].map((one) => this.maps.names(state.kind, one, state.words));
    if (names[side][place] === undefined) return;
    const lines = this.panels.flat().map(({ layer, head, map }) => {
      const weights = names[1 - side].map((name, other) => {
        const [row, column] = side ? [other, place] : [place, other];
        return [map.weights[row * map.columns + column], name];
      });
      const most = weights.sort((a, b) => b[0] - a[0]).slice(0, 3);
      return `${layer + 1}.${head + 1}: ${most.map(([weight, name]) => `“${name}” ${weight.toFixed(4)}`).join(", ")}`;
    });
    this.parts.status.textContent = `“${names[side][place]}” ${side ? texts.lookedAtBy : texts.looksAt}: ${lines.join("; ")}`;
  }

  // ---- the heads

  orderBy(name) {
    const { order, falling } = this.state;
    this.change({ order: name, falling: order === name ? !falling : name !== "position" });
    this.root.querySelector(`[data-order="${name}"]`)?.focus();
  }

  // The heads most like a figure of the paper, one after the other.
  find(likeness) {
    const { kind, moment } = this.state;
    const found = this.data.moments[moment].like[kind][likeness];
    const told = this.root.querySelector(".found");
    if (!found.length) {
      told.textContent = this.texts.foundNone;
      return;
    }
    const place = (this.found[likeness] = ((this.found[likeness] ?? -1) + 1) % found.length);
    const { layer, head, row, score } = found[place];
    const token = likeness === "structural" ? null : [0, row];
    const drawn = this.state.view === "head" ? "head" : "lines";
    this.change({ view: drawn, layer, head, on: [head], beside: null, words: true, step: null, token });
    const name = this.texts.nameOfHead(layer + 1, head + 1);
    told.textContent = this.texts.foundOne(place + 1, found.length, name, score.toFixed(3));
  }

  // ---- controls

  translation() {
    const { text, languages, moments } = this.data;
    const { texts } = this;
    const line = (name, value, language, kind) =>
      element(
        "p",
        { class: kind },
        element("span", { class: "name" }, name),
        element("span", { lang: language }, value),
      );
    const switcher = element(
      "label",
      { class: "language" },
      `${texts.language} `,
      this.choice("language", Object.entries(LANGUAGES), (value) => this.change({ language: value })),
    );
    return element(
      "header",
      {},
      element(
        "div",
        {},
        line(texts.source, text.source, languages.source, "source"),
        line(texts.target, text.target, languages.target, "target"),
        moments.length > 1 ? line(texts.said, "", languages.target, "said") : null,
      ),
      switcher,
    );
  }

  controls() {
    const { texts, data } = this;
    const counted = (count) => Array.from({ length: count }, (_, n) => [n, String(n + 1)]);
    const labeled = (kind, text, input) => element("label", { class: kind }, `${text} `, input);
    const group = (kind, text, ...inside) =>
      element("div", { class: `group ${kind}`, role: "group", "aria-label": text }, ...inside);
    const segments = (name, values, set) =>
      values.map((value) =>
        element(
          "button",
          { type: "button", "data-set": name, "data-value": value, onclick: () => set(value) },
          texts[value],
        ),
      );
    const orders = ["position", ...data.measures].map((name) => [name, texts[name]]);
    return element(
      "div",
      { class: "controls" },
      group("segments views", texts.view, ...segments("view", VIEWS, (view) => this.change({ view }))),
      group("segments kinds", texts.kind, ...segments("kind", kindsOf(data), (kind) => this.change({ kind }))),
      group(
        "choices",
        texts.heads,
        labeled(
          "layer",
          texts.layer,
          this.choice("layer", counted(data.layers), (value) => this.change({ layer: Number(value) })),
        ),
        labeled(
          "head",
          texts.headNumber,
          this.choice("head", counted(data.heads), (value) => this.change({ head: Number(value) })),
        ),
        labeled(
          "words",
          texts.merge,
          this.check("words", (words) => this.change({ words })),
        ),
        labeled(
          "compare",
          texts.compare,
          this.check("compare", (on) => this.compare(on)),
        ),
        labeled(
          "beside",
          texts.otherLayer,
          this.choice("other-layer", counted(data.layers), (value) =>
            this.change({ beside: [Number(value), this.state.beside[1]] }),
          ),
        ),
        labeled(
          "beside",
          texts.otherHead,
          this.choice("other-head", counted(data.heads), (value) =>
            this.change({ beside: [this.state.beside[0], Number(value)] }),
          ),
        ),
        labeled(
          "order",
          texts.order,
          this.choice("order", orders, (order) => this.change({ order, falling: order !== "position" })),
        ),
      ),
      group("chips", texts.heads, ...this.chips()),
      group(
        "finders",
        texts.find,
        element("span", {}, texts.find),
        ...["long", "sharp", "structural"].map((likeness) =>
          element(
            "button",
            { type: "button", "data-find": likeness, onclick: () => this.find(likeness) },
            texts[likeness],
          ),
        ),
        element("output", { class: "found" }),
      ),
    );
  }

  chips() {
    const { texts, data } = this;
    const chip = (head) => {
      const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = data.colors[head];
      const name = `${texts.headNumber} ${head + 1}`;
      return element(
        "button",
        { type: "button", class: "chip", "data-chip": head, "aria-label": name, onclick: () => this.toggle(head) },
        swatch,
        String(head + 1),
      );
    };
    const all = firstState(data).on;
    return [
      element("span", {}, texts.heads),
      ...all.map(chip),
      element("button", { type: "button", "data-chips": "all", onclick: () => this.change({ on: all }) }, texts.all),
      element("button", { type: "button", "data-chips": "none", onclick: () => this.change({ on: [] }) }, texts.none),
    ];
  }

  toggle(head) {
    const { on } = this.state;
    this.change({ on: on.includes(head) ? on.filter((one) => one !== head) : [...on, head].sort((a, b) => a - b) });
  }

  // Beside a head its neighbor, to begin with.
  compare(wanted) {
    const { layer, head } = this.state;
    this.change({ beside: wanted ? [layer, (head + 1) % this.data.heads] : null });
  }

  choice(name, options, set) {
    const made = options.map(([value, text]) => element("option", { value }, text));
    return element("select", { name, onchange: (event) => set(event.target.value) }, ...made);
  }

  check(name, set) {
    return element("input", { type: "checkbox", name, onchange: (event) => set(event.target.checked) });
  }

  // Everything that can be set, as it is set; what does not belong to the view is not there.
  showControls(drawn) {
    const { state, root } = this;
    const input = (name) => root.querySelector(`[name="${name}"]`);
    const show = (selector, wanted) => root.querySelectorAll(selector).forEach((one) => (one.hidden = !wanted));
    const oneHead = state.view === "head" || (state.view === "lines" && state.beside !== null);
    show("label.layer", drawn);
    show("label.head", oneHead);
    show("label.compare", drawn);
    show("label.beside", drawn && state.beside !== null);
    show("label.order", !drawn);
    show(".chips", state.view === "lines" && !state.beside);
    show("[data-download]", state.view !== "table");
    input("layer").value = state.layer;
    input("head").value = state.head;
    input("words").checked = state.words;
    input("compare").checked = state.beside !== null;
    if (state.beside) [input("other-layer").value, input("other-head").value] = state.beside;
    input("order").value = state.order;
    const edge = state.kind === "decoder" ? "edge_decoder" : "edge"; // the decoder cannot see the end
    input("order").querySelector("[value=edge]").textContent = this.texts[edge];
    input("language").value = state.language ?? this.language;
    for (const one of root.querySelectorAll("[data-set]"))
      one.setAttribute("aria-pressed", state[one.dataset.set] === one.dataset.value);
    for (const one of root.querySelectorAll("[data-chip]"))
      one.setAttribute("aria-pressed", state.on.includes(Number(one.dataset.chip)));
  }

  // ---- steps of the decoder, and of training

  sliders() {
    const { texts, data } = this;
    const slider = (name, text, most, set) =>
      element(
        "label",
        { class: `slider ${name}` },
        element("span", {}, text),
        element("input", {
          type: "range",
          name,
          min: 0,
          max: most,
          step: 1,
          oninput: (event) => set(Number(event.target.value)),
        }),
        element("output", {}),
      );
    const moments = data.moments.length;
    return element(
      "div",
      { class: "sliders" },
      moments > 1 ? slider("moment", texts.moment, moments - 1, (moment) => this.change({ moment })) : null,
      slider("step", texts.step, data.tokens.written.length, (step) =>
        this.change({ step: step ? step - 1 : null, token: null }),
      ),
    );
  }

  drawStep() {
    const { state, texts, data, root, parts } = this;
    const steps = data.tokens.written.length;
    const { candidates, chances, said, step, name } = data.moments[state.moment];
    const told = (input, text) => {
      input.nextSibling.value = text;
      input.setAttribute("aria-valuetext", text);
    };
    const slider = root.querySelector("[name=step]");
    slider.value = state.step === null ? 0 : state.step + 1;
    told(slider, state.step === null ? texts.allSteps : texts.stepOf(state.step + 1, steps));
    const training = root.querySelector("[name=moment]");
    if (training) {
      training.value = state.moment;
      told(training, step === null ? name : texts.momentStep(step));
      root.querySelector(".said span + span").textContent = said;
    }
    parts.steps.hidden = state.step === null || !candidates.length;
    if (parts.steps.hidden) return parts.steps.replaceChildren();
    const written = data.tokens.written[state.step];
    const rows = candidates[state.step].map(([piece, chance]) =>
      candidate(piece, chance, piece === written, texts, data),
    );
    if (!candidates[state.step].some(([piece]) => piece === written))
      rows.push(candidate(written, chances[state.step], true, texts, data));
    parts.steps.replaceChildren(
      element("h2", {}, texts.candidates),
      element(
        "p",
        { class: "so-far" },
        `${texts.soFar}: `,
        element("span", { lang: data.languages.target }, data.tokens.read.slice(0, state.step + 1).join(" ")),
      ),
      element("ol", {}, ...rows),
    );
  }

  // ---- numbers, downloads

  // Of each head the row that is alone; of all rows only the chosen head, or the two side by side: a table of
  // every head of a layer would be too much for a browser.
  drawNumbers() {
    const { numbers } = this.parts;
    if (!numbers.open || numbers.hidden) return;
    const { kind, words, moment, head: chosen, token, beside } = this.state;
    const [side, row] = token ?? [0, this.maps.rowOfStep(this.state)];
    const alone = side === 0 && row !== null && row !== undefined ? Number(row) : null;
    const [allRows, columns] = [0, 1].map((side) => this.maps.names(kind, side, words));
    const rows = [...allRows.entries()].filter(([place]) => alone === null || place === alone);
    const all = this.panels.flat();
    const heads = alone === null && !beside ? [all.find(({ head }) => head === chosen) ?? all[0]].filter(Boolean) : all;
    const key = JSON.stringify([kind, words, moment, alone, ...heads.map(({ layer, head }) => [layer, head])]);
    if (numbers.dataset.of === key) return;
    numbers.dataset.of = key;
    const tables = heads
      .map(({ layer, head, map }) =>
        element(
          "table",
          { "data-layer": layer, "data-head": head },
          element("caption", {}, this.texts.nameOfHead(layer + 1, head + 1)),
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              element("th", { scope: "col" }, this.texts.who),
              ...columns.map((name) => element("th", { scope: "col" }, name)),
            ),
          ),
          element(
            "tbody",
            {},
            ...rows.map(([row, name]) =>
              element(
                "tr",
                {},
                element("th", { scope: "row" }, name),
                ...columns.map((_, column) => element("td", {}, map.weights[row * map.columns + column].toFixed(4))),
              ),
            ),
          ),
        ),
      );
    numbers.lastChild.replaceChildren(
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": this.texts.numbers }, ...tables),
    );
  }

  footer() {
    const { texts } = this;
    return element(
      "footer",
      {},
      element(
        "button",
        { type: "button", "data-download": "svg", onclick: () => this.download("svg") },
        texts.download("SVG"),
      ),
      element(
        "button",
        { type: "button", "data-download": "png", onclick: () => this.download("png") },
        texts.download("PNG"),
      ),
      element("a", { class: "link", href: "#" }, texts.link),
    );
  }

  async download(format) {
    const scene = sideBySide(this.scenes());
    const blob =
      format === "svg"
        ? new Blob([new XMLSerializer().serializeToString(wholeSvg(scene))], { type: "image/svg+xml" })
        : await new Promise((done) => wholeCanvas(scene).toBlob(done, "image/png"));
    const address = URL.createObjectURL(blob);
    const { view, kind, layer } = this.state;
    element("a", {
      href: address,
      download: `attention-${view}-${kind}${view === "grid" ? "" : `-${layer + 1}`}.${format}`,
    }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
}

function candidate(piece, chance, isWritten, texts, data) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${100 * chance}%`;
  return element(
    "li",
    { class: isWritten ? "written" : null, "data-chance": chance },
    element("span", { class: "piece", lang: data.languages.target }, piece),
    element("span", { class: "track" }, bar),
    element("span", {}, `${(100 * chance).toFixed(2)}%` + (isWritten ? ` · ${texts.written}` : "")),
  );
}
