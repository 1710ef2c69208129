// Runs the engine of the live page for the tests: one request per line of JSON on stdin, one answer per line on stdout.

import { createInterface } from "node:readline";
import { measureMap } from "../../src/manyheads/look/assets/map_measures.js";
import { readableTokens } from "../../src/manyheads/look/assets/token_text.js";
import { KnownWords } from "../../src/manyheads/look/live/known_words.js";
import { headKey } from "../../src/manyheads/look/live/transformer.js";
import { LiveTranslator } from "../../src/manyheads/look/live/translator.js";
import { finishSearch, searchFor } from "../../src/manyheads/look/live/search.js";
import { Subwords } from "../../src/manyheads/look/live/subwords.js";
import { BOS_ID } from "../../src/manyheads/look/live/subwords.js";
import { Transformer } from "../../src/manyheads/look/live/transformer.js";
import { createWalkSource } from "../../src/manyheads/look/live/walk_source.js";
import { decodeBase64, readTensors } from "../../src/manyheads/look/live/tensors.js";

let [model, translator, subwords] = [null, null, null];
const asList = (values) => Array.from(values, (value) => (Number.isFinite(value) ? value : null));
const readCuts = (cuts) => new Set((cuts ?? []).map((cut) => headKey(...cut)));

const METHODS = {
  load: ({ data }) => void (translator = new LiveTranslator(data)),
  loadModel: ({ config, tensors, weights, useKernel = true }) => {
    model = new Transformer(config, readTensors(tensors, decodeBase64(weights)), { useKernel });
    return model.usesKernel;
  },
  loadSubwords: ({ content }) => void (subwords = new Subwords(decodeBase64(content))),
  encode: ({ texts }) => texts.map((text) => subwords.encode(text)),
  decode: ({ sentences }) => sentences.map((ids) => subwords.decode(ids)),
  findUnknown: ({ data, text }) => new KnownWords(subwords, data).findUnknown(text),
  forward: ({ source, target, cuts }) => {
    const maps = { encoder: [], decoder: [], cross: [] };
    const options = { cuts: readCuts(cuts), maps };
    const logits = model.decode(target, model.encode(source, options), options);
    for (const layers of Object.values(maps)) for (const map of layers) map.weights = asList(map.weights);
    return { logits: asList(logits), maps };
  },
  step: ({ source, target }) => {
    const state = model.start(model.encode(source));
    return target.map((token) => asList(model.step([token], state)));
  },
  search: ({ source, options }) => finishSearch(searchFor(model, model.encode(source), options)),
  translate: ({ texts, options }) =>
    texts.map((text) => translator.translate(text, { ...options, cuts: readCuts(options.cuts) }).text),
  attention: ({ text, target }) => {
    const [source, ids] = [[...translator.source.encode(text), 2], translator.target.encode(target)];
    const { maps, scores } = translator.attention(source, ids);
    for (const layers of Object.values(maps)) for (const map of layers) map.weights = asList(map.weights);
    return { maps, scores, begin: BOS_ID };
  },
  measure: ({ maps, attention }) => maps.map((map) => measureMap(map, attention)),
  readTokens: ({ sentences }) => {
    const names = { beginToken: "[start]", endToken: "[end]", unknownToken: "[?]" };
    return sentences.map((tokens) => readableTokens(tokens, { ...names, byteToken: (byte) => `[byte ${byte}]` }));
  },
  walk: ({ text, target, stack, layer, cuts }) => {
    const ids = { sourceIds: [...translator.source.encode(text), 2], ids: translator.target.encode(target) };
    const source = createWalkSource(translator, { source: text, text: target, ...ids }, { cuts: readCuts(cuts) });
    const { parameters, ...data } = source.load(stack, layer);
    const asLists = (own) => Object.entries(own).map(([name, value]) => [name, value?.buffer ? asList(value) : value]);
    const read = Object.entries(parameters).map(([name, own]) => [name, Object.fromEntries(asLists(own))]);
    return { ...data, parameters: Object.fromEntries(read) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { method, ...request } = JSON.parse(line);
  let answer;
  try {
    answer = { result: METHODS[method](request) ?? null };
  } catch (error) {
    answer = { error: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
