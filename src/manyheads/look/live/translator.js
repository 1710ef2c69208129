// The translator in the page: text in, translations with their attention out. No network, no dependency.
//
//   const translator = new LiveTranslator(data.models[0]);            as look/live_page.py writes it
//   translator.translate("I go home.").text                           all sentences of a text
//   const sentence = translator.translateSentence("I go home.", { beam: 4 });
//   sentence.text, sentence.tokens, sentence.scores
//   translator.attention(sentence.sourceIds, sentence.ids).maps.cross[layer]    {heads, rows, columns, weights}
//   translator.walk(sentence.sourceIds, sentence.ids)                 every intermediate result, step by step
//   translator.translate(text, { cuts: new Set([headKey("cross", 0, 3)]) })     without a head
//   translator.score(sourceIds, ids, { cuts })                        log p of each token, by forced decoding
//
// Options: beam (1 is greedy), alpha, maxExtraLength, minLength, temperature (samples), seed, prefix (text) or
// prefixIds, cuts (heads whose output is zero). By default those that the model was saved with.

import { KnownWords } from "./known_words.js";
import { ATTENTION_TYPES, Transformer } from "./transformer.js";
import { findTop, finishSearch, finishSearchInSteps, logSumExp, searchFor } from "./search.js";
import { cleanOutput, prepareSentence, splitText } from "./sentences.js";
import { BOS_ID, EOS_ID, Subwords } from "./subwords.js";
import { decodeBase64, readTensors } from "./tensors.js";

const NUM_CANDIDATES = 5;

export class SentenceTooLongError extends RangeError {
  constructor(numTokens, maxTokens) {
    super(`a sentence of ${numTokens} tokens, but the model reads at most ${maxTokens}`);
    Object.assign(this, { numTokens, maxTokens });
  }
}

export class LiveTranslator {
  constructor({ name, languages, config, decoding, tensors, weights, subwords, max_length: maxLength, ...others }) {
    Object.assign(this, { name, languages, config, maxLength, colors: others.colors, code: others.code });
    this.decoding = {
      beam: decoding.beam,
      alpha: decoding.alpha,
      maxExtraLength: decoding.max_extra_length,
      minLength: decoding.min_length,
      noRepeatNgram: decoding.no_repeat_ngram,
    };
    this.model = new Transformer(config, readTensors(tensors, decodeBase64(weights)));
    this.source = new Subwords(decodeBase64(subwords.source));
    this.target = subwords.target ? new Subwords(decodeBase64(subwords.target)) : this.source;
    this.knownWords = others.known_words ? new KnownWords(this.source, others.known_words) : null;
  }

  get numWeights() {
    const { sourceEmbedding, targetEmbedding } = this.model;
    const all = new Set([sourceEmbedding, targetEmbedding, ...this.model.listMatrices()].map(({ rows }) => rows));
    return [...all].reduce((sum, rows) => sum + rows.length, 0);
  }

  // The heads of each attention type: {encoder: layers, decoder: layers, cross: layers}.
  get numLayers() {
    const { encoder_layers: encoder, decoder_layers: decoder } = this.config;
    return { encoder, decoder, cross: decoder };
  }

  // ---- whole texts

  translate(text, options = {}) {
    return this.join(text, (sentence, own) => this.translateSentence(sentence, own), options);
  }

  // Sentences and what is between them: [{text, isTranslated}].
  split(text) {
    return splitText(text, (sentence) => this.source.encode(sentence).length < this.maxLength);
  }

  // Words of a text that the model does not know: [{start, end, word}]. A text in capitals is read as if it had none.
  findUnknownWords(text) {
    const unknown = this.knownWords?.findUnknown(text) ?? [];
    return unknown.filter(({ word }) => {
      const isUpper = word === word.toUpperCase() && word !== word.toLowerCase();
      return !(isUpper && this.knownWords.isKnown(word.toLowerCase()));
    });
  }

