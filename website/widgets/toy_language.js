// A language of a few sentences, searched by the search of the live page.

import { finishSearch, searchFor } from "../../src/manyheads/look/live/search.js";
import { BOS_ID, EOS_ID } from "../../src/manyheads/look/live/subwords.js";

const WORDS = { [BOS_ID]: "<s>", [EOS_ID]: "</s>", 3: "A", 4: "B", 5: "x", 6: "y", 7: "z" };
const NEXT = {
  "": { A: 0.55, B: 0.45 },
  A: { x: 0.35, y: 0.34, "</s>": 0.31 },
  B: { z: 0.95, "</s>": 0.05 },
  "B z": { x: 0.5, "</s>": 0.5 },
  "B z x": { "</s>": 0.95, y: 0.05 },
};
const toId = (word) => Number(Object.keys(WORDS).find((id) => WORDS[id] === word));

// Answers as the model does: logits of the next word of each hypothesis.
const toyModel = {
  vocabularySize: 8,
  start: () => ({
    prefixes: [[]],
    reorder(parents) {
      this.prefixes = parents.map((parent) => [...this.prefixes[parent]]);
    },
  }),
  step(tokens, state) {
    const logits = new Float32Array(8 * tokens.length).fill(-Infinity);
    tokens.forEach((token, row) => {
      if (token !== BOS_ID) state.prefixes[row].push(WORDS[token]);
      const next = NEXT[state.prefixes[row].join(" ")] ?? { "</s>": 1 };
      for (const [word, p] of Object.entries(next)) logits[row * 8 + toId(word)] = Math.log(p);
    });
    return logits;
  },
};

// All sentences of the toy language: {words, logP, length}.
export function listSentences(prefix = [], logP = 0) {
  return Object.entries(NEXT[prefix.join(" ")] ?? { "</s>": 1 }).flatMap(([word, p]) =>
    word === "</s>" ? [{ words: prefix, logP: logP + Math.log(p), length: prefix.length + 1 }] : listSentences([...prefix, word], logP + Math.log(p)),
  );
}

export function searchToy(beam, alpha) {
  const options = { beam, alpha, maxLength: 6, minLength: 0, prefix: [], noRepeatNgram: 0 };
  return finishSearch(searchFor(toyModel, null, options))[0].tokens.map((id) => WORDS[id]).join(" ");
}
