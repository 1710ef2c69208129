// One sentence through one layer of the model, with its real numbers. See look/walk.py for what comes.

import { element } from "./look/elements.js";
import { patiently, post, why } from "./asking.js";
import { noLook, sentenceOf } from "./attention.js";

const FEW = 8;
const ALL = 2 ** 20;
const EXAMPLE = { en: "I go home.", ko: "나는 오늘 점심을 먹었어." };

export class WalkView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "walk-view" });
    this.how = { stack: "encoder", layer: 0, head: 0 };
    this.open = new Set(); // steps that show all their numbers
  }

  build() {
    const { texts } = this.page;
    const parts = (this.parts = {
      sentence: element("input", { type: "text", id: "sentence", value: this.asked?.q ?? "", maxlength: this.page.settings.charLimit }),
      stack: this.choice("stack", ["encoder", "decoder"].map((one) => [one, texts[one]])),
      layer: element("select", { name: "walk-layer", onchange: (event) => this.change({ layer: Number(event.target.value) }) }),
      head: element("select", { name: "walk-head", onchange: (event) => this.turn(Number(event.target.value)) }),
      told: element("p", { class: "told", role: "status" }),
      note: element("p", { class: "quiet first-only" }),
      steps: element("div", { class: "walk" }),
    });
    const labeled = (text, input) => element("label", {}, `${text} `, input);
    this.root.replaceChildren(
      element("h2", {}, texts.views.walk),
      element("p", { class: "lead" }, texts.walkAbout),
      element(
        "form",
        { class: "walk-form", onsubmit: (event) => this.submit(event) },
        element("label", { for: "sentence" }, texts.sentence),
        parts.sentence,
        element("button", {}, texts.walkButton),
      ),
      element(
        "div",
        { class: "pair" },
        labeled(texts.stack, parts.stack),
        labeled(texts.layer, parts.layer),
        labeled(texts.head, parts.head),
      ),
      parts.told,
      parts.note,
      parts.steps,
    );
    if (this.data) this.draw();
  }

  choice(name, options) {
    const made = options.map(([value, text]) => element("option", { value, selected: value === this.how[name] }, text));
    return element("select", { name, onchange: (event) => this.change({ [name]: event.target.value }) }, ...made);
  }

  // The text of the other view, unless there is a sentence here already.
  enter() {
    const { text, source } = this.page.current;
    const key = JSON.stringify(this.page.current);
    const cannot = noLook(this.page);
    if (cannot) return this.clear(cannot);
    if (text.trim() && key !== this.taken) {
      this.taken = key;
      return this.take(text);
    }
    const example = EXAMPLE[source] ?? "";
    if (!this.asked && example) return this.take(example);
  }

  submit(event) {
    event.preventDefault();
    const q = this.parts.sentence.value.trim();
    if (!q) return;
    if (q === this.asked?.q) return this.walk();
    return this.take(q);
  }

  // Its first sentence is walked.
  async take(text) {
    const { page, parts } = this;
    const taking = (this.taking = {});
    const cannot = noLook(page);
    if (cannot) return this.clear(cannot);
    this.clear(page.texts.loading);
    this.asked = null;
    parts.sentence.value = text.split(/\r?\n/).find((one) => one.trim()).trim();
    try {
      const { asked, more } = await sentenceOf(page, text);
      if (taking !== this.taking) return;
      this.asked = asked;
      this.parts.sentence.value = asked.q;
      await this.walk();
      if (taking === this.taking && this.data) this.parts.note.textContent = more ? page.texts.firstSentence : "";
    } catch (fault) {
      if (taking === this.taking) this.clear(why(fault, page.texts));
    }
  }

  // No numbers of another sentence stay beside what is said.
  clear(said) {
    this.data = this.wanted = null;
    this.open.clear();
    this.parts.steps.replaceChildren();
    this.parts.note.textContent = "";
    this.parts.told.textContent = said;
  }

  change(difference) {
    Object.assign(this.how, difference);
    this.walk();
  }

  turn(head) {
    this.how.head = head;
    this.draw();
  }

  async walk(width = FEW) {
    if (!this.asked) return;
    const { texts } = this.page;
    const { stack, layer } = this.how;
    const asked = { ...this.asked, stack, layer, width };
    const wanted = (this.wanted = JSON.stringify(asked));
    const tell = (said) => {
      if (this.wanted === wanted) this.parts.told.textContent = said;
    };
    tell(texts.loading);
    this.fade(true);
    try {
      const data = await patiently(() => post("walk", asked), undefined, (seconds) => tell(texts.trying(seconds)));
      if (this.wanted !== wanted) return;
      if (width === FEW) this.open.clear();
      this.data = data;
      this.whole = width !== FEW;
      tell("");
      this.draw();
    } catch (fault) {
      if (this.wanted !== wanted) return;
      const whole = width !== FEW && fault.kind === "too_long"; // the first numbers are right, and stay
      if (!whole) this.clear(why(fault, texts));
      else tell(texts.notAllNumbers);
      this.open.clear();
    }
    this.fade(false);
  }

  fade(stale) {
    this.parts.steps.classList.toggle("stale", stale);
    this.parts.steps.setAttribute("aria-busy", String(stale));
  }

  // ---- drawing

  draw() {
    const { data, how, parts } = this;
    if (!data) return;
    how.head = Math.min(how.head, data.heads - 1);
    offer(parts.layer, data.layers, how.layer);
    offer(parts.head, data.heads, how.head);
    const { texts } = this.page;
    const sections = [];
    let part = "";
    data.steps.forEach((step, n) => {
      if (step.part !== part) {
        part = step.part;
        sections.push(element("section", { class: "part", "data-part": part }, element("h3", {}, texts.parts[part])));
      }
      sections.at(-1).append(this.step(step, n));
    });
    if (data.candidates.length) sections.at(-1).append(this.candidates());
    parts.steps.replaceChildren(this.translation(), ...sections);
  }

  translation() {
    const { data } = this;
    return element(
      "p",
      { class: "walked" },
      element("span", { lang: data.languages.source }, data.source),
      " → ",
      element("span", { lang: data.languages.target }, data.target),
    );
  }

  step(step, n) {
    const { texts } = this.page;
    const [title, why] = texts.steps[step.name];
    const axes = step.axes.map((axis) => texts.axes[axis]);
    const holder = element("div", { class: "numbers-of" });
    holder.append(this.table(step, n, title));
    return element(
      "article",
      { class: "step", "data-step": `${step.part}.${step.name}` },
      element("h4", {}, title),
      element("p", { class: "formula" }, formula(step, this.data)),
      element(
        "p",
        { class: "shape quiet" },
        `${texts.shape}: `,
        element("span", { class: "sizes" }, step.shape.join(" × ")),
        ` (${axes.join(" × ")})`,
      ),
      element("p", { class: "why" }, why),
      holder,
      this.example(step),
    );
  }

  // By head: the rows of one head alone. A map's columns are tokens; a vector's are its numbers.
  table(step, n, title) {
    const { texts } = this.page;
    const { tokens, languages } = this.data;
    const rows = rowsOf(step, this.how.head);
    const whole = this.open.has(n);
    const all = step.shape.at(-1);
    const shown = step.columns ? all : Math.min(all, whole ? all : FEW);
    const heads = step.columns ? tokens[step.columns] : Array.from({ length: shown }, (_, place) => this.column(step, place));
    const language = (side) => (side === "source" ? languages.source : languages.target);
    const most = Math.max(...rows.flatMap((row) => row.slice(0, shown)).map((one) => Math.abs(one ?? 0)), 1e-9);
    const cell = (value) => this.cell(value, most, step);
    const table = element(
      "table",
      { class: step.columns ? "map" : "vectors" },
      element("caption", { class: "visually-hidden" }, title),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col" }, texts.token),
          ...heads.map((name) => element("th", { scope: "col", lang: step.columns ? language(step.columns) : null }, name)),
        ),
      ),
      element(
        "tbody",
        {},
        ...rows.map((row, place) =>
          element(
            "tr",
            {},
            element("th", { scope: "row", lang: language(step.rows) }, tokens[step.rows][place]),
            ...row.slice(0, shown).map(cell),
          ),
        ),
      ),
    );
    const scroll = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title }, table);
    if (step.columns || all <= FEW) return scroll;
    const toggle = element(
      "button",
      { type: "button", class: "more", "aria-expanded": String(whole), onclick: () => this.expand(n) },
      whole ? texts.fewNumbers : `${texts.allNumbers} (${texts.more(FEW, all)})`,
    );
    return element("div", {}, scroll, toggle);
  }

  // A column of the logits is a piece, with its id, from 0; of other vectors it has only a number.
  column(step, place) {
    if (step.name !== "logits") return String(place + 1);
    const piece = this.data.vocabulary?.[place];
    return piece === undefined ? `id ${place}` : `${piece} (id ${place})`;
  }

  // The sign by its color, and the size by its strength; the number says both.
  cell(value, most, step) {
    if (value === null) return element("td", { class: "masked" }, element("span", { "aria-label": this.page.texts.masked, role: "img" }, "−∞"));
    const made = element("td", {}, value.toFixed(step.name === "weights" ? 3 : 2));
    made.title = String(value);
    made.dataset.value = value;
    const share = Math.round((35 * Math.abs(value)) / most);
    made.style.background = `color-mix(in srgb, var(${value < 0 ? "--minus" : "--plus"}) ${share}%, transparent)`;
    return made;
  }

  async expand(n) {
    if (this.open.has(n)) this.open.delete(n);
    else {
      this.open.add(n);
      if (!this.whole) await this.walk(ALL);
    }
    this.draw();
    this.root.querySelectorAll(".step")[n]?.querySelector(".more")?.focus();
  }

  // One number of a map, worked out in full.
  example(step) {
    const { texts } = this.page;
    const { tokens, d_k, attention } = this.data;
    const rows = rowsOf(step, this.how.head);
    const row = Math.min(1, rows.length - 1);
    const name = tokens[step.rows][row];
    let said = "";
    if (step.name === "scores" && attention === "scaled-dot") {
      const column = 0;
      const score = rows[row][column];
      if (score === null) return null;
      const product = score * Math.sqrt(d_k);
      said = `q(${name}) · k(${tokens[step.columns][column]}) / √${d_k} = ${product.toFixed(3)} / ${Math.sqrt(d_k).toFixed(3)} = ${score.toFixed(3)}`;
    } else if (step.name === "weights") {
      const total = rows[row].reduce((sum, one) => sum + one, 0);
      said = `${texts.sumsTo(name)} ${total.toFixed(3)}`;
    } else return null;
    return element("p", { class: "example quiet" }, `${texts.example}: `, said);
  }

  candidates() {
    const { texts } = this.page;
    const { candidates, tokens, languages } = this.data;
    const rows = candidates.map((found, n) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", lang: languages.target }, tokens.read[n]),
        ...found.map(([piece, chance]) =>
          element(
            "td",
            { class: piece === tokens.written[n] ? "chosen" : null },
            element("span", { lang: languages.target }, piece),
            ` ${(100 * chance).toFixed(1)}%`,
          ),
        ),
      ),
    );
    const head = element(
      "tr",
      {},
      element("th", { scope: "col" }, texts.after),
      ...candidates[0].map((_, n) => element("th", { scope: "col" }, `${n + 1}`)),
    );
    return element(
      "article",
      { class: "step", "data-step": "output.candidates" },
      element("h4", {}, texts.candidates),
      element("p", { class: "formula" }, "p = softmax(logits)"),
      element(
        "div",
        { class: "wide", tabindex: 0, role: "region", "aria-label": texts.candidates },
        element("table", { class: "candidates" }, element("thead", {}, head), element("tbody", {}, ...rows)),
      ),
    );
  }
}

