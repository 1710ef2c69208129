// Translating as one types; how sure the model is of each word, and where it came from; files.

import { element } from "./look/elements.js";
import { pause, patiently, post } from "./asking.js";
import { FileBox } from "./files.js";
import { languageName } from "./texts.js";
import { fillWithWords, levelOf, perCent } from "./words.js";

const CONFIDENT = 95; // per cent

export class TranslateView {
  constructor(page) {
    this.page = page;
    this.root = element("section", { class: "translate-view" });
    this.from = page.current.source; // or auto
    this.alternatives = Math.min(3, page.settings.alternativesLimit);
    this.answer = null; // with what was asked
    this.asking = new AbortController();
    this.files = new FileBox(page, () => ({ source: this.from, target: page.current.target, ...this.named() }));
  }

  // ---- drawing

  build() {
    const { texts, current } = this.page;
    const parts = (this.parts = {
      from: element("select", { name: "from", onchange: () => this.choose() }),
      to: element("select", { name: "to", onchange: () => this.choose() }),
      model: element("select", { name: "model", onchange: () => this.choose() }),
      swap: element("button", { type: "button", class: "swap", "aria-label": texts.swap, onclick: () => this.swap() }, "⇄"),
      detected: element("span", { class: "quiet detected" }),
      input: element("textarea", {
        id: "source-text",
        rows: 6,
        placeholder: texts.placeholder,
        oninput: () => this.typed(),
      }),
      count: element("span", { class: "quiet count" }),
      output: element("p", { class: "output", role: "group", "aria-label": texts.translation }),
      mirror: element("p", { class: "mirror", role: "group", "aria-label": texts.cameFrom }),
      told: element("p", { class: "told", role: "status" }),
      read: element("p", { class: "read visually-hidden", "aria-live": "polite" }),
      word: element("p", { class: "word-told" }),
      copy: element("button", { type: "button", class: "copy", onclick: () => this.copy() }, texts.copy),
      others: element("ol", { class: "others" }),
      noOthers: element("p", { class: "quiet no-others", hidden: true }, texts.noAlternatives),
      hint: element("p", { class: "quiet hint-language", role: "status" }),
      howMany: element("select", { name: "alternatives", onchange: (event) => this.wantMany(event) }),
    });
    parts.input.value = current.text;
    const labeled = (kind, text, input) => element("label", { class: kind }, `${text} `, input);
    const counts = Array.from({ length: this.page.settings.alternativesLimit + 1 }, (_, n) =>
      element("option", { value: n, selected: n === this.alternatives }, String(n)),
    );
    parts.howMany.append(...counts);
    this.root.replaceChildren(
      element("h2", { class: "visually-hidden" }, texts.views.translate),
      element(
        "div",
        { class: "pair" },
        labeled("from", texts.from, parts.from),
        parts.swap,
        labeled("to", texts.to, parts.to),
        labeled("model", texts.model, parts.model),
        parts.detected,
      ),
      element(
        "div",
        { class: "boxes" },
        element(
          "div",
          { class: "box" },
          element("label", { class: "name", for: "source-text" }, texts.source),
          parts.input,
          parts.count,
          parts.hint,
        ),
        element(
          "div",
          { class: "box" },
          element("div", { class: "row" }, element("span", { class: "name" }, texts.translation), parts.copy),
          parts.output,
          this.legend(),
        ),
      ),
      parts.told,
      parts.read,
      element(
        "section",
        { class: "came", "aria-label": texts.cameFrom },
        element("h3", {}, texts.cameFrom),
        parts.mirror,
        parts.word,
      ),
      element(
        "section",
        { class: "alternatives", "aria-label": texts.alternatives },
        element("h3", {}, texts.alternatives),
        labeled("how-many quiet", texts.howMany, parts.howMany),
        parts.others,
        parts.noOthers,
      ),
      this.files.build(),
    );
    this.showChoices();
    this.countCharacters();
    this.showAnswer(false);
  }

  legend() {
    const { texts } = this.page;
    const one = (level) =>
      element(
        "span",
        {},
        element("span", { class: "sample", "data-level": level, "aria-hidden": "true" }, "abc"),
        ` ${texts[level]} (${texts.levels[level]})`,
      );
    return element(
      "p",
      { class: "legend quiet" },
      element("span", {}, `${texts.confidence}:`),
      ...["sure", "fair", "unsure"].map(one),
    );
  }

