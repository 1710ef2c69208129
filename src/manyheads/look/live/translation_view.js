// The two panes: the text with the tokens that the model reads, and the translation as tokens that can be chosen.

import { element } from "../assets/dom.js";
import { readableTokens } from "../assets/token_text.js";
import { logSumExp } from "./search.js";
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
      rows: 2,
      lang: translator.languages.source,
      placeholder: texts.placeholder,
      spellcheck: "false",
      oninput: () => page.change({ text: this.input.value, sentence: this.findSentenceAtCaret() }),
      onkeyup: () => this.followCaret(),
      onclick: () => this.followCaret(),
    });
    this.input.value = state.text;
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
        element("label", { for: "source-text", class: "name" }, sourceName),
        this.input,
        this.createExamples(),
        element("h2", { class: "name" }, texts.reads),
        this.reads,
      ),
      element(
        "div",
        { class: "pane target" },
        element("h2", { class: "name" }, targetName),
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
    this.page.change({ text, sentence: 0 });
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
    const { page } = this;
    const { result, sentence, texts, translator } = page;
    this.units = [];
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

  createOtherSentence(index) {
    const { page } = this;
    const { text } = page.result.sentences[index];
    return element("button", { type: "button", class: "other", onclick: () => page.selectSentence(index) }, text);
  }

  // Tokens as text. Bytes of one character are one unit, as is a translation in capitals.
  createSentence({ ids, text, prefixLength }) {
    const { target } = this.page.translator;
    const isPlain = joinSpaces(target.decode(ids)) === joinSpaces(text);
    const units = isPlain ? groupBytes(target, ids) : [{ steps: ids.map((_, step) => step), text }];
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
    const nodes = units.flatMap(({ text: own, node }) => [own.startsWith(" ") ? " " : "", node ?? ""]);
    return element("span", { class: "sentence" }, ...nodes);
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
      const probability = Math.exp(Math.min(...steps.map((step) => attention.scores[step])));
      const level = probability < LOW ? "low" : probability < MEDIUM ? "medium" : "high";
      node.dataset.level = level;
      node.title = `${(100 * probability).toFixed(1)} %`;
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
          element("span", { class: "amount" }, `${(100 * probability).toFixed(1)} %`, isChosen ? ` · ${texts.chosen}` : ""),
        ),
      );
    });
    const title = element("h2", { class: "name" }, texts.candidatesOf(label(written[step])));
    this.candidates.replaceChildren(title, element("ol", {}, ...items));
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

const joinSpaces = (text) => text.replace(/\s+/g, " ").trim();

// [{steps, text}]: one unit per token, or per run of bytes.
function groupBytes(subwords, ids) {
  const units = [];
  ids.forEach((id, step) => {
    if (subwords.isByte(id) && units.at(-1)?.isByte) units.at(-1).steps.push(step);
    else units.push({ steps: [step], isByte: subwords.isByte(id) });
  });
  for (const unit of units) {
    const own = unit.steps.map((step) => ids[step]);
    const isFirst = unit.steps[0] === 0;
    unit.text = (subwords.startsWord(own[0]) && !isFirst ? " " : "") + subwords.decode(own);
  }
  return units;
}
