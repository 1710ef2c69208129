// The arithmetic of the widgets, as the paper has it. tests/website compares it with Python.

export function dot(a, b) {
  return a.reduce((sum, value, index) => sum + value * b[index], 0);
}

// Minus infinity is a hidden key; a row without any key has weights of zero.
export function softmax(scores) {
  const max = Math.max(...scores);
  if (max === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - max));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

// How well a query and a key fit: dot, scaled (by sqrt(d_k)) or additive with an energy vector of ones.
export function compatibility(query, key, type) {
  if (type === "additive") return query.reduce((sum, value, index) => sum + Math.tanh(value + key[index]), 0);
  return type === "scaled" ? dot(query, key) / Math.sqrt(query.length) : dot(query, key);
}

// Attention of one query (1): scores, weights and the weighted sum of the values.
export function attendOnce(query, keys, values, type) {
  const scores = keys.map((key) => compatibility(query, key, type));
  const weights = softmax(scores);
  const output = values[0].map((_, index) => values.reduce((sum, value, key) => sum + weights[key] * value[index], 0));
  return { scores, weights, output };
}

export function entropyBits(weights) {
  return weights.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log2(weight) : 0), 0);
}

// The mean weight on the position before. The first row has none before it.
export function previousShare(map) {
  return map.slice(1).reduce((sum, row, index) => sum + (row[index] ?? 0), 0) / Math.max(1, map.length - 1);
}

// The Frobenius norm of d weights / d scores: diag(w) - w w^T.
export function softmaxSlope(weights) {
  let sum = 0;
  for (const [i, a] of weights.entries())
    for (const [j, b] of weights.entries()) sum += ((i === j ? a : 0) - a * b) ** 2;
  return Math.sqrt(sum);
}

// Numbers of mean zero and variance one from a seed (mulberry32, Box-Muller).
export function normalNumbers(count, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

// ---- sequence models and layers (Table 1)

// Layers, or steps of a recurrence, until the last of n positions sees the first.
export function pathLengths(n, kernel) {
  let dilated = 0;
  for (let seen = 1; seen < n; seen *= kernel) dilated++;
  return { recurrent: n, contiguous: Math.ceil((n - 1) / (kernel - 1)), dilated, attention: 1 };
}

export function layerCosts(n, d, kernel, window) {
  return { attention: n * n * d, recurrent: n * d * d, convolution: kernel * n * d * d, restricted: window * n * d };
}

// ---- masks (3.2.3), in the precision of most models

export function softmaxSingle(scores) {
  const max = Math.max(...scores);
  if (max === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.fround(Math.exp(Math.fround(score - max))));
  const total = Math.fround(powers.reduce((sum, power) => sum + power, 0));
  return powers.map((power) => Math.fround(power / total));
}

// Minus infinity before the softmax, as the paper has it.
export function maskBefore(scores, mask) {
  return softmaxSingle(scores.map((score, key) => (mask[key] ? score : -Infinity)));
}

// Zero after the softmax, then divide by what is left.
export function maskAfter(scores, mask) {
  const kept = softmaxSingle(scores).map((weight, key) => (mask[key] ? weight : 0));
  const total = kept.reduce((sum, weight) => sum + weight, 0);
  return kept.map((weight) => weight / total);
}

// ---- positions (3.5)

export function positionalEncoding(position, width) {
  return Array.from({ length: width }, (_, index) => {
    const angle = position / 10000 ** ((index - (index % 2)) / width);
    return index % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

export function wavelength(index, width) {
  return 2 * Math.PI * 10000 ** ((index - (index % 2)) / width);
}

// ---- norms (3.1)

// Each group of numbers gets mean 0 and variance 1; one group is layer normalization.
export function normalizeGroups(values, numGroups, epsilon = 1e-5) {
  const size = values.length / numGroups;
  return values.map((value, index) => {
    const first = index - (index % size);
    const group = values.slice(first, first + size);
    const mean = group.reduce((sum, x) => sum + x, 0) / size;
    const variance = group.reduce((sum, x) => sum + (x - mean) ** 2, 0) / size;
    return (value - mean) / Math.sqrt(variance + epsilon);
  });
}

// ---- training (5.3, 5.4)

export function learningRate(step, width, warmup) {
  return width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);
}

// The target of the right word and of each other word; e over all words, or over the others only.
export function smoothTargets(size, smoothing, over) {
  const other = over === "all" ? smoothing / size : smoothing / (size - 1);
  return { right: 1 - (size - 1) * other, other };
}

// Cross-entropy with smoothed targets where the right word has p, and the others share the rest.
export function smoothedLoss(p, size, smoothing, over) {
  const { right, other } = smoothTargets(size, smoothing, over);
  return -right * Math.log(p) - (size - 1) * other * Math.log((1 - p) / (size - 1));
}

// ---- parameters (Table 3): three embeddings that are one matrix, every linear map with a bias, no final norm

export function countParameters({ layers, width, hidden, heads, headWidth, vocabulary }) {
  const inner = heads * headWidth;
  const attention = 4 * width * inner + 3 * inner + width;
  const feedForward = 2 * width * hidden + hidden + width;
  const norm = 2 * width;
  const encoder = attention + feedForward + 2 * norm;
  const decoder = 2 * attention + feedForward + 3 * norm;
  const embeddings = vocabulary * width;
  return { embeddings, encoder: layers * encoder, decoder: layers * decoder, total: embeddings + layers * (encoder + decoder) };
}