  showChoices() {
    const { languages, current, language, texts } = this.page;
    const { from, to, model, swap } = this.parts;
    const option = (code, chosen) => {
      const served = languages.find((one) => one.code === code);
      return element("option", { value: code, selected: code === chosen }, languageName(code, language, served?.name));
    };
    const sources = languages.filter((one) => one.targets.length);
    from.replaceChildren(
      ...sources.map(({ code }) => option(code, this.from)),
      element("option", { value: "auto", selected: this.from === "auto" }, texts.auto),
    );
    const targets = new Set(sources.filter(({ code }) => this.from === "auto" || code === this.from).flatMap((one) => one.targets));
    if (!targets.has(current.target)) current.target = [...targets][0];
    to.replaceChildren(...[...targets].map((code) => option(code, current.target)));
    const models = this.page.modelsOf(current.source, current.target);
    if (!models.some(({ name }) => name === current.model)) current.model = models.length > 1 ? models[0].name : "";
    model.replaceChildren(
      ...models.map(({ name, engine }) =>
        element("option", { value: name, selected: name === current.model }, `${name} (${engine})`),
      ),
    );
    model.parentNode.hidden = models.length < 2 || this.from === "auto";
    swap.disabled = !this.page.modelsOf(current.target, current.source).length;
    this.parts.input.lang = current.source;
    this.parts.output.lang = current.target;
    this.parts.mirror.lang = current.source;
    this.parts.others.lang = current.target;
  }

  named() {
    return this.page.current.model && this.from !== "auto" ? { model: this.page.current.model } : {};
  }

  countCharacters() {
    const { settings, texts } = this.page;
    this.parts.count.textContent = texts.count([...this.parts.input.value].length, settings.charLimit);
  }

  // ---- what one chooses and types

  choose() {
    const { current } = this.page;
    this.from = this.parts.from.value;
    if (this.from !== "auto") current.source = this.from;
    current.target = this.parts.to.value;
    current.model = this.parts.model.value;
    this.showChoices();
    this.translate();
  }

  wantMany(event) {
    this.alternatives = Number(event.target.value);
    this.translate();
  }

  // The other way round, and the translation becomes the text.
  swap() {
    const { current } = this.page;
    const { translatedText } = this.answer ?? {};
    [current.source, current.target] = [current.target, current.source];
    this.from = current.source;
    current.model = "";
    if (translatedText) this.parts.input.value = translatedText;
    current.text = this.parts.input.value;
    this.showChoices();
    this.countCharacters();
    this.translate();
  }

  typed() {
    this.page.current.text = this.parts.input.value;
    this.countCharacters();
    this.translate(this.page.settings.frontendTimeout);
  }

  // ---- asking

  // What was asked before is given up: its answer, should it come, is not shown.
  async translate(wait = 0) {
    this.asking.abort();
    const asking = (this.asking = new AbortController());
    const { page } = this;
    const { texts, settings, current } = page;
    const { text, target } = current;
    if (!text.trim()) return this.settle(null, "");
    if ([...text].length > settings.charLimit) return this.settle(null, texts.tooLong(settings.charLimit));
    this.fade(true);
    const asked = { q: text, source: this.from, target, alternatives: this.alternatives, details: true, ...this.named() };
    try {
      await pause(wait, asking.signal);
      this.parts.told.textContent = texts.working;
      this.hint(asked, asking);
      const found = await patiently(
        () => post("translate", asked, asking.signal),
        asking.signal,
        (seconds) => (this.parts.told.textContent = page.texts.trying(seconds)),
      );
      if (asking !== this.asking) return;
      this.settle({ ...found, asked }, found.translatedText === text ? page.texts.unchanged : page.texts.done);
    } catch (fault) {
      if (fault.name === "AbortError" || asking !== this.asking) return;
      this.settle(null, fault.status ? page.texts.refused(fault.message) : page.texts.unreachable);
    }
  }

  // A text that seems to be in the target's language already; of short ones there is no telling.
  async hint({ q, source, target }, asking) {
    const { page, parts } = this;
    parts.hint.textContent = "";
    if (source === "auto" || source === target || !q.trim()) return;
    try {
      const [found] = await post("detect", { q }, asking.signal);
      if (asking !== this.asking || found.language !== target || found.confidence < CONFIDENT) return;
      parts.hint.textContent = page.texts.looksLike(languageName(target, page.language));
    } catch {
      // then there is no hint
    }
  }

  // What is shown is of an earlier text.
  fade(stale) {
    for (const one of this.root.querySelectorAll(".output, .came, .others")) {
      one.classList.toggle("stale", stale);
      one.setAttribute("aria-busy", String(stale));
    }
    this.parts.copy.disabled = stale || !this.answer;
  }

  settle(answer, said) {
    if (!answer) this.parts.hint.textContent = "";
    const { current } = this.page;
    this.answer = answer;
    current.translated = answer?.asked.q ?? "";
    current.translation = answer?.translatedText ?? "";
    current.sentences = answer?.details?.sentences ?? [];
    if (this.from === "auto" && answer) {
      current.source = answer.detectedLanguage.language;
      this.showChoices();
    }
    this.showAnswer(true);
    this.parts.told.textContent = said;
  }

