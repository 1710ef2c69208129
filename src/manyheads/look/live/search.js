// Decoding over a step function, for one sentence: greedy, beam search with the length penalty of the paper (6.1), and
// sampling. As search/beam.py and search/driver.py do it.
//
// Every search is a generator: it yields after each step, so that a page stays responsive, and returns hypotheses
// {tokens, scores, score}, best first: tokens without begin and end, log p of each token and of the end, and the log
// probability of the whole divided by the length penalty.
//
// Options: maxLength, minLength, prefix (ids of the first tokens), alpha, beam, temperature, seed, noRepeatNgram.

import { BOS_ID, EOS_ID } from "./subwords.js";

export function lengthPenalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

// Runs a search to its end.
export function finishSearch(search) {
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
  }
}

// Runs a search and lets the page handle events in between. A signal that aborts rejects the promise.
export async function finishSearchInSteps(search, { signal = null, milliseconds = 12 } = {}) {
  let pauseAt = performance.now() + milliseconds;
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
    if (performance.now() > pauseAt) {
      await pause();
      signal?.throwIfAborted();
      pauseAt = performance.now() + milliseconds;
    }
  }
}

function pause() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

export function searchFor(model, memory, options) {
  const isGreedy = options.temperature || options.beam === 1;
  return isGreedy ? searchGreedy(model, memory, options) : searchBeam(model, memory, options);
}

// The likeliest token at each step, or with a temperature one at random.
function* searchGreedy(model, memory, options) {
  const { alpha, temperature, cuts } = options;
  const state = model.start(memory);
  const random = createRandom(options.seed ?? 0);
  const [tokens, scores] = [[], []];
  for (let token = BOS_ID; ; ) {
    const logits = model.step([token], state, { cuts });
    const logTotal = logSumExp(logits);
    maskLogits(logits, tokens, options);
    token = temperature ? sampleToken(logits, temperature, random) : findLargest(logits);
    scores.push(logits[token] - logTotal);
    if (token === EOS_ID) break;
    tokens.push(token);
    yield tokens;
  }
  const total = scores.reduce((sum, score) => sum + score, 0);
  return [{ tokens, scores, score: total / lengthPenalty(scores.length, alpha) }];
}

// A beam of W hypotheses. Of the 2 W best continuations, those that end and rank among the first W are finished; the
// W best of the others go on, until none can beat the worst finished one.
function* searchBeam(model, memory, options) {
  const { beam, alpha, maxLength, cuts, nbest = 1 } = options;
  const state = model.start(memory);
  const size = model.vocabularySize;
  let hypotheses = [{ tokens: [], scores: [], total: 0 }];
  let finished = [];
  for (let length = 0; length <= maxLength; length++) {
    const logits = model.step(
      hypotheses.map(({ tokens }) => tokens.at(-1) ?? BOS_ID),
      state,
      { cuts },
    );
    const continuations = hypotheses.flatMap((hypothesis, parent) => {
      const own = logits.subarray(parent * size, (parent + 1) * size);
      const logTotal = logSumExp(own);
      maskLogits(own, hypothesis.tokens, options);
      return findTop(own, 2 * beam).map((token) => {
        const logP = own[token] - logTotal;
        return { parent, token, logP, total: hypothesis.total + logP };
      });
    });
    continuations.sort((a, b) => b.total - a.total);
    continuations.length = Math.min(continuations.length, 2 * beam);
    const extend = ({ parent, token, logP, total }) => {
      const { tokens, scores } = hypotheses[parent];
      return { tokens: token === EOS_ID ? tokens : [...tokens, token], scores: [...scores, logP], total };
    };
    for (const ending of continuations.slice(0, beam).filter(({ token }) => token === EOS_ID)) {
      if (ending.total === -Infinity) continue;
      finished.push({ ...extend(ending), score: ending.total / lengthPenalty(length + 1, alpha) });
    }
    finished = finished.sort((a, b) => b.score - a.score).slice(0, nbest);
    const chosen = continuations.filter(({ token, total }) => token !== EOS_ID && total > -Infinity).slice(0, beam);
    if (!chosen.length) break;
    hypotheses = chosen.map(extend);
    state.reorder(chosen.map(({ parent }) => parent));
    const bound = hypotheses[0].total / lengthPenalty(maxLength + 1, alpha);
    if (finished.length === nbest && finished.at(-1).score >= bound) break;
    yield hypotheses[0].tokens;
  }
  return finished;
}

// ---- what may come next

function maskLogits(logits, tokens, { maxLength, minLength = 0, prefix = [], noRepeatNgram = null }) {
  const length = tokens.length;
  if (length >= maxLength) keepOnly(logits, EOS_ID);
  else if (length < prefix.length) keepOnly(logits, prefix[length]);
  else if (noRepeatNgram) for (const token of findRepeats(tokens, noRepeatNgram)) logits[token] = -Infinity;
  if (length < Math.min(maxLength, Math.max(minLength, prefix.length))) logits[EOS_ID] = -Infinity;
}

function keepOnly(logits, token) {
  const kept = logits[token];
  logits.fill(-Infinity);
  logits[token] = kept;
}

// The tokens that would repeat an n-gram.
function findRepeats(tokens, n) {
  const begun = n > 1 ? tokens.slice(1 - n).join() : "";
  const repeats = [];
  for (let first = 0; first + n <= tokens.length; first++)
    if (tokens.slice(first, first + n - 1).join() === begun) repeats.push(tokens[first + n - 1]);
  return repeats;
}

// ---- numbers

export function logSumExp(logits) {
  let max = -Infinity;
  for (let index = 0; index < logits.length; index++) if (logits[index] > max) max = logits[index];
  let total = 0;
  for (let index = 0; index < logits.length; index++) total += Math.exp(logits[index] - max);
  return max + Math.log(total);
}

function findLargest(logits) {
  let best = 0;
  for (let index = 1; index < logits.length; index++) if (logits[index] > logits[best]) best = index;
  return best;
}

// The indices of the largest values, largest first.
export function findTop(values, count) {
  const top = [];
  for (let index = 0; index < values.length; index++) {
    if (top.length === count && !(values[index] > values[top[count - 1]])) continue;
    let place = Math.min(top.length, count - 1);
    for (; place > 0 && values[index] > values[top[place - 1]]; place--) top[place] = top[place - 1];
    top[place] = index;
  }
  return top;
}

function sampleToken(logits, temperature, random) {
  let max = -Infinity;
  for (const logit of logits) if (logit > max) max = logit;
  const weights = logits.map((logit) => Math.exp((logit - max) / temperature));
  let remaining = random() * weights.reduce((sum, weight) => sum + weight, 0);
  for (let token = 0; token < weights.length; token++) {
    remaining -= weights[token];
    if (remaining < 0) return token;
  }
  return findLargest(logits);
}

// Uniform numbers from a seed (mulberry32).
function createRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