  join(text, translate, options) {
    const segments = this.split(text);
    const sentences = [];
    for (const segment of segments.filter(({ isTranslated }) => isTranslated)) {
      const prefix = sentences.length ? { prefix: "", prefixIds: null } : {}; // it begins the first sentence
      sentences.push(translate(segment.text, { ...options, ...prefix }));
    }
    const outputs = sentences.map((sentence) => sentence.text);
    const parts = segments.map((segment) => (segment.isTranslated ? outputs.shift() : segment.text));
    return { text: parts.join(""), segments, sentences };
  }

  // ---- one sentence

  translateSentence(text, options = {}) {
    const { search, finish } = this.begin(text, options);
    return finish(finishSearch(search));
  }

  // The same in small steps, so that a page stays responsive.
  async translateSentenceInSteps(text, options = {}, signal = null) {
    const { search, finish } = this.begin(text, options);
    return finish(await finishSearchInSteps(search, { signal }));
  }

  begin(text, options) {
    const settings = { ...this.decoding, ...options };
    const { encoded, isUpper } = prepareSentence(text, this.source, this.languages.source);
    const sourceIds = [...this.source.encode(encoded), EOS_ID];
    const prefix = settings.prefixIds ?? this.target.encode(settings.prefix ?? "");
    const longest = Math.max(sourceIds.length - 1 + settings.maxExtraLength, settings.minLength) + prefix.length;
    const maxLength = Math.min(longest, this.model.maxPositions - 1);
    const memory = this.model.encode(this.checkLength(sourceIds), { cuts: settings.cuts });
    const search = searchFor(this.model, memory, { ...settings, prefix, maxLength });
    const finish = (hypotheses) => {
      const { tokens: ids, scores, score } = hypotheses[0] ?? { tokens: [], scores: [], score: -Infinity };
      return {
        source: text,
        text: cleanOutput(this.target.decode(ids), text, isUpper),
        ...{ isUpper, sourceIds, ids, scores, score, prefixLength: prefix.length },
        sourceTokens: this.source.listPieces(sourceIds),
        tokens: this.target.listPieces(ids),
        alternatives: hypotheses.slice(1).map((own) => this.target.decode(own.tokens)),
      };
    };
    return { search, finish };
  }

  checkLength(ids) {
    const { maxPositions } = this.model;
    if (ids.length > maxPositions) throw new SentenceTooLongError(ids.length, maxPositions);
    return ids;
  }

  // The maps of a sentence and its translation, the logits, log p of each token and of the end, the likeliest tokens.
  attention(sourceIds, ids, { cuts = null, candidates = NUM_CANDIDATES } = {}) {
    const maps = Object.fromEntries(ATTENTION_TYPES.map((name) => [name, []]));
    const memory = this.model.encode(sourceIds, { cuts, maps });
    const logits = this.model.decode([BOS_ID, ...ids], memory, { cuts, maps });
    return { maps, logits, ...this.readSteps(logits, [...ids, EOS_ID], candidates) };
  }

  // log p of each token and of the end.
  score(sourceIds, ids, { cuts = null } = {}) {
    const memory = this.model.encode(sourceIds, { cuts });
    return this.readSteps(this.model.decode([BOS_ID, ...ids], memory, { cuts }), [...ids, EOS_ID], 0).scores;
  }

  readSteps(logits, written, count) {
    const size = this.model.vocabularySize;
    const [scores, candidates] = [[], []];
    written.forEach((id, step) => {
      const own = logits.subarray(step * size, (step + 1) * size);
      const logTotal = logSumExp(own);
      scores.push(own[id] - logTotal);
      if (count) candidates.push(findTop(own, count).map((token) => ({ id: token, logP: own[token] - logTotal })));
    });
    return count ? { scores, candidates } : { scores };
  }

  // Every intermediate result of both stacks: [{stack, layer, part, name, axes, shape, values}] in order.
  walk(sourceIds, ids, { cuts = null } = {}) {
    const steps = [];
    const record = (step) => steps.push(step);
    const memory = this.model.encode(sourceIds, { cuts, record });
    this.model.decode([BOS_ID, ...ids], memory, { cuts, record });
    return steps;
  }
}

// One head of a layer's maps: {rows, columns, weights}.
export function takeHead({ rows, columns, weights }, head) {
  const size = rows * columns;
  return { rows, columns, weights: weights.subarray(head * size, (head + 1) * size) };
}
