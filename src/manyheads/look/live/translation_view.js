// The two panes: the text with the tokens that the model reads, and the translation as tokens that can be chosen.

import { element } from "../assets/dom.js";
import { readableTokens } from "../assets/token_text.js";
import { logSumExp } from "./search.js";
import { cleanOutput } from "./sentences.js";
import { EOS_ID } from "./subwords.js";
import { takeHead } from "./translator.js";

const [LOW, MEDIUM] = [0.3, 0.7]; // probabilities below which a token is marked
const MAX_SHADE = 0.55;

export class TranslationView {
  constructor(page) {
    this.page = page;
    const { texts, state, translator } = page;
    const [sourceName, targetName] = page.languageNames();
    this.input = element("textarea", {
      id: "source-text",
      rows: 1,
      lang: translator.languages.source,
      placeholder: texts.placeholder,
      spellcheck: "false",
      oninput: () => {
        this.showWords();
        page.change({ text: this.input.value, sentence: this.findSentenceAtCaret() });
      },
      onkeyup: () => this.followCaret(),
      onclick: () => this.followCaret(),
    });
    this.input.value = state.text;
    this.words = element("div", { class: "source-words", "aria-hidden": "true" });
    this.unknownNote = element("p", { class: "unknown-note", role: "status" });
    this.clear = element("button", { type: "button", class: "quiet clear", onclick: () => this.clearText() }, texts.clear);
    this.facts = element("p", { class: "facts", title: texts.confidenceNote });
    this.readsTitle = element("h2", { class: "name" }, texts.reads);
    this.reads = element("p", { class: "tokens reads", lang: translator.languages.source });
    this.output = element("div", { class: "output", lang: translator.languages.target });
    this.prefix = element("input", {
      id: "prefix",
      type: "text",
      lang: translator.languages.target,
      placeholder: texts.prefixHint,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => page.setPrefix(this.prefix.value),
    });
    this.clearPrefix = element(
      "button",
      { type: "button", class: "quiet", onclick: () => this.resetPrefix() },
      texts.clear,
    );
    this.candidates = element("section", { class: "candidates", "aria-label": texts.candidates, hidden: true });
    this.candidatesHint = element("p", { class: "hint" }, texts.candidatesHint);
    this.node = element(
      "section",
      { class: "card translate", "aria-label": texts.translation },
      element(
        "div",
        { class: "pane" },
        element(
          "div",
          { class: "pane-head" },
          element("label", { for: "source-text", class: "name" }, sourceName),
          this.clear,
        ),
        element("div", { class: "editor" }, this.words, this.input),
        this.unknownNote,
        this.createExamples(),
        this.readsTitle,
        this.reads,
      ),
      element(
        "div",
        { class: "pane target" },
        element("div", { class: "pane-head" }, element("h2", { class: "name" }, targetName), this.facts),
        this.output,
        this.candidatesHint,
        this.candidates,
        element(
          "div",
          { class: "prefix" },
          element("label", { for: "prefix", class: "name" }, texts.prefix),
          this.prefix,
          this.clearPrefix,
        ),
      ),
    );
    this.showPrefix();
    this.showWords();
  }

  createExamples() {
    const { texts, data } = this.page;
    if (!data.examples.length) return element("p", { hidden: true });
    const buttons = data.examples.map((text) =>
      element("button", { type: "button", class: "example", onclick: () => this.setText(text) }, text),
    );
    return element("div", { class: "examples" }, element("span", { class: "name" }, texts.examples), ...buttons);
  }

  setText(text) {
    this.input.value = text;
    this.showWords();
    this.page.change({ text, sentence: 0 });
  }

  clearText() {
    this.setText("");
    this.input.focus();
  }

  // A copy of the text behind the text area, which makes it as high as the text, with unknown words marked. The word
  // that is being typed is not marked yet.
  showWords() {
    const { texts, translator } = this.page;
    const { value: text, selectionEnd } = this.input;
    const isTyping = document.activeElement === this.input && selectionEnd === text.length;
    const unknown = translator.findUnknownWords(text).filter(({ end }) => !(isTyping && end === text.length));
    const nodes = [];
    let position = 0;
    for (const { start, end, word } of unknown) {
      nodes.push(text.slice(position, start), element("span", { class: "unknown" }, word));
      position = end;
    }
    this.words.replaceChildren(...nodes, `${text.slice(position)}\u200b`); // a last line that is empty has its height
    const words = [...new Set(unknown.map(({ word }) => word))];
    const note = words.length ? texts.unknownWords(words.join(", ")) : "";
    if (this.unknownNote.textContent !== note) this.unknownNote.textContent = note;
    this.clear.classList.toggle("is-unused", !text);
  }

