// The walk of a sentence with the numbers of the engine in the page: what look/forward_walk.py describes, layer by
// layer, for showWalk() of walk_explorer.js. Matrices are converted from int8 when a calculation first reads them.

import { findTop, logSumExp } from "./search.js";
import { BOS_ID, EOS_ID } from "./subwords.js";
import { headKey } from "./transformer.js";

const NUM_WALK_CANDIDATES = 5;
const WALK_CONFIG = ["heads", "d_model", "d_ff", "positions", "attention", "norm", "normalization", "activation", "residuals"];

// `sentence` is a result of LiveTranslator.translateSentence(); `load` returns the data of a layer.
export function createWalkSource(translator, { source, text, sourceIds, ids }, { cuts = new Set() } = {}) {
  const { model, languages, config, numLayers, colors, code } = translator;
  const targetIds = [...ids, EOS_ID];
  const [sourcePieces, targetPieces] = [translator.source.listPieces(sourceIds), translator.target.listPieces(targetIds)];
  const shared = {
    ...{ source, target: text, languages, colors },
    tokens: {
      source: sourcePieces,
      decoder_input: [translator.target.pieces[BOS_ID], ...targetPieces.slice(0, -1)],
      target: targetPieces,
    },
    ids: { source: sourceIds, decoder_input: [BOS_ID, ...ids], target: targetIds },
    stacks: { encoder: numLayers.encoder, decoder: numLayers.decoder },
    ...Object.fromEntries(WALK_CONFIG.map((key) => [key, config[key]])),
    d_k: model.encoder[0].selfAttention.widthK,
    d_v: model.encoder[0].selfAttention.widthV,
  };
  let recorded = null;
  const layers = new Map();
  const build = (stack, layer) => {
    recorded ??= translator.walk(sourceIds, ids, { cuts });
    const isLast = stack === "decoder" && layer === numLayers.decoder - 1;
    const output = isLast ? readOutput(translator, recorded, targetIds) : null;
    return {
      ...shared,
      ...{ stack, layer, layers: numLayers[stack], code: code[stack], output },
      steps: listSteps(recorded, stack, layer),
      cut_heads: listCutHeads(stack, layer, config.heads, cuts),
      parameters: listParameters(model, stack, layer, output),
    };
  };
  const load = (stack, layer) => {
    const key = `${stack}.${layer}`;
    if (!layers.has(key)) layers.set(key, build(stack, layer));
    return layers.get(key);
  };
  return { load };
}

// The steps of a layer as nested arrays. The input of a sublayer is the output of the one before, but for the first.
function listSteps(recorded, stack, layer) {
  const steps = [];
  const add = ({ part, name, axes, shape, rows, columns, values }) =>
    steps.push({ part, name, axes: [...axes], shape, rows, columns, values: nest(values, shape) });
  for (const step of recorded) {
    const isOwn = step.stack === stack && (step.layer === layer || step.part === "embedding");
    if (!isOwn || (step.name === "input" && (step.part !== "self" || layer === 0))) continue;
    if (step.part === "cross" && step.name === "query") add({ ...findMemory(recorded), part: "cross", name: "memory", axes: "SD" });
    add(step);
  }
  return steps;
}

// The output of the encoder.
function findMemory(recorded) {
  return recorded.findLast(({ stack }) => stack === "encoder");
}

// Rows of a flat array; masked scores are null.
function nest(values, shape) {
  if (shape.length === 1) return Array.from(values, (value) => (value === -Infinity ? null : value));
  const [count, ...rest] = shape;
  const size = values.length / count;
  return Array.from({ length: count }, (_, n) => nest(values.subarray(n * size, (n + 1) * size), rest));
}

function listCutHeads(stack, layer, heads, cuts) {
  const names = stack === "encoder" ? { self: "encoder" } : { self: "decoder", cross: "cross" };
  const list = (attention) => Array.from({ length: heads }, (_, head) => head).filter((head) => cuts.has(headKey(attention, layer, head)));
  return Object.fromEntries(Object.entries(names).map(([part, attention]) => [part, list(attention)]));
}

// The likeliest tokens of each step and the one that is written, with their logits.
function readOutput(translator, recorded, targetIds) {
  const { values, shape } = recorded.findLast(({ name }) => name === "logits");
  const output = { ids: [], pieces: [], logits: [], log_sum_exp: [] };
  targetIds.forEach((target, step) => {
    const logits = values.subarray(step * shape[1], (step + 1) * shape[1]);
    const ids = [...findTop(logits, NUM_WALK_CANDIDATES), target];
    output.ids.push(ids);
    output.pieces.push(translator.target.listPieces(ids));
    output.logits.push(ids.map((id) => logits[id]));
    output.log_sum_exp.push(logSumExp(logits));
  });
  return output;
}

// Learned numbers by step, as look/walk_parameters.py names them.
function listParameters(model, stack, index, output) {
  const layer = model[stack][index];
  const readers = {
    "feed_forward.hidden": () => readMatrix(layer.first),
    "feed_forward.output": () => readMatrix(layer.second),
    "feed_forward.norm": () => layer.norms.feed_forward.parameters,
  };
  for (const [part, attention] of Object.entries({ self: layer.selfAttention, cross: layer.crossAttention })) {
    if (!attention) continue;
    for (const name of ["query", "key", "value"]) readers[`${part}.${name}`] = () => readMatrix(attention[name]);
    readers[`${part}.project`] = () => readMatrix(attention.output);
    readers[`${part}.norm`] = () => layer.norms[part].parameters;
    if (attention.energy) readers[`${part}.scores`] = () => ({ weight: attention.energy });
  }
  const finalNorm = stack === "encoder" ? model.encoderNorm : model.decoderNorm;
  if (finalNorm && index === model[stack].length - 1) readers["output.norm"] = () => finalNorm.parameters;
  if (output) readers["output.logits"] = () => readRows(model.output, [...new Set(output.ids.flat())]);
  return readOnFirstUse(readers);
}

function readOnFirstUse(readers) {
  const properties = Object.entries(readers).map(([name, read]) => {
    let value = null;
    return [name, { enumerable: true, get: () => (value ??= read()) }];
  });
  return Object.defineProperties({}, Object.fromEntries(properties));
}

function readMatrix(matrix) {
  const ids = Array.from({ length: matrix.numOut }, (_, row) => row);
  return readRows(matrix, ids);
}

// Rows of an int8 matrix as float32.
function readRows({ rows, scales, bias, numIn }, ids) {
  const weight = new Float32Array(ids.length * numIn);
  ids.forEach((id, n) => {
    for (let k = 0; k < numIn; k++) weight[n * numIn + k] = rows[id * numIn + k] * scales[id];
  });
  return { ids, shape: [ids.length, numIn], weight, bias: bias && Float32Array.from(ids, (id) => bias[id]) };
}
