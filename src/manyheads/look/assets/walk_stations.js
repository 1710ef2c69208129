// The stations of a walk: the blocks of Figure 1 in the order of the computation, and the phases of each.
//
// A phase names the matrices that it shows, by part and name of a step of look/forward_walk.py; `x:self` is the input
// of a sublayer, `y:self` that of its first map, and `out:self` the result of its last.

const SUBLAYERS = { encoder: ["self", "feed_forward"], decoder: ["self", "cross", "feed_forward"] };

// `config` is the data of any layer. A station: {stack, layer, block, label, phases}; `label` names its block in the texts.
export function listStations(config) {
  const stations = [];
  const add = (stack, layer, block, phases) =>
    phases.length && stations.push({ stack, layer, block, label: labelBlock(stack, block, phases), phases });
  for (const stack of ["encoder", "decoder"]) {
    add(stack, 0, "embedding", [embeddingPhase(config)]);
    for (let layer = 0; layer < config.stacks[stack]; layer++) {
      for (const part of SUBLAYERS[stack]) {
        add(stack, layer, part, part === "feed_forward" ? [feedForwardPhase(config)] : attentionPhases(part, config));
        add(stack, layer, `${part}_add`, addPhases(part, config));
      }
    }
    const last = config.stacks[stack] - 1;
    if (config.norm === "pre") add(stack, last, `${stack}_norm`, [finalNormPhase()]);
  }
  const last = config.stacks.decoder - 1;
  add("decoder", last, "linear", [{ name: "logits", panels: ["final"], main: "final", ends: "logits" }]);
  add("decoder", last, "softmax", [{ name: "probabilities", panels: [], main: null, ends: "probabilities" }]);
  return stations;
}

// Whether a station is a block of a layer, which every layer of its stack has.
export const isInLayer = ({ block }) => SUBLAYERS.decoder.includes(block.replace(/_add$/, ""));

// The index and the phase of the attention weights of a head, {attention, layer, head}, with the head.
export function findWeights(stations, { attention, layer, head }) {
  const stack = attention === "encoder" ? "encoder" : "decoder";
  const block = attention === "cross" ? "cross" : "self";
  const index = stations.findIndex((station) => station.stack === stack && station.layer === layer && station.block === block);
  return { index, phase: stations[index].phases.findIndex(({ name }) => name === "softmax"), head };
}

// What a block does in this model: that of an embedding and of what follows a sublayer is its only phase.
function labelBlock(stack, block, [{ name }]) {
  if (block === "self" && stack === "decoder") return "masked";
  return block === "embedding" || block.endsWith("_add") ? name : block;
}

function embeddingPhase({ positions }) {
  if (positions === "none") return { name: "plain_embedding", panels: ["embedding.embedding"], main: "embedding.embedding" };
  const panels = ["embedding.embedding", "embedding.position", "embedding.sum"];
  return { name: "embedding", panels, main: "embedding.sum" };
}

const SCORE_PHASES = { "scaled-dot": "scores", dot: "dot_scores", additive: "additive_scores" };

function attentionPhases(part, { norm, attention }) {
  const step = (name) => `${part}.${name}`;
  const inputs = [...(norm === "pre" ? [`x:${part}`] : []), `y:${part}`, ...(part === "cross" ? ["cross.memory"] : [])];
  const [query, key, value, scores, weights] = ["query", "key", "value", "scores", "weights"].map(step);
  return [
    { name: "projections", panels: [...inputs, query, key, value], main: query },
    { name: SCORE_PHASES[attention], panels: [query, key, scores], main: scores },
    { name: "softmax", panels: [scores, weights], main: weights },
    { name: "mix", panels: [weights, value, step("heads")], main: step("heads") },
    { name: "join", panels: [step("concat"), step("project")], main: step("project") },
  ];
}

function feedForwardPhase({ norm }) {
  const inputs = [...(norm === "pre" ? ["x:feed_forward"] : []), "y:feed_forward"];
  const panels = [...inputs, "feed_forward.hidden", "feed_forward.output"];
  return { name: "feed_forward", panels, main: "feed_forward.hidden" };
}

function addPhases(part, { norm, normalization, residuals }) {
  const isNormed = norm === "post";
  const parts = [...(residuals ? ["add"] : []), ...(isNormed ? [normalization === "batch" ? "batch_norm" : "norm"] : [])];
  if (!parts.length) return [];
  const add = residuals ? [`x:${part}`, `out:${part}`, `${part}.add`] : [`out:${part}`];
  const panels = isNormed ? [...add, `${part}.norm`] : add;
  return [{ name: parts.join("_"), panels, main: panels.at(-1) }];
}

function finalNormPhase() {
  return { name: "final_norm", panels: ["out:stack", "output.norm"], main: "output.norm" };
}

// The name of the step that a panel shows, for the data of its layer.
export function resolvePanel(panel, data) {
  const [kind, part] = panel.split(":");
  const has = (name) => data.steps.some((step) => `${step.part}.${step.name}` === name);
  if (panel === "final") return has("output.norm") ? "output.norm" : sublayerOutput("feed_forward", data);
  if (kind === "out" && part === "stack") return sublayerOutput("feed_forward", data);
  if (kind === "out") return `${part}.${part === "feed_forward" ? "output" : "project"}`;
  if (kind === "x") return sublayerInput(part, data);
  if (kind === "y") return data.norm === "pre" ? `${part}.norm` : sublayerInput(part, data);
  return panel;
}

function sublayerInput(part, data) {
  const parts = SUBLAYERS[data.stack];
  const index = parts.indexOf(part);
  if (index > 0) return sublayerOutput(parts[index - 1], data);
  if (data.layer > 0) return "self.input";
  return data.positions === "none" ? "embedding.embedding" : "embedding.sum";
}

function sublayerOutput(part, data) {
  if (data.norm === "post") return `${part}.norm`;
  return data.residuals ? `${part}.add` : `${part}.${part === "feed_forward" ? "output" : "project"}`;
}

export function findStep(data, name) {
  return data.steps.find((step) => `${step.part}.${step.name}` === name);
}

// The rows of a step as arrays: one head of [T, H, K] and [H, T, S]; [T, D] as it is.
export function stepRows({ axes, values }, head) {
  if (axes[0] === "H") return values[head];
  return axes[1] === "H" ? values.map((row) => row[head]) : values;
}

export const hasHeads = (step) => step.axes.includes("H");
