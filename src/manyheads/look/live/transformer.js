// The Transformer (section 3 of the paper) in plain JavaScript, for inference: the same model as
// src/manyheads/model/ computes, on int8 weights.
//
// Options of every call:
//   cuts    a set of headKey(stack, layer, head): the output of these heads is zero
//   maps    receives the attention maps: {encoder, decoder, cross}, each a list by layer of
//           {heads, rows, columns, weights}, the weights as one array [heads, rows, columns]
//   record  is called as record({stack, layer, part, name, axes, shape, rows, columns, values}) with every intermediate
//           result, by the names of look/forward_walk.py; values are one flat array, masked scores are -Infinity
//
// Shapes: n vectors, D = d_model, H heads, K = d_k, V = d_v, S source tokens, T target tokens.

import { attachKernel } from "./matrix_kernel.js";
import { linear, takeMatrix } from "./tensors.js";

const EPSILON = 1e-5; // of the norms
const MAX_WAVELENGTH = 10000;
const SIDES = { encoder: "source", decoder: "decoder_input" }; // whose tokens the rows of a stack are

export const ATTENTION_TYPES = ["encoder", "decoder", "cross"];

export function headKey(attention, layer, head) {
  return `${attention}.${layer}.${head}`;
}

// ---- functions of vectors

function relu(x) {
  return x > 0 ? x : 0;
}

function swish(x) {
  return x / (1 + Math.exp(-x));
}

function gelu(x) {
  return 0.5 * x * (1 + erf(x / Math.SQRT2));
}

// The error function, with an error below 1.2e-7 (a Chebyshev fit of erfc).
function erf(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const coefficients = [
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
  ];
  const polynomial = coefficients.reduce((sum, coefficient) => sum * t + coefficient, 0);
  const complement = t * Math.exp(-x * x + polynomial);
  return x >= 0 ? 1 - complement : complement - 1;
}

const ACTIVATION_FUNCTIONS = { relu, gelu, swish };

function addVectors(x, y) {
  const sum = new Float32Array(x.length);
  for (let index = 0; index < x.length; index++) sum[index] = x[index] + y[index];
  return sum;
}

class LayerNorm {
  constructor(tensors, name) {
    [this.weight, this.bias] = [tensors[`${name}.weight`], tensors[`${name}.bias`]];
    this.parameters = { weight: this.weight, bias: this.bias, epsilon: EPSILON };
  }

  apply(x, n) {
    const { weight, bias } = this;
    const width = weight.length;
    const out = new Float32Array(n * width);
    for (let start = 0; start < n * width; start += width) {
      let mean = 0;
      for (let k = 0; k < width; k++) mean += x[start + k];
      mean /= width;
      let variance = 0;
      for (let k = 0; k < width; k++) variance += (x[start + k] - mean) ** 2;
      const scale = 1 / Math.sqrt(variance / width + EPSILON);
      for (let k = 0; k < width; k++) out[start + k] = (x[start + k] - mean) * scale * weight[k] + bias[k];
    }
    return out;
  }
}

class BatchNorm {
  constructor(tensors, name) {
    const [weight, bias, mean, variance] = ["weight", "bias", "running_mean", "running_var"].map(
      (part) => tensors[`${name}.${part}`],
    );
    this.parameters = { weight, bias, mean, variance, epsilon: EPSILON };
    this.scale = weight.map((value, k) => value / Math.sqrt(variance[k] + EPSILON));
    this.shift = bias.map((value, k) => value - mean[k] * this.scale[k]);
  }

  apply(x, n) {
    const width = this.scale.length;
    const out = new Float32Array(n * width);
    for (let index = 0; index < out.length; index++)
      out[index] = x[index] * this.scale[index % width] + this.shift[index % width];
    return out;
  }
}

function buildNorm(config, tensors, name) {
  return config.normalization === "batch" ? new BatchNorm(tensors, name) : new LayerNorm(tensors, name);
}

// ---- attention (3.2)

