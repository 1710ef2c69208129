// How one number of a walk is computed from others, with the numbers of the model. No elements here, only data:
//
//   symbols  the formula of this cell, with its tokens
//   strips   [{label, values}]: vectors that are multiplied number by number
//   terms    [{label, factors, value}]: what is summed up
//   lines    [text]: the rest of the way to the result
//   result   the number
//   missing  true where a vector or matrix is not in the data

import { ACTIVATION_TEXTS } from "./formulas.js";
import { findStep, resolvePanel, stepRows } from "./walk_stations.js";

const decodedParameters = new WeakMap();

export const formatNumber = (value, digits = 3) => {
  const text = Math.abs(value) >= 1000 ? value.toFixed(1) : value.toFixed(digits);
  return text.replace("-", "−");
};
const inBrackets = (value) => (value < 0 ? `(${formatNumber(value)})` : formatNumber(value));

function decodeFloats(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

// The parameters of a step, decoded on first use; null where the data has none.
function getParameters(data, name) {
  const encoded = data.parameters?.[name];
  if (!encoded) return null;
  if (!decodedParameters.has(encoded)) {
    const decode = (text) => (typeof text === "string" ? decodeFloats(text) : (text ?? null));
    const { weight, bias, mean, variance } = encoded;
    const arrays = { weight: decode(weight), bias: decode(bias), mean: decode(mean), variance: decode(variance) };
    decodedParameters.set(encoded, { ...encoded, ...arrays });
  }
  return decodedParameters.get(encoded);
}

// `context` has data, head, labels (readable tokens by side) and texts.
export function calculateCell(name, row, column, context) {
  const step = findStep(context.data, name);
  const value = stepRows(step, context.head)[row]?.[column];
  const [part, kind] = name.split(".");
  const cell = { part, kind, row, column, value, step, name, token: context.labels[step.rows][row] };
  const calculation = CALCULATIONS[kind]?.(cell, context) ?? {};
  return { symbols: "", strips: [], terms: [], lines: [], result: value ?? null, ...calculation };
}

const CALCULATIONS = {
  embedding: calculateEmbedding,
  position: calculatePosition,
  sum: calculateEmbeddingSum,
  input: (cell, { texts }) => ({ symbols: texts.fromBelow }),
  memory: (cell, { texts }) => ({ symbols: texts.fromEncoder }),
  norm: calculateNorm,
  query: calculateProjection,
  key: calculateProjection,
  value: calculateProjection,
  scores: calculateScore,
  weights: calculateWeight,
  heads: calculateHead,
  concat: calculateConcat,
  project: calculateProjection,
  add: calculateResidual,
  hidden: calculateProjection,
  output: calculateProjection,
};

// A vector of a step, or null where not all of its numbers are in the data.
function getVector(data, name, row, head) {
  const step = findStep(data, name);
  const vector = step && stepRows(step, head)[row];
  return vector && vector.length === step.shape.at(-1) ? vector : null;
}

function multiply(labels, first, second) {
  const products = first.map((value, n) => value * second[n]);
  return {
    strips: [
      { label: labels[0], values: [...first] },
      { label: labels[1], values: [...second] },
      { label: labels[2], values: products },
    ],
    terms: products.map((value, n) => ({ label: String(n + 1), factors: [first[n], second[n]], value })),
    total: products.reduce((sum, product) => sum + product, 0),
  };
}

function calculateEmbedding({ column, value, step, row, token }, { data }) {
  const root = Math.sqrt(data.d_model);
  return {
    symbols: `E[${data.ids[step.rows][row]}]${subscript(column)} · √d_model   (${token})`,
    lines: [`${formatNumber(value / root, 4)} · √${data.d_model} = ${formatNumber(value / root, 4)} · ${formatNumber(root)} = ${formatNumber(value)}`],
  };
}

function calculatePosition({ row, column, value }, { data }) {
  if (data.positions === "learned") return { symbols: `PE[${row}]${subscript(column)}` };
  const even = column - (column % 2);
  const wave = column % 2 ? "cos" : "sin";
  const divisor = 10000 ** (even / data.d_model);
  return {
    symbols: `${wave}(pos / 10000^(${even}/${data.d_model})),  pos = ${row}`,
    lines: [`${wave}(${row} / ${formatNumber(divisor)}) = ${wave}(${formatNumber(row / divisor)}) = ${formatNumber(value)}`],
  };
}

function calculateEmbeddingSum({ row, column }, { data, texts }) {
  const [first, second] = ["embedding.embedding", "embedding.position"].map((name) => findStep(data, name).values[row][column]);
  return addNumbers([texts.panels.embedding, first], [texts.panels.position, second]);
}

function addNumbers([firstName, first], [secondName, second]) {
  return {
    symbols: `${firstName} + ${secondName}`,
    lines: [`${formatNumber(first)} + ${inBrackets(second)} = ${formatNumber(first + second)}`],
  };
}

function calculateResidual({ part, row, column }, { data, texts }) {
  const [input, output] = ["x", "out"].map((kind) => resolvePanel(`${kind}:${part}`, data));
  const numbers = [input, output].map((name) => findStep(data, name).values[row][column]);
  return addNumbers(["x", numbers[0]], [texts.sublayerOutput, numbers[1]]);
}

// The input of a norm: the residual sum, or with pre-norm the input of the sublayer.
function normInput(part, data) {
  if (part === "output") return resolvePanel("out:stack", data);
  if (data.norm === "pre") return resolvePanel(`x:${part}`, data);
  return data.residuals ? `${part}.add` : resolvePanel(`out:${part}`, data);
}

function calculateNorm({ part, name, row, column }, { data, head, texts }) {
  const input = getVector(data, normInput(part, data), row, head);
  const parameters = getParameters(data, name);
  const isBatch = data.normalization === "batch";
  const symbols = "γ · (x − μ) / √(σ² + ε) + β";
  if (!input || !parameters) return { symbols, missing: true };
  const size = input.length;
  const mean = isBatch ? parameters.mean[column] : input.reduce((sum, value) => sum + value, 0) / size;
  const variance = isBatch
    ? parameters.variance[column]
    : input.reduce((sum, value) => sum + (value - mean) ** 2, 0) / size;
  const deviation = Math.sqrt(variance + parameters.epsilon);
  const [scale, shift] = [parameters.weight[column], parameters.bias[column]];
  const x = input[column];
  const result = (scale * (x - mean)) / deviation + shift;
  return {
    symbols,
    strips: isBatch ? [] : [{ label: "x", values: input }],
    lines: [
      `${isBatch ? texts.batchMean : texts.meanOf(size)}: μ = ${formatNumber(mean)},  √(σ² + ε) = ${formatNumber(deviation)}`,
      `γ = ${formatNumber(scale)},  β = ${formatNumber(shift)}`,
      `${formatNumber(scale)} · (${formatNumber(x)} − ${inBrackets(mean)}) / ${formatNumber(deviation)} + ${inBrackets(shift)} = ${formatNumber(result)}`,
    ],
  };
}

// What each linear map reads, and the name of its matrix.
const MATRICES = {
  query: ["y", "W_Q"], key: ["y", "W_K"], value: ["y", "W_V"], project: ["concat", "W_O"],
  hidden: ["y", "W_1"], output: ["hidden", "W_2"],
}; // prettier-ignore

function calculateProjection({ part, kind, name, row, column, value, token, step }, { data, head }) {
  const [source, matrix] = MATRICES[kind];
  const readsMemory = part === "cross" && (kind === "key" || kind === "value");
  const inputName = readsMemory
    ? "cross.memory"
    : source === "y" ? resolvePanel(`y:${part}`, data) : `${part}.${source}`; // prettier-ignore
  const parameters = getParameters(data, name);
  const input = getVector(data, inputName, row, head);
  const offset = step.axes.includes("H") ? head * step.shape.at(-1) : 0;
  const inner = `${source === "y" ? (readsMemory ? "m" : "x") : source}(${token}) · ${matrix}${subscript(offset + column)} + b`;
  const symbols = kind === "hidden" ? ACTIVATION_TEXTS[data.activation](inner) : inner;
  if (!input || !parameters) return { symbols, missing: true };
  const [, size] = parameters.shape;
  const weights = parameters.weight.subarray((offset + column) * size, (offset + column + 1) * size);
  const { total, ...product } = multiply([source === "y" ? "x" : source, matrix, "×"], input, weights);
  const bias = parameters.bias ? parameters.bias[offset + column] : 0;
  const lines = [`Σ = ${formatNumber(total)},  b = ${formatNumber(bias)}`];
  lines.push(`${formatNumber(total)} + ${inBrackets(bias)} = ${formatNumber(total + bias)}`);
  if (kind === "hidden")
    lines.push(`${ACTIVATION_TEXTS[data.activation](formatNumber(total + bias))} = ${formatNumber(value)}`);
  return { symbols, ...product, lines };
}

function calculateScore({ part, row, column, value, step, token, name }, { data, head, labels, texts }) {
  const key = labels[step.columns][column];
  if (value === null || value === undefined)
    return { symbols: texts.maskedCell(token, key), lines: ["S = −∞  →  exp(−∞) = 0"], masked: true };
  const [query, other] = ["query", "key"].map((kind, n) => getVector(data, `${part}.${kind}`, n ? column : row, head));
  const root = Math.sqrt(data.d_k);
  const scaled = data.attention === "scaled-dot";
  if (data.attention === "additive") return calculateAdditive(name, query, other, token, key, { data, head });
  const symbols = `q(${token}) · k(${key})${scaled ? ` / √${data.d_k}` : ""}`;
  if (!query || !other) return { symbols, missing: true };
  const { total, ...product } = multiply(["q", "k", "q×k"], query, other);
  const lines = [`Σ = ${formatNumber(total)}`];
  if (scaled) lines.push(`${formatNumber(total)} / ${formatNumber(root)} = ${formatNumber(total / root)}`);
  return { symbols, ...product, lines };
}

function calculateAdditive(name, query, other, token, key, { data, head }) {
  const symbols = `e · tanh(q(${token}) + k(${key}))`;
  const parameters = getParameters(data, name);
  if (!query || !other || !parameters) return { symbols, missing: true };
  const energy = parameters.weight.subarray(head * data.d_k, (head + 1) * data.d_k);
  const hidden = query.map((value, n) => Math.tanh(value + other[n]));
  const { total, ...product } = multiply(["tanh", "e", "×"], hidden, energy);
  return { symbols, ...product, lines: [`Σ = ${formatNumber(total)}`] };
}

function calculateWeight({ part, row, column, step, token }, { data, head, labels, texts }) {
  const scores = stepRows(findStep(data, `${part}.scores`), head)[row];
  const max = Math.max(...scores.filter((score) => score !== null));
  const exponentials = scores.map((score) => (score === null ? 0 : Math.exp(score - max)));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  const keys = labels[step.columns];
  return {
    symbols: `softmax(S(${token}))  →  ${keys[column]}`,
    softmax: keys.map((label, n) => ({ label, score: scores[n], exponential: exponentials[n], weight: exponentials[n] / total })),
    chosen: column,
    lines: [
      texts.softmaxLine(inBrackets(max)),
      scores[column] === null
        ? `0 / ${formatNumber(total)} = 0`
        : `${formatNumber(exponentials[column])} / ${formatNumber(total)} = ${formatNumber(exponentials[column] / total)}`,
    ],
  };
}

function calculateHead({ part, row, column, token }, { data, head, labels, texts }) {
  if (data.cut_heads?.[part].includes(head)) return { symbols: texts.cutHead };
  const weights = stepRows(findStep(data, `${part}.weights`), head)[row];
  const step = findStep(data, `${part}.value`);
  const values = stepRows(step, head).map((vector) => vector[column]);
  const terms = weights.map((weight, n) => ({
    label: labels[step.rows][n],
    factors: [weight, values[n]],
    value: weight * values[n],
  }));
  const total = terms.reduce((sum, { value }) => sum + value, 0);
  return { symbols: `Σ A(${token}, ·) · V${subscript(column)}`, terms, lines: [`Σ = ${formatNumber(total)}`] };
}

function calculateConcat({ column }, { data, texts }) {
  const head = Math.floor(column / data.d_v);
  return { symbols: texts.concatOf(head + 1, (column % data.d_v) + 1) };
}

// ---- the end: logits and probabilities of a candidate

export function calculateLogit(row, index, { data, head, texts, pieces }) {
  const { ids, logits } = data.output;
  const id = ids[row][index];
  const parameters = getParameters(data, "output.logits");
  const input = getVector(data, resolvePanel("final", data), row, head);
  const symbols = `x · W[${id}]   (${pieces[row][index]})`;
  const base = { symbols, strips: [], terms: [], lines: [], result: logits[row][index] };
  if (!parameters || !input) return { ...base, missing: true };
  const position = parameters.ids.indexOf(id);
  const size = parameters.shape[1];
  const { total, ...product } = multiply(["x", texts.rowOf(id), "×"], input, parameters.weight.subarray(position * size, (position + 1) * size));
  const bias = parameters.bias ? parameters.bias[position] : 0;
  const lines = [`Σ = ${formatNumber(total)}`];
  if (bias) lines.push(`${formatNumber(total)} + ${inBrackets(bias)} = ${formatNumber(total + bias)}`);
  return { ...base, ...product, lines };
}

export function calculateProbability(row, index, { data, texts, pieces }) {
  const { logits, log_sum_exp } = data.output;
  const [logit, normalizer] = [logits[row][index], log_sum_exp[row]];
  const probability = Math.exp(logit - normalizer);
  return {
    symbols: `p(${pieces[row][index]}) = exp(${texts.logit}) / Σ exp(${texts.logit})`,
    strips: [],
    terms: [],
    lines: [
      `ln Σ exp = ${formatNumber(normalizer)}  (${texts.overVocabulary})`,
      `exp(${formatNumber(logit)} − ${inBrackets(normalizer)}) = ${formatNumber(probability, 4)}`,
    ],
    result: probability,
  };
}

function subscript(index) {
  return `[${index + 1}]`;
}

// Which rows and columns of other panels a cell is computed from: {step name: {row, column}}.
export function findOperands(name, row, column, data) {
  const [part, kind] = name.split(".");
  const own = (other) => `${part}.${other}`;
  const resolve = (panel) => resolvePanel(panel, data);
  const readsMemory = part === "cross" && (kind === "key" || kind === "value");
  const operands = {
    sum: () => ({ "embedding.embedding": { row, column }, "embedding.position": { row, column } }),
    query: () => ({ [resolve(`y:${part}`)]: { row } }),
    key: () => ({ [readsMemory ? "cross.memory" : resolve(`y:${part}`)]: { row } }),
    value: () => ({ [readsMemory ? "cross.memory" : resolve(`y:${part}`)]: { row } }),
    scores: () => ({ [own("query")]: { row }, [own("key")]: { row: column } }),
    weights: () => ({ [own("scores")]: { row } }),
    heads: () => ({ [own("weights")]: { row }, [own("value")]: { column } }),
    project: () => ({ [own("concat")]: { row } }),
    hidden: () => ({ [resolve("y:feed_forward")]: { row } }),
    output: () => ({ "feed_forward.hidden": { row } }),
    add: () => ({ [resolve(`x:${part}`)]: { row, column }, [resolve(`out:${part}`)]: { row, column } }),
    norm: () => ({ [normInput(part, data)]: { row } }),
  };
  return operands[kind]?.() ?? {};
}