  // ---- the answer

  showAnswer(fresh) {
    const { texts, language } = this.page;
    const { parts, answer } = this;
    this.kept = null;
    parts.word.textContent = answer?.details?.words.length ? texts.hintWords : "";
    this.fade(false);
    parts.output.classList.toggle("empty", !answer);
    parts.detected.textContent =
      answer?.detectedLanguage && this.from === "auto"
        ? texts.detected(`${languageName(answer.detectedLanguage.language, language)}, ${Math.round(answer.detectedLanguage.confidence)}%`)
        : "";
    this.root.querySelector(".came").hidden = !answer?.details?.alignment?.length;
    this.root.querySelector(".legend").hidden = !answer?.details?.words.some(({ chance }) => chance !== null);
    this.showOthers();
    if (fresh) parts.read.textContent = answer?.translatedText ?? "";
    if (!answer) {
      parts.output.replaceChildren(texts.nothing);
      parts.mirror.replaceChildren();
      return;
    }
    this.showWords();
  }

  showWords() {
    const { texts } = this.page;
    const { sourceWords, words } = this.answer.details;
    const listeners = (side) => ({
      onPoint: (n) => this.point(side, n),
      onPress: (n) => this.keep(side, n),
      onLeave: () => this.point(...(this.kept ?? [side, null])),
    });
    const { output, mirror } = this.parts;
    const ofTarget = (n) => {
      const { text, chance, sources } = words[n];
      const level = levelOf(chance);
      const from = quoted(sources.map((one) => sourceWords[one]));
      return {
        "data-level": level,
        "data-chance": chance,
        "aria-label": texts.wordLabel(text, level && texts[level], level && perCent(chance), from),
      };
    };
    const ofSource = (n) => ({ "aria-label": texts.sourceLabel(sourceWords[n], quoted(this.cameOf(n))) });
    fillWithWords(output, this.answer.translatedText, words.map((one) => one.text), ofTarget, listeners("target"));
    fillWithWords(mirror, this.answer.asked.q, sourceWords, ofSource, listeners("source"));
  }

  // The words of the translation that came from a source word.
  cameOf(n) {
    return this.answer.details.words.filter(({ sources }) => sources.includes(n)).map(({ text }) => text);
  }

  point(side, n) {
    const { texts } = this.page;
    if (!this.answer) return;
    const { words, sourceWords } = this.answer.details;
    const mark = (holder, chosen) => {
      for (const span of holder.querySelectorAll(".word"))
        span.classList.toggle("marked", chosen.includes(Number(span.dataset.word)));
    };
    const none = n === null;
    const own = none ? [] : [n];
    const others = none
      ? []
      : side === "target"
        ? words[n].sources
        : words.flatMap(({ sources }, place) => (sources.includes(n) ? [place] : []));
    mark(this.parts.output, side === "target" ? own : others);
    mark(this.parts.mirror, side === "target" ? others : own);
    const { word } = this.parts;
    if (none) word.textContent = texts.hintWords;
    else if (side === "source") word.textContent = texts.toldSource(sourceWords[n], quoted(this.cameOf(n)));
    else {
      const { text, chance, sources } = words[n];
      const level = levelOf(chance);
      const sure = level && `${texts[level]}, ${perCent(chance)}`;
      word.textContent = texts.toldWord(text, sure, quoted(sources.map((one) => sourceWords[one])));
    }
  }

  // A word that is pressed stays marked until it is pressed again.
  keep(side, n) {
    const same = this.kept && this.kept[0] === side && this.kept[1] === n;
    this.kept = same || n === null ? null : [side, n];
    this.point(side, this.kept ? n : null);
  }

  showOthers() {
    const { texts } = this.page;
    const { answer, parts } = this;
    const found = answer?.alternatives ?? [];
    parts.noOthers.hidden = !(answer && answer.asked.alternatives && !found.length);
    parts.others.replaceChildren(
      ...found.map((text) =>
        element(
          "li",
          {},
          element("span", {}, text),
          element(
            "button",
            { type: "button", lang: this.page.language, "aria-label": `${texts.copy}: ${text}`, onclick: () => this.copy(text) },
            texts.copy,
          ),
        ),
      ),
    );
  }

  async copy(text = this.answer.translatedText) {
    const { texts } = this.page;
    try {
      await navigator.clipboard.writeText(text);
      this.parts.told.textContent = texts.copied;
    } catch {
      this.parts.told.textContent = texts.notCopied; // not https, not localhost, or not allowed
    }
  }
}

function quoted(words) {
  return words.map((word) => `“${word}”`).join(", ");
}
