// What is shown, as one plain object, and the same as a fragment of an address.

export const VIEWS = ["lines", "grid", "head", "table"];
// Of attention: encoder, decoder and cross, or those that the model has.
export const kindsOf = (data) => Object.keys(data.sides);

export function firstState(data) {
  return {
    view: "lines",
    kind: kindsOf(data)[0],
    layer: data.layers - 1,
    head: 0,
    on: Array.from({ length: data.heads }, (_, head) => head), // heads whose lines are drawn
    beside: null, // [layer, head]: a second head, side by side
    words: true,
    token: null, // [side, place]: one token alone; side 0 looks, side 1 is looked at
    step: null,
    moment: data.moments.length - 1,
    order: "position",
    falling: false,
    language: null,
  };
}

const numbers = (text) => (text === "" ? [] : text.split(",").map(Number));

// Only what differs from the first state; numbers of layers and heads are counted from 1, as on the page.
export function toFragment(state, data) {
  const first = firstState(data);
  const parts = new URLSearchParams();
  const put = (name, value, usual) => String(value) !== String(usual) && parts.set(name, value);
  put("view", state.view, first.view);
  put("kind", state.kind, first.kind);
  put("layer", state.layer + 1, first.layer + 1);
  put("head", state.head + 1, first.head + 1);
  put(
    "on",
    state.on.map((head) => head + 1),
    first.on.map((head) => head + 1),
  );
  if (state.beside)
    parts.set(
      "beside",
      state.beside.map((one) => one + 1),
    );
  if (!state.words) parts.set("tokens", 1);
  if (state.token) parts.set("token", state.token);
  if (state.step !== null) parts.set("step", state.step + 1);
  put("moment", state.moment + 1, first.moment + 1);
  put("order", (state.falling ? "-" : "") + state.order, first.order);
  if (state.language) parts.set("language", state.language);
  return parts.toString();
}

// Whatever a fragment says that cannot be shown is left out: addresses are typed by people.
export function fromFragment(fragment, data) {
  const parts = new URLSearchParams(fragment);
  const state = firstState(data);
  const get = (name) => parts.get(name) ?? "";
  const within = (value, below) => Number.isInteger(value) && value >= 0 && value < below;
  const count = (name, below) => (within(Number(get(name)) - 1, below) ? Number(get(name)) - 1 : null);
  if (VIEWS.includes(get("view"))) state.view = get("view");
  if (kindsOf(data).includes(get("kind"))) state.kind = get("kind");
  state.layer = count("layer", data.layers) ?? state.layer;
  state.head = count("head", data.heads) ?? state.head;
  state.moment = count("moment", data.moments.length) ?? state.moment;
  state.step = count("step", data.tokens.written.length);
  state.words = !parts.has("tokens");
  if (parts.has("on")) {
    const on = new Set(numbers(get("on")).map((one) => one - 1));
    state.on = state.on.filter((head) => on.has(head));
  }
  const beside = numbers(get("beside")).map((one) => one - 1);
  if (beside.length === 2 && within(beside[0], data.layers) && within(beside[1], data.heads)) state.beside = beside;
  const order = get("order").replace(/^-/, "");
  if (["position", ...data.measures].includes(order)) {
    state.order = order;
    state.falling = get("order").startsWith("-");
  }
  const token = numbers(get("token"));
  const side = data.sides[state.kind][token[0]];
  if (side && (state.words ? data.words : data.tokens)[side][token[1]] !== undefined) state.token = token;
  if (["en", "ko"].includes(get("language"))) state.language = get("language");
  return state;
}