class MultiHeadAttention {
  constructor(config, tensors, name, { attention, layer, causal = false }) {
    this.query = takeMatrix(tensors, `${name}.w_q`);
    this.key = takeMatrix(tensors, `${name}.w_k`);
    this.value = takeMatrix(tensors, `${name}.w_v`);
    this.output = takeMatrix(tensors, `${name}.w_o`);
    this.energy = tensors[`${name}.energy`] ?? null;
    this.heads = config.heads;
    this.widthK = this.query.numOut / config.heads;
    this.widthV = this.value.numOut / config.heads;
    this.scale = config.attention === "scaled-dot" ? 1 / Math.sqrt(this.widthK) : 1;
    this.halfWindow = config.window && attention !== "cross" ? Math.floor(config.window / 2) : Infinity;
    Object.assign(this, { attention, layer, causal });
  }

  // The keys that a query at a position sees.
  visibleRange(position, numKeys) {
    const first = Math.max(0, position - this.halfWindow);
    const last = Math.min(numKeys, this.causal ? position + 1 : numKeys, position + this.halfWindow + 1);
    return [first, last];
  }

  // q . k / sqrt(d_k), or energy . tanh(q + k)
  score(queries, queryStart, keys, keyStart, head) {
    let sum = 0;
    if (this.energy) {
      for (let k = 0; k < this.widthK; k++)
        sum += this.energy[head * this.widthK + k] * Math.tanh(queries[queryStart + k] + keys[keyStart + k]);
      return sum;
    }
    for (let k = 0; k < this.widthK; k++) sum += queries[queryStart + k] * keys[keyStart + k];
    return sum * this.scale;
  }

  // Concat(head_1, ..., head_h) of queries [n, H K], each with a cache of keys and values and its position in it.
  attend(queries, vectors, { cuts, maps, record }) {
    const { heads, widthK, widthV } = this;
    const n = vectors.length;
    const columns = Math.max(...vectors.map(({ cache }) => cache.length));
    const out = new Float32Array(n * heads * widthV);
    const kept = maps || record ? new Float32Array(heads * n * columns) : null;
    const scores = record ? new Float32Array(heads * n * columns).fill(-Infinity) : null;
    const weights = new Float64Array(columns);
    for (let row = 0; row < n; row++) {
      const { cache, position } = vectors[row];
      const [first, last] = this.visibleRange(position, cache.length);
      for (let head = 0; head < heads; head++) {
        let max = -Infinity;
        for (let key = first; key < last; key++) {
          const keyStart = (key * heads + head) * widthK;
          weights[key] = this.score(queries, (row * heads + head) * widthK, cache.keys, keyStart, head);
          if (weights[key] > max) max = weights[key];
        }
        const at = (head * n + row) * columns;
        if (scores) for (let key = first; key < last; key++) scores[at + key] = weights[key];
        let total = 0;
        for (let key = first; key < last; key++) total += weights[key] = Math.exp(weights[key] - max);
        for (let key = first; key < last; key++) weights[key] /= total;
        if (kept) for (let key = first; key < last; key++) kept[at + key] = weights[key];
        if (cuts?.has(headKey(this.attention, this.layer, head))) continue;
        const outStart = (row * heads + head) * widthV;
        for (let key = first; key < last; key++) {
          const weight = weights[key];
          const valueStart = (key * heads + head) * widthV;
          for (let v = 0; v < widthV; v++) out[outStart + v] += weight * cache.values[valueStart + v];
        }
      }
    }
    maps?.[this.attention].push({ heads, rows: n, columns, weights: kept });
    return { out, scores, weights: kept, columns };
  }
}

// Keys and values of the tokens read so far, which grow by doubling.
class KeyValueCache {
  constructor(widthK, widthV, capacity = 16) {
    Object.assign(this, { widthK, widthV, capacity, length: 0 });
    this.keys = new Float32Array(capacity * widthK);
    this.values = new Float32Array(capacity * widthV);
  }

  append(keys, values, row) {
    if (this.length === this.capacity) this.grow();
    this.keys.set(keys.subarray(row * this.widthK, (row + 1) * this.widthK), this.length * this.widthK);
    this.values.set(values.subarray(row * this.widthV, (row + 1) * this.widthV), this.length * this.widthV);
    this.length++;
  }

