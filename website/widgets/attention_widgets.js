// Widgets of the chapter on attention that need no model.

import { attendOnce, compatibility, entropyBits, normalNumbers, softmax, softmaxSlope } from "./book_numbers.js";
import { createTable, formatNumber } from "./widget_figures.js";
import { say } from "./widget_frame.js";

const KEYS = { Thinking: [2, 0], Machines: [0.5, 1.5], learn: [-1, 1] };
const VALUES = { Thinking: [1, 0], Machines: [0, 1], learn: [1, 1] };
const NUM_SCALE_KEYS = 8;

// One query, three keys and values: the four steps from a query to a weighted sum.
function attentionSteps() {
  const words = Object.keys(KEYS);
  const slider = (name, label, value) => ({ name, label, type: "range", min: -4, max: 4, step: 0.25, value });
  return {
    title: say("From a query to a weighted sum", "쿼리에서 가중합까지"),
    controls: [
      slider("first", say("query, first number", "쿼리의 첫째 수"), 1.5),
      slider("second", say("query, second number", "쿼리의 둘째 수"), 0.5),
      {
        ...{ name: "type", label: say("compatibility", "점수 함수"), type: "choice", value: "scaled" },
        options: [
          ["scaled", say("scaled dot product", "스케일된 내적")],
          ["dot", say("dot product", "내적")],
          ["additive", say("additive", "덧셈 어텐션")],
        ],
      },
    ],
    draw({ first, second, type }) {
      const { scores, weights, output } = attendOnce([first, second], Object.values(KEYS), Object.values(VALUES), type);
      const best = words[weights.indexOf(Math.max(...weights))];
      const percent = formatNumber(100 * Math.max(...weights));
      return {
        summary: say(
          `Most of the weight, ${percent} %, is on “${best}”. The output is (${output.map((x) => x.toFixed(3)).join(", ")}).`,
          `가중치가 가장 큰 단어는 “${best}”로 ${percent} %입니다. 출력은 (${output.map((x) => x.toFixed(3)).join(", ")})입니다.`,
        ),
        parts: [
          createTable({
            caption: say(`query (${first}, ${second})`, `쿼리 (${first}, ${second})`),
            columns: [say("key", "키"), say("1. score", "1. 점수"), say("2. weight", "2. 가중치"), say("value", "값"), say("3. weight × value", "3. 가중치 × 값")],
            rows: words,
            cells: words.map((word, i) => [
              `(${KEYS[word].join(", ")})`,
              scores[i].toFixed(3),
              weights[i].toFixed(3),
              `(${VALUES[word].join(", ")})`,
              `(${VALUES[word].map((value) => (weights[i] * value).toFixed(3)).join(", ")})`,
            ]),
            shade: (row, column) => (column === 2 ? weights[row] : 0),
          }),
        ],
      };
    },
  };
}

// Random queries and keys of unit variance: what the width does to the softmax, with and without the scale.
function softmaxScale() {
  const widths = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return {
    title: say("What the scale does to the softmax", "스케일이 소프트맥스에 하는 일"),
    controls: [
      { name: "width", label: "d_k", type: "range", values: widths, value: 64 },
      { name: "seed", label: say("other random numbers", "다른 난수"), type: "range", min: 1, max: 20, value: 1 },
    ],
    draw({ width, seed }) {
      const numbers = normalNumbers((NUM_SCALE_KEYS + 1) * width, seed);
      const vectors = Array.from({ length: NUM_SCALE_KEYS + 1 }, (_, i) => numbers.slice(i * width, (i + 1) * width));
      const [query, ...keys] = vectors;
      const rows = ["scaled", "dot"].map((type) => {
        const scores = keys.map((key) => compatibility(query, key, type));
        const weights = softmax(scores);
        return { scores, weights, entropy: entropyBits(weights), slope: softmaxSlope(weights) };
      });
      const names = ["q · k / √d_k", "q · k"];
      const columns = keys.map((_, i) => `k${i + 1}`);
      const top = rows.map(({ weights }) => formatNumber(100 * Math.max(...weights)));
      return {
        summary: say(
          `Largest weight: ${top[0]} % with the scale, ${top[1]} % without.`,
          `가장 큰 가중치는 스케일이 있으면 ${top[0]} %, 없으면 ${top[1]} %입니다.`,
        ),
        parts: [
          createTable({ caption: say("scores", "점수"), columns, rows: names, cells: rows.map(({ scores }) => scores) }),
          createTable({
            caption: say("weights", "가중치"),
            ...{ columns, rows: names, cells: rows.map(({ weights }) => weights) },
            shade: (row, column) => rows[row].weights[column],
            format: (weight) => formatNumber(weight, 2), // all eight columns are in sight on a laptop
          }),
          createTable({
            caption: say("of the weights", "가중치의 성질"),
            columns: [say("entropy, bits (at most 3)", "엔트로피, 비트 (최대 3)"), say("slope of the softmax", "소프트맥스의 기울기")],
            ...{ rows: names, cells: rows.map(({ entropy, slope }) => [entropy, slope]) },
          }),
        ],
      };
    },
  };
}

export const ATTENTION_WIDGETS = { "attention-steps": attentionSteps, "softmax-scale": softmaxScale };