// The numbers from 1; a list that is open in the browser is not made anew.
function offer(select, count, chosen) {
  if (select.options.length !== count)
    select.replaceChildren(...Array.from({ length: count }, (_, n) => element("option", { value: n }, String(n + 1))));
  select.value = chosen;
}

// [T, H, K] and [H, T, S] as the rows of one head; [T, D] as it is.
function rowsOf({ axes, numbers }, head) {
  if (axes[0] === "H") return numbers[head];
  return axes[1] === "H" ? numbers.map((one) => one[head]) : numbers;
}

const ACTIVATIONS = { relu: (x) => `max(0, ${x})`, gelu: (x) => `gelu(${x})`, swish: (x) => `swish(${x})` };

function formula({ name, part, rows }, data) {
  const { d_model, d_k, heads, positions, attention, normalization, activation } = data;
  const dot = { "scaled-dot": `Q Kᵀ / √d_k,  √d_k = √${d_k} = ${Math.sqrt(d_k).toFixed(3)}`, dot: "Q Kᵀ", additive: "e · tanh(Q + K)" };
  const norm = normalization === "layer" ? "LayerNorm" : "BatchNorm";
  const memory = part === "cross" ? "m" : "x";
  const projected = (letter, x) => `${letter} = ${x} W_${letter} + b_${letter},  h = ${heads}`;
  return {
    embedding: `x = E[id] · √d_model,  √d_model = √${d_model} = ${Math.sqrt(d_model).toFixed(3)};  id = ${data.ids[rows].join(", ")}`,
    position:
      positions === "learned"
        ? "PE[pos], learned"
        : "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))",
    sum: "x = E[id] · √d_model + PE(pos)",
    input: "x",
    norm: `${norm}(x) = γ (x − μ) / √(σ² + ε) + β`,
    query: projected("Q", "x"),
    key: projected("K", memory),
    value: projected("V", memory),
    scores: `S = ${dot[attention]}`,
    weights: "A = softmax(S) = exp(S) / Σ exp(S)",
    heads: "head_i = A_i V_i",
    concat: "Concat(head_1, …, head_h)",
    project: "MultiHead = Concat(head_1, …, head_h) W_O + b_O",
    add: "x + Sublayer(x)",
    hidden: ACTIVATIONS[activation]("x W_1 + b_1"),
    outward: `FFN(x) = ${ACTIVATIONS[activation]("x W_1 + b_1")} W_2 + b_2`,
    logits: "logits = x Wᵀ",
  }[name];
}