  grow() {
    this.capacity *= 2;
    for (const name of ["keys", "values"]) {
      const larger = new Float32Array(2 * this[name].length);
      larger.set(this[name]);
      this[name] = larger;
    }
  }

  clone() {
    const copy = new KeyValueCache(this.widthK, this.widthV, this.capacity);
    copy.keys.set(this.keys);
    copy.values.set(this.values);
    copy.length = this.length;
    return copy;
  }
}

// ---- layers (3.1, 3.3)

class Layer {
  constructor(config, tensors, stack, index) {
    const name = `${stack}.${index}`;
    Object.assign(this, { config, stack, index });
    this.selfAttention = new MultiHeadAttention(config, tensors, `${name}.self_attention`, {
      attention: stack,
      layer: index,
      causal: stack === "decoder",
    });
    this.crossAttention =
      stack === "decoder"
        ? new MultiHeadAttention(config, tensors, `${name}.cross_attention`, { attention: "cross", layer: index })
        : null;
    this.first = takeMatrix(tensors, `${name}.feed_forward.w_1`);
    this.second = takeMatrix(tensors, `${name}.feed_forward.w_2`);
    this.activation = ACTIVATION_FUNCTIONS[config.activation];
    this.norms = {
      self: buildNorm(config, tensors, `${name}.self_attention_residual.norm`),
      cross: stack === "decoder" ? buildNorm(config, tensors, `${name}.cross_attention_residual.norm`) : null,
      feed_forward: buildNorm(config, tensors, `${name}.feed_forward_residual.norm`),
    };
  }

  createCache() {
    const { key, value } = this.selfAttention;
    return new KeyValueCache(key.numOut, value.numOut);
  }

  // The keys and values of the encoder's output.
  projectSource(hidden, length) {
    const { key, value } = this.crossAttention;
    return { keys: linear(hidden, length, key), values: linear(hidden, length, value), length };
  }

  // n vectors; `rows` says for each the cache it belongs to, its position, and the source it attends to.
  apply(x, rows, options) {
    const n = rows.length;
    x = this.applyResidual("self", x, n, options, (h) => this.applySelfAttention(h, rows, options));
    if (this.crossAttention)
      x = this.applyResidual("cross", x, n, options, (h) => this.applyCrossAttention(h, rows, options));
    return this.applyResidual("feed_forward", x, n, options, (h) => this.applyFeedForward(h, n, options));
  }

  // LayerNorm(x + Sublayer(x)), or with pre-norm x + Sublayer(LayerNorm(x))
  applyResidual(part, x, n, options, sublayer) {
    const { config } = this;
    const norm = this.norms[part];
    const record = this.recorder(part, n, options);
    const isPreNorm = config.norm === "pre";
    record("input", "TD", x);
    const input = isPreNorm ? record("norm", "TD", norm.apply(x, n)) : x;
    let h = sublayer(input);
    if (config.residuals) h = record("add", "TD", addVectors(x, h));
    return isPreNorm ? h : record("norm", "TD", norm.apply(h, n));
  }

  applySelfAttention(x, rows, options) {
    const { selfAttention: attention } = this;
    const n = rows.length;
    const record = this.recorder("self", n, options);
    const queries = record("query", "THK", linear(x, n, attention.query));
    const keys = record("key", "THK", linear(x, n, attention.key));
    const values = record("value", "THV", linear(x, n, attention.value));
    rows.forEach(({ caches }, row) => caches[this.index].append(keys, values, row));
    const vectors = rows.map(({ caches, position }) => ({ cache: caches[this.index], position }));
    return this.mergeHeads("self", attention, queries, vectors, options);
  }

  applyCrossAttention(x, rows, options) {
    const { crossAttention: attention } = this;
    const n = rows.length;
    const record = this.recorder("cross", n, options);
    const queries = record("query", "THK", linear(x, n, attention.query));
    const vectors = rows.map(({ source }) => ({ cache: source[this.index], position: 0 }));
    if (options.record) {
      const { keys, values, length } = vectors[0].cache;
      record("key", "SHK", keys, [length, attention.heads, attention.widthK]);
      record("value", "SHV", values, [length, attention.heads, attention.widthV]);
    }
    return this.mergeHeads("cross", attention, queries, vectors, options);
  }

