// The formulas of the paper for the steps of a walkthrough.

export const ACTIVATION_TEXTS = { relu: (x) => `max(0, ${x})`, gelu: (x) => `gelu(${x})`, swish: (x) => `swish(${x})` };
const SINUSOIDS = "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))";

const squareRoot = (number) => Math.sqrt(number).toFixed(3);

export function formula({ name, part }, data) {
  const { d_model, d_k, heads, positions, attention, normalization, activation } = data;
  const scores = {
    "scaled-dot": `Q Kᵀ / √d_k,  √d_k = ${squareRoot(d_k)}`,
    dot: "Q Kᵀ",
    additive: "e · tanh(Q + K)",
  };
  const norm = normalization === "layer" ? "LayerNorm" : "BatchNorm";
  const memory = part === "cross" ? "m" : "x";
  const projection = (letter, x) => `${letter} = ${x} W_${letter} + b_${letter},  h = ${heads}`;
  const inner = ACTIVATION_TEXTS[activation]("x W_1 + b_1");
  return {
    embedding: `x = E[id] · √d_model,  √d_model = ${squareRoot(d_model)}`,
    position: positions === "learned" ? "PE[pos], learned" : SINUSOIDS,
    sum: "x = E[id] · √d_model + PE(pos)",
    norm: `${norm}(x) = γ (x − μ) / √(σ² + ε) + β`,
    query: projection("Q", "x"),
    key: projection("K", memory),
    value: projection("V", memory),
    scores: `S = ${scores[attention]}`,
    weights: "A = softmax(S) = exp(S) / Σ exp(S)",
    heads: "head_i = A_i V_i",
    concat: "Concat(head_1, …, head_h)",
    project: "MultiHead = Concat(head_1, …, head_h) W_O + b_O",
    add: "x + Sublayer(x)",
    hidden: inner,
    output: `FFN(x) = ${inner} W_2 + b_2`,
    logits: "logits = x Wᵀ",
  }[name];
}
