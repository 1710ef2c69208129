// What a head does, in one word, from the measures of look/measures.py and its map. A role describes a pattern of
// positions in this sentence; it does not say what the head means.

import { AttentionMaps } from "./attention_maps.js";

const CLEAR_SHARE = 0.5; // of the weight, for "most of it"
const SHARP_ENTROPY = 0.4; // of that of uniform weights
const BROAD_ENTROPY = 0.8;
const MIN_DISTINCT = 0.6; // of the queries of an alignment look at different keys
const MAX_SEARCHED_WEIGHTS = 2e6; // beyond it the measures alone choose the first head
const tellingHeads = new WeakMap(); // by data, then by attention type

// One of resting, previous, own, diagonal, gathered, focused, broad and mixed.
export function headRole({ entropy, diagonal, previous, edge }, map, attention) {
  if (edge >= CLEAR_SHARE && map.columns > 2) return "resting";
  if ((previous ?? 0) >= CLEAR_SHARE) return "previous";
  if (diagonal >= CLEAR_SHARE) return attention === "cross" ? "diagonal" : "own";
  if (map.rows > 2 && Math.max(...columnMeans(map)) >= CLEAR_SHARE) return "gathered";
  const share = relativeEntropy(entropy, attention, map.columns);
  const isAligned = attention === "cross" && countStrongest(map) >= MIN_DISTINCT * Math.min(map.rows, map.columns);
  if (share <= SHARP_ENTROPY) return isAligned ? "aligned" : "focused";
  return share >= BROAD_ENTROPY ? "broad" : "mixed";
}

// 0 where all weight is on one key, 1 where it is uniform. The decoder's queries see half of the keys on average.
function relativeEntropy(entropy, attention, numKeys) {
  const visible = attention === "decoder" ? (numKeys + 1) / 2 : numKeys;
  return entropy / Math.max(Math.log2(Math.max(visible, 1)), 1e-9);
}

function columnMeans({ rows, columns, weights }) {
  const means = new Float64Array(columns);
  weights.forEach((weight, n) => (means[n % columns] += weight / rows));
  return means;
}

// How many keys are the strongest of a query.
function countStrongest({ rows, columns, weights }) {
  const strongest = Array.from({ length: rows }, (_, row) => {
    const own = weights.slice(row * columns, (row + 1) * columns);
    return own.indexOf(own.reduce((largest, weight) => Math.max(largest, weight), 0));
  });
  return new Set(strongest).size;
}

// How clearly each query points at a key of its own: the mean of the largest excess over what a key gets from all.
// A head that rests on one key, whichever it is, gets 0.
export function measureContrast(map) {
  const means = columnMeans(map);
  let total = 0;
  for (let row = 0; row < map.rows; row++) {
    let largest = 0;
    for (let column = 0; column < map.columns; column++)
      largest = Math.max(largest, map.weights[row * map.columns + column] - means[column]);
    total += largest;
  }
  return total / map.rows;
}

// The sharpest head of the latest snapshot, between words: [layer, head].
export function findTellingHead(data, attention) {
  if (!tellingHeads.has(data)) tellingHeads.set(data, {});
  const known = tellingHeads.get(data);
  known[attention] ??= searchTellingHead(data, attention);
  return known[attention];
}

function searchTellingHead(data, attention) {
  const maps = new AttentionMaps(data);
  const snapshot = data.snapshots.length - 1;
  const [queries, keys] = data.sides[attention].map((side) => data.tokens[side].length);
  const isLarge = data.layers[attention] * data.heads * queries * keys > MAX_SEARCHED_WEIGHTS;
  let best = [data.layers[attention] - 1, 0, -Infinity];
  for (let layer = 0; layer < data.layers[attention]; layer++) {
    for (let head = 0; head < data.heads; head++) {
      const state = { snapshot, attention, layer, head, words: true };
      const { entropy, edge } = maps.measures(state);
      const score = isLarge ? (1 - relativeEntropy(entropy, attention, keys)) * (1 - edge) : measureContrast(maps.map(state));
      if (score > best[2]) best = [layer, head, score];
    }
  }
  return best.slice(0, 2);
}
