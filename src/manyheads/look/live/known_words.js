// Words that a model cannot know, because its training sources did not have them, as src/manyheads/confidence finds
// them: by pieces that no source had, and by pairs of pieces. A table of one byte for each bucket recognizes the pairs;
// without it, only words with characters that the vocabulary lacks are unknown.

import { decodeBase64 } from "./tensors.js";

const WORD_PATTERN = /[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}'’-]*/gu;
const HAS_LETTER = /\p{L}/u;
const HASHES = [0x9e3779b97f4a7c15n, 0xc2b2ae3d27d4eb4fn]; // of source_model.py
const MAX_MISSING = 1; // pairs of a word: the table loses a few

export class KnownWords {
  constructor(subwords, { pieces, checks }) {
    this.subwords = subwords;
    this.pieces = decodeBase64(pieces); // [V] whether a piece is known
    this.checks = checks && decodeBase64(checks); // [buckets] 0 where there is no pair
    this.known = new Map(); // by word, of those that were looked up
  }

  // The unknown words of a text: [{start, end, word}].
  findUnknown(text) {
    const words = [...text.matchAll(WORD_PATTERN)].map(({ 0: match, index }) => {
      const word = match.replace(/['’-]+$/, "");
      return { word, start: index, end: index + word.length };
    });
    return words.filter(({ word }) => HAS_LETTER.test(word) && !this.isKnown(word));
  }

  isKnown(word) {
    if (!this.known.has(word)) this.known.set(word, this.lookUp(word));
    return this.known.get(word);
  }

  lookUp(word) {
    const ids = this.subwords.encode(word);
    if (ids.some((id) => !this.pieces[id])) return false;
    if (!this.checks) return true;
    const numMissing = ids.slice(1).filter((id, index) => !this.hasPair(ids[index], id)).length;
    return numMissing <= MAX_MISSING;
  }

  hasPair(previous, current) {
    const key = BigInt(previous * this.pieces.length + current);
    return HASHES.some((multiplier) => {
      const [bucket, check] = hashKey(key, multiplier, this.checks.length);
      return this.checks[bucket] === check;
    });
  }
}

// The bucket of a key, and the byte from 1 to 255 that recognizes it, in arithmetic of 64 bits.
function hashKey(key, multiplier, numBuckets) {
  let mixed = BigInt.asUintN(64, (key ^ (key >> 29n)) * multiplier);
  mixed ^= mixed >> 32n;
  mixed = BigInt.asUintN(64, mixed * multiplier);
  return [Number((mixed >> 32n) & BigInt(numBuckets - 1)), Math.max(1, Number(mixed >> 56n))];
}
