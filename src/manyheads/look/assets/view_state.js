// The state of the view as one plain object, and its form as a URL fragment.

import { findTellingHead } from "./head_roles.js";
import { LANGUAGES } from "./page_languages.js";

export const VIEWS = ["lines", "head", "grid", "table"];
// encoder, decoder and cross, as far as the model has them.
export const attentionTypes = (data) => Object.keys(data.sides);

export const allHeads = (data) => Array.from({ length: data.heads }, (_, head) => head);

// The most telling picture: the lines of the sharpest head, of cross-attention where no other type is chosen.
export function initialState(data, attention = attentionTypes(data).at(-1)) {
  const [layer, head] = findTellingHead(data, attention);
  return {
    view: "lines",
    attention,
    layer,
    head,
    heads: [head], // heads whose lines are drawn
    compare: null, // [layer, head] of a second head, drawn side by side
    words: true,
    token: null, // [side, index] of the pinned token; side 0 holds the queries, side 1 the keys
    step: null,
    snapshot: data.snapshots.length - 1,
    sort: "position",
    descending: false,
    language: null,
  };
}

// Encoder and decoder can have different numbers of layers.
export function limitLayers(state, data) {
  const last = data.layers[state.attention] - 1;
  const compare = state.compare && [Math.min(state.compare[0], last), state.compare[1]];
  return { ...state, layer: Math.min(state.layer, last), compare };
}

const parseNumbers = (text) => (text === "" ? [] : text.split(",").map(Number));

// Holds only the differences from the initial state. Layers and heads count from 1, as on the page.
export function toFragment(state, data) {
  const initial = initialState(data, state.attention);
  const parameters = new URLSearchParams();
  const put = (name, value, usual) => String(value) !== String(usual) && parameters.set(name, value);
  const fromOne = (numbers) => numbers.map((number) => number + 1);
  put("view", state.view, initial.view);
  put("attention", state.attention, initialState(data).attention);
  const isOtherLayer = state.layer !== initial.layer;
  put("layer", state.layer + 1, initial.layer + 1);
  put("head", state.head + 1, isOtherLayer ? 1 : initial.head + 1);
  put("heads", fromOne(state.heads), fromOne(isOtherLayer ? allHeads(data) : initial.heads));
  if (state.compare) parameters.set("compare", fromOne(state.compare));
  if (!state.words) parameters.set("tokens", 1);
  if (state.token) parameters.set("token", state.token);
  if (state.step !== null) parameters.set("step", state.step + 1);
  put("snapshot", state.snapshot + 1, initial.snapshot + 1);
  put("sort", (state.descending ? "-" : "") + state.sort, initial.sort);
  if (state.language) parameters.set("language", state.language);
  return parameters.toString();
}

// Invalid values are ignored: people edit addresses by hand.
export function fromFragment(fragment, data) {
  const parameters = new URLSearchParams(fragment);
  const get = (name) => parameters.get(name) ?? "";
  const attention = attentionTypes(data).includes(get("attention")) ? get("attention") : undefined;
  const state = initialState(data, attention);
  const isIndex = (value, length) => Number.isInteger(value) && value >= 0 && value < length;
  const index = (name, length) => (isIndex(Number(get(name)) - 1, length) ? Number(get(name)) - 1 : null);
  if (VIEWS.includes(get("view"))) state.view = get("view");
  state.layer = index("layer", data.layers[state.attention]) ?? state.layer;
  if (parameters.has("layer")) [state.head, state.heads] = [0, allHeads(data)]; // of another layer than the telling head
  state.head = index("head", data.heads) ?? state.head;
  state.snapshot = index("snapshot", data.snapshots.length) ?? state.snapshot;
  state.step = index("step", data.tokens.target.length);
  state.words = !parameters.has("tokens");
  if (parameters.has("heads")) {
    const heads = new Set(parseNumbers(get("heads")).map((number) => number - 1));
    state.heads = allHeads(data).filter((head) => heads.has(head));
  }
  const compare = parseNumbers(get("compare")).map((number) => number - 1);
  if (compare.length === 2 && isIndex(compare[0], data.layers[state.attention]) && isIndex(compare[1], data.heads))
    state.compare = compare;
  const sort = get("sort").replace(/^-/, "");
  if (["position", ...data.measures].includes(sort)) {
    state.sort = sort;
    state.descending = get("sort").startsWith("-");
  }
  const token = parseNumbers(get("token"));
  const side = data.sides[state.attention][token[0]];
  if (side && (state.words ? data.words : data.tokens)[side][token[1]] !== undefined) state.token = token;
  if (Object.hasOwn(LANGUAGES, get("language"))) state.language = get("language");
  return limitLayers(state, data);
}