  resetPrefix() {
    this.page.setPrefix("");
    this.prefix.focus();
  }

  showPrefix() {
    const { prefix } = this.page;
    const text = prefix?.text ?? "";
    if (this.prefix.value !== text) this.prefix.value = text;
    this.clearPrefix.hidden = !prefix;
  }

  findSentenceAtCaret() {
    const caret = this.input.selectionStart;
    let [end, index] = [0, -1];
    for (const { text, isTranslated } of this.page.translator.split(this.input.value)) {
      if (end > caret) break;
      if (isTranslated) index++;
      end += text.length;
    }
    return Math.max(0, index);
  }

  followCaret() {
    this.page.selectSentence(this.findSentenceAtCaret());
  }

  // ---- results

  showResult() {
    this.showWords(); // of the model, which may be another one
    const { page } = this;
    const { result, sentence, texts, translator } = page;
    this.units = [];
    this.showFacts();
    this.readsTitle.hidden = !sentence;
    if (!sentence) {
      this.output.replaceChildren(element("p", { class: "empty" }, page.state.text.trim() ? "" : texts.empty));
      this.reads.replaceChildren();
      return;
    }
    let index = -1;
    const parts = result.segments.map(({ text, isTranslated }) => {
      if (!isTranslated) return text;
      index++;
      return index === page.state.sentence ? this.createSentence(sentence) : this.createOtherSentence(index);
    });
    this.output.replaceChildren(element("p", {}, ...parts));
    const labels = readableTokens(translator.source.listPieces(sentence.sourceIds), texts);
    this.sourceTokens = labels.map((label, own) =>
      element("span", { class: "token-chip", "data-index": own, ...this.listen({ side: "source", index: own }) }, label),
    );
    this.reads.replaceChildren(...this.sourceTokens);
  }

  // How sure the model is of the whole text, and how long the search took.
  showFacts() {
    const { texts, result } = this.page;
    if (!result.sentences.length) return this.facts.replaceChildren();
    const scores = result.sentences.flatMap((sentence) => sentence.scores);
    const percent = 100 * Math.exp(scores.reduce((sum, score) => sum + score, 0) / scores.length);
    const milliseconds = result.sentences.reduce((sum, sentence) => sum + sentence.milliseconds, 0);
    const parts = [texts.confidence(texts.percent(percent < 1 ? "<1" : percent.toFixed(0))), texts.took(milliseconds.toFixed(0))];
    this.facts.textContent = parts.join(" · ");
  }

  // A sentence without the caret: marked where the model doubts, and chosen as a whole.
  createOtherSentence(index) {
    const { page } = this;
    const sentence = page.result.sentences[index];
    const units = this.listUnits(sentence);
    const nodes = units.map(({ steps, text }) =>
      element("span", { class: "other-unit", "data-level": doubtLevel(sentence.scores, steps) }, text.trim()),
    );
    return element(
      "button",
      { type: "button", class: "other", onclick: () => page.selectSentence(index) },
      ...joinUnits(units, nodes),
    );
  }

  listUnits({ ids, source, isUpper }) {
    const units = groupBytes(this.page.translator.target, ids);
    return units.map(({ steps, text }) => ({ steps, text: cleanOutput(text, source, isUpper) }));
  }

  // Tokens as text. Bytes of one character are one unit.
  createSentence(sentence) {
    const { prefixLength } = sentence;
    const units = this.listUnits(sentence);
    this.units = units.filter((unit) => unit.text.trim()); // a token may be a mere space
    for (const unit of this.units) {
      const [step] = unit.steps;
      unit.node = element(
        "button",
        {
          type: "button",
          class: step < prefixLength ? "unit forced" : "unit",
          "data-step": step,
          ...this.listen({ side: "target", index: step }),
          onclick: () => this.page.selectStep(step),
        },
        unit.text.trim(),
      );
    }
    const nodes = units.map(({ node }) => node ?? "");
    return element("span", { class: "sentence" }, ...joinUnits(units, nodes));
  }

  listen(token) {
    const { page } = this;
    const [enter, leave] = [() => page.hover(token), () => page.hover(null)];
    return { onpointerenter: enter, onpointerleave: leave, onfocus: enter, onblur: leave };
  }