  mergeHeads(part, attention, queries, vectors, options) {
    const n = vectors.length;
    const record = this.recorder(part, n, options);
    const { out, scores, weights, columns } = attention.attend(queries, vectors, options);
    if (options.record) {
      const axes = part === "cross" ? "HTS" : "HTT";
      record("scores", axes, scores, [attention.heads, n, columns]);
      record("weights", axes, weights, [attention.heads, n, columns]);
      record("heads", "THV", out, [n, attention.heads, attention.widthV]);
      record("concat", "TC", out);
    }
    return record("project", "TD", linear(out, n, attention.output));
  }

  applyFeedForward(x, n, options) {
    const record = this.recorder("feed_forward", n, options);
    const hidden = linear(x, n, this.first);
    const { activation } = this;
    for (let index = 0; index < hidden.length; index++) hidden[index] = activation(hidden[index]);
    record("hidden", "TF", hidden);
    return record("output", "TD", linear(hidden, n, this.second));
  }

  // A function that passes values on, and reports them if the caller wants them.
  recorder(part, n, { record }) {
    if (!record) return (name, axes, values) => values;
    const { stack, index: layer } = this;
    const { heads } = this.config;
    return (name, axes, values, shape = null) => {
      const own = axes.length === 3 ? [n, heads, values.length / n / heads] : [n, values.length / n];
      const rows = axes.startsWith("S") ? "source" : SIDES[stack];
      const columns = axes === "HTS" ? "source" : axes === "HTT" ? SIDES[stack] : null;
      record({ stack, layer, part, name, axes, shape: shape ?? own, rows, columns, values });
      return values;
    };
  }
}

// ---- the model (3.1, 3.4, 3.5)

export class Transformer {
  constructor(config, tensors, { useKernel = true } = {}) {
    this.config = config;
    this.sourceEmbedding = takeMatrix(tensors, "source_embedding");
    const isTied = config.tie_embeddings === "three-way";
    this.targetEmbedding = isTied ? this.sourceEmbedding : takeMatrix(tensors, "target_embedding");
    const output = config.tie_embeddings === "none" ? takeMatrix(tensors, "output") : this.targetEmbedding;
    this.output = { ...output, bias: tensors["output.bias"] ?? null };
    this.tables = { encoder: tensors["source_positions.table.weight"], decoder: tensors["target_positions.table.weight"] };
    const build = (stack, count) => Array.from({ length: count }, (_, index) => new Layer(config, tensors, stack, index));
    this.encoder = build("encoder", config.encoder_layers);
    this.decoder = build("decoder", config.decoder_layers);
    const isPreNorm = config.norm === "pre";
    this.encoderNorm = isPreNorm ? buildNorm(config, tensors, "encoder_norm") : null;
    this.decoderNorm = isPreNorm ? buildNorm(config, tensors, "decoder_norm") : null;
    this.usesKernel = useKernel && attachKernel(this.listMatrices());
  }

  // Every matrix that vectors are multiplied by.
  listMatrices() {
    const layers = [...this.encoder, ...this.decoder];
    const attentions = layers.flatMap(({ selfAttention, crossAttention }) => [selfAttention, crossAttention]);
    return [
      this.output,
      ...attentions.filter(Boolean).flatMap(({ query, key, value, output }) => [query, key, value, output]),
      ...layers.flatMap(({ first, second }) => [first, second]),
    ];
  }

  get maxPositions() {
    return this.config.positions === "learned" ? this.config.max_positions : Infinity;
  }

  get vocabularySize() {
    return this.output.numOut;
  }

  // The encoder's output for each source token, and its keys and values for each decoder layer.
  encode(ids, options = {}) {
    const length = ids.length;
    const caches = this.encoder.map((layer) => layer.createCache());
    const rows = ids.map((_, position) => ({ caches, position }));
    let x = this.embed("encoder", ids, rows, options);
    for (const layer of this.encoder) x = layer.apply(x, rows, options);
    if (this.encoderNorm) x = this.applyFinalNorm("encoder", this.encoderNorm, x, length, options);
    return { hidden: x, length, source: this.decoder.map((layer) => layer.projectSource(x, length)) };
  }

