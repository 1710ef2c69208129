// The attention maps of one sentence, decoded on first use. look/attention_data.py describes the data.

import { readableTokens, readableWord } from "./token_text.js";

const WEIGHT_SCALE = 65535;
const MAX_CACHED_MAPS = 1024;

export class AttentionMaps {
  constructor(data) {
    this.data = data;
    this.cache = new Map();
    this.names = new Map();
  }

  // The texts of a language, for the names of the begin and end tokens.
  setTexts(texts) {
    this.texts = texts;
    this.names.clear();
  }

  // Labels of the queries (side 0) or the keys (side 1).
  labels(attention, side, words) {
    const name = this.data.sides[attention][side];
    const key = `${name},${words}`;
    if (!this.names.has(key)) {
      const { texts, data } = this;
      this.names.set(key, words ? data.words[name].map((word) => readableWord(word, texts)) : readableTokens(data.tokens[name], texts));
    }
    return this.names.get(key);
  }

  language(attention, side) {
    const name = this.data.sides[attention][side];
    return this.data.languages[name === "source" ? "source" : "target"];
  }

  // One head: {rows, columns, weights}, with the weights in row-major order.
  map({ snapshot, attention, layer, head, words }) {
    const key = [snapshot, attention, layer, head, words].join();
    if (!this.cache.has(key)) {
      if (this.cache.size >= MAX_CACHED_MAPS) this.cache.clear();
      const map = this.decode(snapshot, attention, layer, head);
      this.cache.set(key, words ? this.mergeWords(map, attention) : map);
    }
    return this.cache.get(key);
  }

  decode(snapshot, attention, layer, head) {
    const bytes = atob(this.data.snapshots[snapshot].maps[attention][layer][head]);
    const weights = new Float32Array(bytes.length / 2);
    for (let n = 0; n < weights.length; n++) {
      weights[n] = (bytes.charCodeAt(2 * n) + 256 * bytes.charCodeAt(2 * n + 1)) / WEIGHT_SCALE;
    }
    const [rows, columns] = this.data.sides[attention].map((side) => this.data.tokens[side].length);
    return { rows, columns, weights };
  }

  // Average over the tokens of a query word, sum over the tokens of a key word.
  mergeWords(map, attention) {
    const [rowWord, columnWord] = this.data.sides[attention].map((side) => this.data.word_ids[side]);
    const [rows, columns] = this.data.sides[attention].map((side) => this.data.words[side].length);
    const sizes = new Array(rows).fill(0);
    rowWord.forEach((word) => sizes[word]++);
    const weights = new Float32Array(rows * columns);
    for (let row = 0; row < map.rows; row++) {
      const word = rowWord[row];
      for (let column = 0; column < map.columns; column++) {
        weights[word * columns + columnWord[column]] += map.weights[row * map.columns + column] / sizes[word];
      }
    }
    return { rows, columns, weights };
  }

  // The five measures of a head, by name; null where a measure is undefined.
  measures({ snapshot, attention, layer, head, words }) {
    const values = this.data.snapshots[snapshot].measures[attention][words ? "words" : "tokens"][layer][head];
    return Object.fromEntries(this.data.measures.map((name, n) => [name, values[n]]));
  }

  // All heads as [layer, head], sorted by position or by a measure; undefined measures come last.
  sortedHeads(state) {
    const heads = [];
    for (let layer = 0; layer < this.data.layers[state.attention]; layer++) {
      for (let head = 0; head < this.data.heads; head++) heads.push([layer, head]);
    }
    if (state.sort === "position") return state.descending ? heads.reverse() : heads;
    const value = ([layer, head]) => this.measures({ ...state, layer, head })[state.sort];
    const sign = state.descending ? -1 : 1;
    return heads.sort((first, second) => {
      const [a, b] = [value(first), value(second)];
      return a === null || b === null ? (a === null) - (b === null) : sign * (a - b);
    });
  }

  // The row of a decoding step, or null for the encoder.
  rowOfStep({ attention, step, words }) {
    if (attention === "encoder" || step === null) return null;
    return words ? this.data.word_ids[this.data.sides[attention][0]][step] : step;
  }
}
