// Subwords (5.1): a SentencePiece model, BPE or unigram, with byte fallback. It gives the ids that SentencePiece does.
//
// Like text/subwords.py, `normalizeText` normalizes and SentencePiece does not.

import { WORD_START } from "../assets/token_text.js";

const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g; // Python's str.split()
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const PIECE_TYPES = { NORMAL: 1, UNKNOWN: 2, CONTROL: 3, USER_DEFINED: 4, UNUSED: 5, BYTE: 6 };
const MODEL_TYPES = { 1: "unigram", 2: "bpe", 3: "word", 4: "char" };
const UNKNOWN_PENALTY = 10; // of a character without a piece, below the worst score
const USER_SYMBOL_MALUS = 0.1;
const UNKNOWN_SURFACE = " \u2047 ";

export const [UNK_ID, BOS_ID, EOS_ID] = [0, 1, 2];

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder("utf-8", { ignoreBOM: true });

// NFC with single spaces and none at the ends. U+2581 becomes an underscore.
export function normalizeText(text) {
  const valid = text.replace(LONE_SURROGATE, "\ufffd").replaceAll(WORD_START, "_");
  return stripSpaces(valid.normalize("NFC").replace(SPACES, " "));
}

function stripSpaces(text) {
  return text.replace(/^ | $/g, "");
}

// ---- the model file: a protobuf message

const FIELDS = {
  model: { pieces: 1, trainer: 2, normalizer: 3 },
  piece: { text: 1, score: 2, type: 3 },
  trainer: { modelType: 3, byteFallback: 35 },
  normalizer: { charsmap: 2, addDummyPrefix: 3, removeExtraSpaces: 4 },
};

// [field, value] pairs; a value is bytes, a number of four bytes, or a varint.
function* readFields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let position = 0;
  const readVarint = () => {
    let [value, factor] = [0, 1];
    for (;;) {
      const byte = bytes[position++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
      factor *= 128;
    }
  };
  while (position < bytes.length) {
    const tag = readVarint();
    const [field, wireType] = [Math.floor(tag / 8), tag & 7];
    if (wireType === 0) yield [field, readVarint()];
    else if (wireType === 1) position += 8;
    else if (wireType === 2) {
      const length = readVarint();
      yield [field, bytes.subarray(position, position + length)];
      position += length;
    } else if (wireType === 5) {
      yield [field, view.getFloat32(position, true)];
      position += 4;
    } else throw new Error("not a SentencePiece model");
  }
}

function readMessage(bytes, names) {
  const fields = new Map(readFields(bytes));
  return Object.fromEntries(Object.entries(names).map(([name, number]) => [name, fields.get(number)]));
}

export class Subwords {
  constructor(bytes) {
    const entries = [];
    let [trainer, normalizer] = [new Uint8Array(), new Uint8Array()];
    for (const [field, value] of readFields(bytes)) {
      if (field === FIELDS.model.pieces) entries.push(readMessage(value, FIELDS.piece));
      else if (field === FIELDS.model.trainer) trainer = value;
      else if (field === FIELDS.model.normalizer) normalizer = value;
    }
    this.pieces = entries.map(({ text }) => utf8Decoder.decode(text));
    this.scores = Float32Array.from(entries, ({ score }) => score ?? 0);
    this.types = Uint8Array.from(entries, ({ type }) => type ?? PIECE_TYPES.NORMAL);
    const { modelType = 1, byteFallback = 0 } = readMessage(trainer, FIELDS.trainer);
    this.algorithm = MODEL_TYPES[modelType];
    this.hasByteFallback = Boolean(byteFallback);
    const rules = readMessage(normalizer, FIELDS.normalizer);
    this.usesCompatibilityForms = Boolean(rules.charsmap?.length); // NFKC, of models trained elsewhere
    this.addsPrefix = rules.addDummyPrefix !== 0;
    this.buildIndex();
  }