  // The decoding state before the first token.
  start(memory) {
    return new DecoderState(memory, [this.createHypothesis()]);
  }

  createHypothesis() {
    return { caches: this.decoder.map((layer) => layer.createCache()), length: 0 };
  }

  // Reads one token of each hypothesis; returns the logits of the next. [R, vocabulary]
  step(tokens, state, options = {}) {
    const rows = state.hypotheses.map(({ caches, length }) => ({
      caches,
      position: length,
      source: state.memory.source,
    }));
    for (const hypothesis of state.hypotheses) hypothesis.length++;
    return linear(this.runDecoder(tokens, rows, options), rows.length, this.output);
  }

  // Reads a whole target at once; returns the logits after each token. [T, vocabulary]
  decode(ids, memory, options = {}) {
    const { caches } = this.createHypothesis();
    const rows = ids.map((_, position) => ({ caches, position, source: memory.source }));
    const logits = linear(this.runDecoder(ids, rows, options), rows.length, this.output);
    const { record } = options;
    record?.({
      ...{ stack: "decoder", layer: this.decoder.length - 1, part: "output", name: "logits", axes: "TW" },
      ...{ shape: [ids.length, this.vocabularySize], rows: SIDES.decoder, columns: null, values: logits },
    });
    return logits;
  }

  runDecoder(ids, rows, options) {
    let x = this.embed("decoder", ids, rows, options);
    for (const layer of this.decoder) x = layer.apply(x, rows, options);
    return this.decoderNorm ? this.applyFinalNorm("decoder", this.decoderNorm, x, rows.length, options) : x;
  }

  applyFinalNorm(stack, norm, x, n, { record }) {
    const values = norm.apply(x, n);
    const place = { stack, layer: this[stack].length - 1, part: "output", name: "norm", axes: "TD" };
    record?.({ ...place, shape: [n, values.length / n], rows: SIDES[stack], columns: null, values });
    return values;
  }

  // Embeddings times sqrt(d_model) plus positional encodings (3.4, 3.5)
  embed(stack, ids, rows, { record }) {
    const { rows: matrix, scales, numIn: width } = stack === "encoder" ? this.sourceEmbedding : this.targetEmbedding;
    const scaled = new Float32Array(ids.length * width);
    const positions = new Float32Array(ids.length * width);
    ids.forEach((id, row) => {
      const factor = scales[id] * Math.sqrt(width);
      for (let k = 0; k < width; k++) scaled[row * width + k] = matrix[id * width + k] * factor;
      this.encodePosition(stack, rows[row].position, positions.subarray(row * width, (row + 1) * width));
    });
    const sum = addVectors(scaled, positions);
    if (record) {
      const place = { stack, layer: 0, part: "embedding", axes: "TD", shape: [ids.length, width] };
      const steps = this.config.positions === "none" ? { embedding: scaled } : { embedding: scaled, position: positions, sum };
      for (const [name, values] of Object.entries(steps))
        record({ ...place, name, rows: SIDES[stack], columns: null, values });
    }
    return sum;
  }

  encodePosition(stack, position, out) {
    const width = out.length;
    const table = this.tables[stack];
    if (table) {
      if (position >= this.maxPositions) throw new RangeError(`the model reads at most ${this.maxPositions} tokens`);
      out.set(table.subarray(position * width, (position + 1) * width));
    } else if (this.config.positions === "sinusoid") {
      for (let even = 0; even < width; even += 2) {
        const angle = position / MAX_WAVELENGTH ** (even / width);
        out[even] = Math.sin(angle);
        out[even + 1] = Math.cos(angle);
      }
    }
  }
}

// Hypotheses of one sentence, each with its own cache.
class DecoderState {
  constructor(memory, hypotheses) {
    Object.assign(this, { memory, hypotheses });
  }

  // Each hypothesis continues one of the earlier ones; the first user of a cache keeps it.
  reorder(parents) {
    const used = new Set();
    this.hypotheses = parents.map((parent) => {
      const { caches, length } = this.hypotheses[parent];
      const isFirst = !used.has(parent);
      used.add(parent);
      return { caches: isFirst ? caches : caches.map((cache) => cache.clone()), length };
    });
  }
}
