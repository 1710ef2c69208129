// Maps of one sentence, decoded when they are first asked for. What the data hold is told in look/maps.py.

const ONE = 65535;
const KEPT = 1024; // decoded maps that are held

export class Maps {
  constructor(data) {
    this.data = data;
    this.decoded = new Map();
  }

  // Names of who looks (side 0) and who is looked at (side 1).
  names(kind, side, words) {
    const name = this.data.sides[kind][side];
    return (words ? this.data.words : this.data.tokens)[name];
  }

  language(kind, side) {
    const name = this.data.sides[kind][side];
    return this.data.languages[name === "source" ? "source" : "target"];
  }

  // One head: {rows, columns, weights}, the weights row after row.
  map({ moment, kind, layer, head, words }) {
    const key = [moment, kind, layer, head, words].join();
    if (!this.decoded.has(key)) {
      if (this.decoded.size >= KEPT) this.decoded.clear();
      const map = this.decode(moment, kind, layer, head);
      this.decoded.set(key, words ? this.merge(map, kind) : map);
    }
    return this.decoded.get(key);
  }

  decode(moment, kind, layer, head) {
    const bytes = atob(this.data.moments[moment].maps[kind][layer][head]);
    const weights = new Float32Array(bytes.length / 2);
    for (let n = 0; n < weights.length; n++) {
      weights[n] = (bytes.charCodeAt(2 * n) + 256 * bytes.charCodeAt(2 * n + 1)) / ONE;
    }
    const [rows, columns] = this.data.sides[kind].map((side) => this.data.tokens[side].length);
    return { rows, columns, weights };
  }

  // What a word's tokens look at on average, at all tokens of another word together.
  merge(map, kind) {
    const [rowWord, columnWord] = this.data.sides[kind].map((side) => this.data.word_of[side]);
    const [rows, columns] = this.data.sides[kind].map((side) => this.data.words[side].length);
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

  // The five measures of a head, by name; null where there is none.
  measures({ moment, kind, layer, head, words }) {
    const values = this.data.moments[moment].measures[kind][words ? "words" : "tokens"][layer][head];
    return Object.fromEntries(this.data.measures.map((name, n) => [name, values[n]]));
  }

  // Every head, as [layer, head], by a measure from small to large, or by position.
  order(state) {
    const all = [];
    for (let layer = 0; layer < this.data.layers; layer++) {
      for (let head = 0; head < this.data.heads; head++) all.push([layer, head]);
    }
    if (state.order === "position") return state.falling ? all.reverse() : all;
    const value = ([layer, head]) => this.measures({ ...state, layer, head })[state.order];
    const sign = state.falling ? -1 : 1;
    return all.sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      return one === null || other === null ? (one === null) - (other === null) : sign * (one - other);
    });
  }

  // Which row of a decoder's map belongs to a step; the encoder has none.
  rowOfStep({ kind, step, words }) {
    if (kind === "encoder" || step === null) return null;
    return words ? this.data.word_of[this.data.sides[kind][0]][step] : step;
  }
}