  buildIndex() {
    this.ids = new Map(); // of the pieces that text is split into
    this.byteIds = new Map();
    let [minScore, maxScore] = [Infinity, -Infinity];
    const userSymbols = [];
    this.pieces.forEach((piece, id) => {
      const type = this.types[id];
      if (type === PIECE_TYPES.BYTE) this.byteIds.set(parseInt(piece.slice(3, 5), 16), id);
      if (type === PIECE_TYPES.USER_DEFINED) userSymbols.push(piece);
      if (type === PIECE_TYPES.NORMAL) {
        minScore = Math.min(minScore, this.scores[id]);
        maxScore = Math.max(maxScore, this.scores[id]);
      }
      if ([PIECE_TYPES.NORMAL, PIECE_TYPES.USER_DEFINED, PIECE_TYPES.UNUSED].includes(type) && !this.ids.has(piece))
        this.ids.set(piece, id);
    });
    this.maxPieceLength = Math.max(0, ...[...this.ids.keys()].map((piece) => [...piece].length));
    this.maxScore = maxScore;
    this.unknownScore = minScore - UNKNOWN_PENALTY;
    this.userSymbols = userSymbols.sort((a, b) => b.length - a.length);
  }

  get size() {
    return this.pieces.length;
  }

  // The characters that are not spelled in bytes.
  get knownCharacters() {
    this.characters ??= new Set([...this.ids.keys()].filter((piece) => !/^\u27e6[0-7t=/]\u27e7$/.test(piece)).join(""));
    return this.characters;
  }

  // The ids of a text, without begin and end.
  encode(text) {
    let normalized = normalizeText(text);
    if (this.usesCompatibilityForms) normalized = stripSpaces(normalized.normalize("NFKC").replace(SPACES, " "));
    if (!normalized) return [];
    const escaped = (this.addsPrefix ? WORD_START : "") + normalized.replaceAll(" ", WORD_START);
    return this.toIds(this.algorithm === "bpe" ? this.splitBpe(escaped) : this.splitUnigram([...escaped]));
  }

  // Unknown characters are spelled in bytes, or runs of them are one unknown token.
  toIds(parts) {
    const ids = [];
    let wasUnknown = false;
    for (const part of parts) {
      const id = this.ids.get(part);
      if (id !== undefined && this.types[id] !== PIECE_TYPES.UNUSED) ids.push(id);
      else if (this.hasByteFallback) ids.push(...[...utf8Encoder.encode(part)].map((byte) => this.byteIds.get(byte)));
      else if (!wasUnknown) ids.push(UNK_ID);
      wasUnknown = id === undefined;
    }
    return ids;
  }

  // The best path by the sum of the scores, in float32 as SentencePiece adds them.
  splitUnigram(characters) {
    const n = characters.length;
    const best = new Float32Array(n + 1);
    const starts = new Int32Array(n + 1).fill(-1);
    const offer = (start, end, score) => {
      const total = Math.fround(best[start] + score);
      if (starts[end] < 0 || total > best[end]) [best[end], starts[end]] = [total, start];
    };
    for (let start = 0; start < n; start++) {
      let piece = "";
      let hasSingle = false;
      for (let end = start + 1; end <= Math.min(n, start + this.maxPieceLength); end++) {
        piece += characters[end - 1];
        const id = this.ids.get(piece);
        if (id === undefined || this.types[id] === PIECE_TYPES.UNUSED) continue;
        hasSingle ||= end === start + 1;
        const isUser = this.types[id] === PIECE_TYPES.USER_DEFINED;
        const length = isUser ? utf8Encoder.encode(piece).length : 0;
        offer(start, end, isUser ? Math.fround(length * this.maxScore - USER_SYMBOL_MALUS) : this.scores[id]);
      }
      if (!hasSingle) offer(start, start + 1, this.unknownScore);
    }
    const parts = [];
    for (let end = n; end > 0; end = starts[end]) parts.unshift(characters.slice(starts[end], end).join(""));
    return parts;
  }

  // Merges the pair with the best score, the leftmost first, until there is none.
  splitBpe(text) {
    const symbols = this.splitSymbols(text);
    const queue = new PairQueue();
    const offer = (left, right) => {
      if (left < 0 || right < 0 || symbols[left].isFixed || symbols[right].isFixed) return;
      const merged = symbols[left].text + symbols[right].text;
      const id = this.ids.get(merged);
      if (id !== undefined) queue.push({ left, right, merged, score: this.scores[id] });
    };
    for (let index = 1; index < symbols.length; index++) offer(index - 1, index);
    for (let pair = queue.pop(); pair; pair = queue.pop()) {
      const [left, right] = [symbols[pair.left], symbols[pair.right]];
      if (!left.text || !right.text || left.text + right.text !== pair.merged || left.next !== pair.right) continue;
      [left.text, right.text, left.next] = [pair.merged, "", right.next];
      if (left.next >= 0) symbols[left.next].previous = pair.left;
      offer(left.previous, pair.left);
      offer(pair.left, left.next);
    }
    return symbols.filter((symbol) => symbol.text).flatMap((symbol) => this.splitUnused(symbol.text));
  }