  // The probability of each token, and the candidates of the chosen step.
  showSteps() {
    const { attention, state } = this.page;
    for (const { steps, node } of attention ? this.units : []) {
      node.dataset.level = doubtLevel(attention.scores, steps);
      node.title = this.page.texts.percent((100 * leastProbability(attention.scores, steps)).toFixed(1));
      node.setAttribute("aria-pressed", String(steps[0] === state.step));
    }
    this.shade();
    const isChosen = Boolean(attention) && state.step !== null && state.step < attention.scores.length;
    this.candidates.hidden = !isChosen;
    this.candidatesHint.hidden = !attention || isChosen;
    if (isChosen) this.showCandidates(state.step);
  }

  showCandidates(step) {
    const { page } = this;
    const { texts, attention, sentence, translator, state } = page;
    const written = [...sentence.ids, EOS_ID];
    const label = (id) => readableTokens(translator.target.listPieces([id]), texts)[0];
    const size = translator.model.vocabularySize;
    const temperature = state.temperature || 1;
    const logits = attention.logits.subarray(step * size, (step + 1) * size).map((logit) => logit / temperature);
    const total = logSumExp(logits);
    const items = attention.candidates[step].map(({ id }) => {
      const probability = Math.exp(logits[id] - total);
      const bar = element("span", { class: "bar" });
      bar.style.width = `${100 * probability}%`;
      const isChosen = id === written[step];
      return element(
        "li",
        {},
        element(
          "button",
          {
            type: "button",
            class: isChosen ? "candidate chosen" : "candidate",
            "data-id": id,
            disabled: id === EOS_ID,
            onclick: () => page.chooseToken(step, id),
          },
          element("span", { class: "piece", lang: translator.languages.target }, label(id)),
          element("span", { class: "track" }, bar),
          element("span", { class: "amount" }, texts.percent((100 * probability).toFixed(1)), isChosen ? ` · ${texts.chosen}` : ""),
        ),
      );
    });
    const title = element("h2", { class: "name" }, texts.candidatesOf(label(written[step])));
    const hasFocus = this.candidates.contains(document.activeElement);
    this.candidates.replaceChildren(title, element("ol", {}, ...items));
    if (!hasFocus) return;
    const next = this.candidates.querySelector(".chosen") ?? this.candidates.querySelector(".candidate:enabled");
    next?.focus({ preventScroll: true });
  }

  // ---- what a token looks at: the chosen head of cross-attention, or the mean of the last layer

  shade() {
    const { hovered, attention } = this.page;
    const clear = (node) => node.style.removeProperty("--shade");
    this.sourceTokens?.forEach(clear);
    this.units?.forEach(({ node }) => clear(node));
    if (!hovered || !attention || !this.sourceTokens) return;
    const { rows, columns, weights } = this.takeAlignment();
    const set = (node, weight) => node?.style.setProperty("--shade", (MAX_SHADE * weight).toFixed(3));
    if (hovered.side === "target" && hovered.index < rows)
      this.sourceTokens.forEach((node, column) => set(node, weights[hovered.index * columns + column]));
    else if (hovered.side === "source" && hovered.index < columns)
      for (const { steps, node } of this.units) set(node, weights[steps[0] * columns + hovered.index]);
  }

  takeAlignment() {
    const { attention, state } = this.page;
    if (state.head?.attention === "cross") return takeHead(attention.maps.cross[state.head.layer], state.head.head);
    const { heads, rows, columns, weights } = attention.maps.cross.at(-1);
    const mean = new Float32Array(rows * columns);
    for (let index = 0; index < weights.length; index++) mean[index % mean.length] += weights[index] / heads;
    return { rows, columns, weights: mean };
  }
}

const leastProbability = (scores, steps) => Math.exp(Math.min(...steps.map((step) => scores[step])));

function doubtLevel(scores, steps) {
  const probability = leastProbability(scores, steps);
  return probability < LOW ? "low" : probability < MEDIUM ? "medium" : "high";
}

// The nodes of units, with a space before each that begins a word.
function joinUnits(units, nodes) {
  const joined = [];
  units.forEach(({ text }, index) => {
    if (/^\s/.test(text) && joined.length && joined.at(-1) !== " ") joined.push(" ");
    if (text.trim()) joined.push(nodes[index]);
  });
  return joined;
}

// [{steps, text}]: one unit per token, or per character that is written as bytes.
function groupBytes(subwords, ids) {
  const units = [];
  ids.forEach((id, step) => {
    if (subwords.continuesCharacter(id) && units.at(-1)?.isByte) units.at(-1).steps.push(step);
    else units.push({ steps: [step], isByte: subwords.isByte(id) });
  });
  for (const unit of units) {
    const own = unit.steps.map((step) => ids[step]);
    const isFirst = unit.steps[0] === 0;
    unit.text = (subwords.startsWord(own[0]) && !isFirst ? " " : "") + subwords.decode(own);
  }
  return units;
}