  // User symbols whole, everything else by character.
  splitSymbols(text) {
    const symbols = [];
    for (let start = 0; start < text.length; ) {
      const symbol = this.userSymbols.find((own) => text.startsWith(own, start));
      const part = symbol ?? String.fromCodePoint(text.codePointAt(start));
      const index = symbols.length;
      symbols.push({ text: part, isFixed: Boolean(symbol), previous: index - 1, next: index + 1 });
      start += part.length;
    }
    if (symbols.length) symbols.at(-1).next = -1;
    return symbols;
  }

  // A piece that is unused in splitting is a step towards others; alone it is taken apart again.
  splitUnused(text) {
    const id = this.ids.get(text);
    const characters = [...text];
    if (id === undefined || this.types[id] !== PIECE_TYPES.UNUSED || characters.length < 2) return [text];
    let best = null;
    for (let middle = 1; middle < characters.length; middle++) {
      const halves = [characters.slice(0, middle).join(""), characters.slice(middle).join("")];
      const ids = halves.map((half) => this.ids.get(half));
      if (ids.includes(undefined)) continue;
      const score = Math.min(...ids.map((own) => this.scores[own]));
      if (!best || score > best.score) best = { halves, score };
    }
    return best ? best.halves.flatMap((half) => this.splitUnused(half)) : [text];
  }

  // The text of ids, ignoring begin and end.
  decode(ids) {
    let text = "";
    let bytes = [];
    let isStart = true;
    const flush = () => {
      if (bytes.length) text += utf8Decoder.decode(Uint8Array.from(bytes));
      bytes = [];
    };
    for (const id of ids) {
      const type = this.types[id];
      if (type === PIECE_TYPES.CONTROL) continue;
      if (type === PIECE_TYPES.BYTE) {
        bytes.push(parseInt(this.pieces[id].slice(3, 5), 16));
        isStart = false;
        continue;
      }
      flush();
      let piece = type === PIECE_TYPES.UNKNOWN ? UNKNOWN_SURFACE : this.pieces[id];
      if (isStart && this.addsPrefix && piece.startsWith(WORD_START)) piece = piece.slice(1);
      isStart = false;
      text += piece.replaceAll(WORD_START, " ");
    }
    flush();
    return text;
  }

  listPieces(ids) {
    return ids.map((id) => this.pieces[id]);
  }

  startsWord(id) {
    return this.pieces[id].startsWith(WORD_START);
  }

  isByte(id) {
    return this.types[id] === PIECE_TYPES.BYTE;
  }

  // Whether it is a byte after the first one of a character.
  continuesCharacter(id) {
    return this.isByte(id) && (parseInt(this.pieces[id].slice(3, 5), 16) & 0xc0) === 0x80;
  }
}

// Pairs by score, then from left to right: a binary heap.
class PairQueue {
  items = [];

  static isBefore(a, b) {
    return a.score > b.score || (a.score === b.score && a.left < b.left);
  }

  push(item) {
    const { items } = this;
    let index = items.push(item) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!PairQueue.isBefore(items[index], items[parent])) break;
      [items[index], items[parent]] = [items[parent], items[index]];
      index = parent;
    }
  }

  pop() {
    const { items } = this;
    const [top] = items;
    const last = items.pop();
    if (!items.length) return top;
    items[0] = last;
    for (let index = 0; ; ) {
      const [left, right] = [2 * index + 1, 2 * index + 2];
      let first = index;
      if (left < items.length && PairQueue.isBefore(items[left], items[first])) first = left;
      if (right < items.length && PairQueue.isBefore(items[right], items[first])) first = right;
      if (first === index) return top;
      [items[index], items[first]] = [items[first], items[index]];
      index = first;
    }
  }
}
