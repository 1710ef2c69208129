// Widgets of the model's parts that need no model: paths, heads, masks, positions, feed-forward layers and norms.

import { layerCosts, maskAfter, maskBefore, normalizeGroups, pathLengths, positionalEncoding, wavelength, dot } from "./book_numbers.js";
import { createGrid, createLinePlot, createTable, formatNumber } from "./widget_figures.js";
import { say } from "./widget_frame.js";

const range = (name, label, min, max, value, step = 1) => ({ name, label, type: "range", min, max, step, value });
const doubled = (name, label, values, value) => ({ name, label, type: "range", values, value });
const POWERS = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

function pathLength() {
  return {
    title: say("How far apart are the first and the last word?", "첫 단어와 마지막 단어는 얼마나 떨어져 있을까요?"),
    controls: [range("n", say("words n", "단어 수 n"), 2, 243, 81), range("kernel", say("kernel width k", "커널 폭 k"), 2, 9, 3)],
    draw({ n, kernel }) {
      const { recurrent, contiguous, dilated, attention } = pathLengths(n, kernel);
      const rows = [
        [say("recurrent (RNN, LSTM, GRU)", "순환 신경망 (RNN, LSTM, GRU)"), recurrent, "n", n],
        [say("convolutions (ConvS2S)", "합성곱 (ConvS2S)"), contiguous, "(n - 1)/(k - 1)", 1],
        [say("dilated convolutions (ByteNet)", "팽창 합성곱 (ByteNet)"), dilated, "log_k n", 1],
        [say("self-attention", "셀프 어텐션"), attention, "1", 1],
      ];
      return {
        summary: say(
          `${n} words: ${recurrent} steps of a recurrence, ${contiguous} layers of convolutions, ${dilated} of dilated ones, 1 of attention.`,
          `단어 ${n}개: 순환은 ${recurrent}단계, 합성곱은 ${contiguous}층, 팽창 합성곱은 ${dilated}층, 어텐션은 1층입니다.`,
        ),
        parts: [
          createTable({
            caption: say("from the first word to the last", "첫 단어에서 마지막 단어까지"),
            columns: [say("path length", "경로 길이"), say("formula", "식"), say("steps one after another, per layer", "층마다 차례로 해야 하는 단계")],
            ...{ rows: rows.map(([name]) => name), cells: rows.map(([, ...cells]) => cells) },
          }),
        ],
      };
    },
  };
}

// Two words change places. One head returns a mean; two heads return two.
function headResolution() {
  const words = [[1, 0], [0, 1]];
  const attend = (weight, [a, b]) => a.map((x, i) => weight * x + (1 - weight) * b[i]);
  return {
    title: say("What does averaging lose?", "평균을 내면 무엇을 잃을까요?"),
    controls: [
      range("first", say("head 1: weight of the word before", "헤드 1: 앞 단어의 가중치"), 0, 1, 0.5, 0.05),
      range("second", say("head 2: weight of the word before", "헤드 2: 앞 단어의 가중치"), 0, 1, 0.9, 0.05),
    ],
    draw({ first, second }) {
      const orders = [words, [...words].reverse()];
      const outputs = orders.map((order) => [attend(first, order), attend(second, order)]);
      const distance = (pick) => Math.hypot(...pick(outputs[0]).map((x, i) => x - pick(outputs[1])[i]));
      const [one, both] = [distance(([a]) => a), distance(([a, b]) => [...a, ...b])];
      const show = (vector) => `(${vector.map((x) => x.toFixed(2)).join(", ")})`;
      return {
        summary: say(
          `If “dog” and “man” change places, the output of head 1 changes by ${formatNumber(one)}, that of both by ${formatNumber(both)}.`,
          `“개”와 “남자”의 자리를 바꾸면 헤드 1의 출력은 ${formatNumber(one)}, 두 헤드의 출력은 ${formatNumber(both)}만큼 바뀝니다.`,
        ),
        parts: [
          createTable({
            caption: say("values: dog (1, 0), man (0, 1)", "값: 개 (1, 0), 남자 (0, 1)"),
            columns: [say("head 1", "헤드 1"), say("head 2", "헤드 2"), say("both, concatenated", "둘을 이은 것")],
            rows: [say("dog … man", "개 … 남자"), say("man … dog", "남자 … 개")],
            cells: outputs.map(([a, b]) => [show(a), show(b), show([...a, ...b])]),
          }),
        ],
      };
    },
  };
}

const TARGET = ["<s>", "나는", "집에", "간다"];
const SCORES = [[1, 0.5, 2, 0.3], [0.2, 1.5, 0.1, 1.1], [0.4, 0.9, 1.2, 2.2], [1.3, 0.2, 0.8, 1]];

function maskedSoftmax() {
  const isVisible = { none: () => true, causal: (i, j) => j <= i, window: (i, j) => j <= i && i - j <= 1, all: () => false };
  return {
    title: say("A mask, before or after the softmax", "소프트맥스 앞의 마스크와 뒤의 마스크"),
    controls: [
      {
        ...{ name: "mask", label: say("what a position sees", "위치가 볼 수 있는 것"), type: "choice", value: "causal" },
        options: [
          ["causal", say("itself and what is before it", "자신과 그 앞")],
          ["window", say("itself and one before it", "자신과 바로 앞 하나")],
          ["none", say("everything", "전부")],
          ["all", say("nothing", "아무것도 없음")],
        ],
      },
      {
        ...{ name: "order", label: say("hide", "가리는 때"), type: "choice", value: "before" },
        options: [["before", say("before the softmax (-∞)", "소프트맥스 전 (-∞)")], ["after", say("after it (0, renormalize)", "소프트맥스 후 (0, 다시 나누기)")]],
      },
      range("extra", say("added to the last column of scores", "점수 마지막 열에 더하는 수"), 0, 200, 0, 10),
    ],
    draw({ mask, order, extra }) {
      const scores = SCORES.map((row) => row.map((score, j) => score + (j === 3 ? extra : 0)));
      const apply = order === "before" ? maskBefore : maskAfter;
      const weights = scores.map((row, i) => apply(row, row.map((_, j) => isVisible[mask](i, j))));
      const lost = weights.flat().filter(Number.isNaN).length;
      return {
        summary: lost
          ? say(`${lost} of 16 weights are not numbers: a division of zero by zero.`, `가중치 16개 가운데 ${lost}개가 수가 아닙니다. 0을 0으로 나누었습니다.`)
          : say(`The first row is (${weights[0].map((w) => w.toFixed(3)).join(", ")}).`, `첫 행은 (${weights[0].map((w) => w.toFixed(3)).join(", ")})입니다.`),
        parts: [
          createTable({ caption: say("scores", "점수"), columns: TARGET, rows: TARGET, cells: scores }),
          createTable({
            caption: say("weights, computed in float32", "가중치, float32로 계산"),
            ...{ columns: TARGET, rows: TARGET, cells: weights },
            format: (weight) => (Number.isNaN(weight) ? say("none", "없음") : weight.toFixed(3)),
            shade: (row, column) => weights[row][column] || 0,
          }),
        ],
      };
    },
  };
}

function positionMap() {
  const count = 50;
  return {
    title: say("Positions as sines and cosines", "사인과 코사인으로 나타낸 위치"),
    controls: [
      doubled("width", "d_model", [16, 32, 64, 128], 64),
      range("position", say("position", "위치"), 0, count - 1, 20),
      range("dimension", say("dimension", "차원"), 0, 15, 4),
    ],
    draw({ width, position, dimension }) {
      const table = Array.from({ length: count }, (_, pos) => positionalEncoding(pos, width));
      const own = table[position];
      const closeness = table.map((other, pos) => [pos, dot(own, other)]);
      const wave = table.map((row, pos) => [pos, row[dimension]]);
      const numbers = own.slice(0, 4).map((x) => x.toFixed(3)).join(", ");
      return {
        summary: say(
          `Position ${position} begins (${numbers}). Dimension ${dimension} has a wavelength of ${formatNumber(wavelength(dimension, width))} positions.`,
          `위치 ${position}은 (${numbers})로 시작합니다. 차원 ${dimension}의 파장은 위치 ${formatNumber(wavelength(dimension, width))}개입니다.`,
        ),
        parts: [
          createGrid({
            label: say("rows: positions 0 to 49; columns: dimensions; blue positive, red negative", "행: 위치 0–49, 열: 차원, 파랑은 양수, 빨강은 음수"),
            ...{ rows: count, columns: width, value: (row, column) => table[row][column], limit: 1 },
          }),
          createLinePlot({
            label: say("dot products with the chosen position, and one dimension", "고른 위치와의 내적, 그리고 한 차원"),
            ...{ xName: say("position", "위치"), yName: "" },
            lines: [
              { name: say(`PE(${position}) · PE(pos) / d_model`, `PE(${position}) · PE(pos) / d_model`), points: closeness.map(([x, y]) => [x, y / width]) },
              { name: say(`dimension ${dimension}`, `차원 ${dimension}`), points: wave },
            ],
            mark: position,
          }),
        ],
      };
    },
  };
}

function feedForwardCurve() {
  const slider = (name, label, value) => range(name, label, -3, 3, value, 0.25);
  return {
    title: say("A feed-forward layer of one number and two hidden units", "수 하나와 은닉 유닛 둘의 피드포워드 층"),
    controls: [
      slider("w1", "w₁₁", 1), slider("b1", "b₁₁", 1), slider("v1", "w₂₁", 1),
      slider("w2", "w₁₂", -1), slider("b2", "b₁₂", 1), slider("v2", "w₂₂", 1),
    ],
    draw({ w1, b1, v1, w2, b2, v2 }) {
      const f = (x) => v1 * Math.max(0, w1 * x + b1) + v2 * Math.max(0, w2 * x + b2);
      const linear = (x) => v1 * (w1 * x + b1) + v2 * (w2 * x + b2);
      const xs = Array.from({ length: 81 }, (_, i) => -4 + i / 10);
      const [left, mid, right] = [-2, 0, 2].map((x) => formatNumber(f(x)));
      return {
        summary: say(`f(-2) = ${left}, f(0) = ${mid}, f(2) = ${right}`, `f(-2) = ${left}, f(0) = ${mid}, f(2) = ${right}`),
        parts: [
          createLinePlot({
            label: say("output against input, with and without the maximum", "입력에 대한 출력, 최댓값이 있을 때와 없을 때"),
            ...{ xName: "x", yName: "f(x)" },
            lines: [
              { name: "w₂₁ max(0, w₁₁ x + b₁₁) + w₂₂ max(0, w₁₂ x + b₁₂)", points: xs.map((x) => [x, f(x)]) },
              { name: say("without max: a line", "max가 없으면 직선"), points: xs.map((x) => [x, linear(x)]) },
            ],
          }),
        ],
      };
    },
  };
}

function normPlayground() {
  const slider = (name, value) => range(name, name, -8, 8, value, 0.5);
  return {
    title: say("A residual sum and its normalization", "잔차의 합과 정규화"),
    controls: [
      slider("x₁", 3), slider("x₂", 5), slider("x₃", -2), slider("x₄", 6),
      range("share", say("F(x) = share · (1, -1, 1, -1)", "F(x) = 배율 · (1, -1, 1, -1)"), -4, 4, 0, 0.5),
      {
        ...{ name: "groups", label: say("normalize over", "정규화하는 범위"), type: "choice", value: "1" },
        options: [["1", say("the vector (layer)", "벡터 전체 (층 정규화)")], ["2", say("two groups", "두 그룹")]],
      },
      range("gain", say("gain", "이득"), 0, 3, 1, 0.25),
      range("bias", say("bias", "편향"), -2, 2, 0, 0.25),
    ],
    draw({ share, groups, gain, bias, ...state }) {
      const x = ["x₁", "x₂", "x₃", "x₄"].map((name) => state[name]);
      const sublayer = [1, -1, 1, -1].map((sign) => sign * share + 0);
      const sum = x.map((value, i) => value + sublayer[i]);
      const normalized = normalizeGroups(sum, Number(groups));
      const output = normalized.map((value) => gain * value + bias);
      return {
        summary: say(`The output is (${output.map((v) => v.toFixed(2)).join(", ")}).`, `출력은 (${output.map((v) => v.toFixed(2)).join(", ")})입니다.`),
        parts: [
          createTable({
            caption: say("one vector of four numbers", "수 네 개의 벡터 하나"),
            columns: ["1", "2", "3", "4"],
            rows: ["x", "F(x)", "x + F(x)", say("normalized", "정규화"), say("gain · normalized + bias", "이득 · 정규화 + 편향")],
            cells: [x, sublayer, sum, normalized, output],
          }),
        ],
      };
    },
  };
}

function costCrossover() {
  return {
    title: say("Which layer costs less?", "어느 층이 더 쌀까요?"),
    controls: [
      doubled("n", say("words n", "단어 수 n"), POWERS, 64),
      doubled("d", say("width d", "폭 d"), POWERS.slice(2), 512),
      range("kernel", say("kernel k", "커널 k"), 2, 9, 3),
      doubled("window", say("window r", "창 r"), POWERS.slice(0, 7), 32),
    ],
    draw({ n, d, kernel, window }) {
      const names = {
        attention: say("self-attention n² d", "셀프 어텐션 n² d"),
        recurrent: say("recurrent n d²", "순환 n d²"),
        convolution: say("convolution k n d²", "합성곱 k n d²"),
        restricted: say("restricted attention r n d", "제한된 어텐션 r n d"),
      };
      const costs = layerCosts(n, d, kernel, window);
      const ratio = formatNumber(costs.attention / costs.recurrent);
      return {
        summary: say(
          `Self-attention costs n/d = ${ratio} times as much as a recurrence, by this count; the two are equal at n = d = ${d}.`,
          `이 계산으로 셀프 어텐션의 비용은 순환의 n/d = ${ratio}배이고, n = d = ${d}에서 같아집니다.`,
        ),
        parts: [
          createTable({
            caption: say("operations of a layer (Table 1)", "한 층의 연산 수 (표 1)"),
            columns: [say("operations", "연산 수")],
            ...{ rows: Object.values(names), cells: Object.keys(names).map((name) => [costs[name]]) },
          }),
          createLinePlot({
            label: say("operations against the number of words", "단어 수에 대한 연산 수"),
            ...{ xName: "n", yName: say("operations", "연산 수"), isLogX: true, isLogY: true, mark: n },
            lines: Object.keys(names).map((name) => ({ name: names[name], points: POWERS.map((x) => [x, layerCosts(x, d, kernel, window)[name]]) })),
          }),
        ],
      };
    },
  };
}

export const LAYER_WIDGETS = {
  "path-length": pathLength,
  "head-resolution": headResolution,
  "masked-softmax": maskedSoftmax,
  "position-map": positionMap,
  "feed-forward-curve": feedForwardCurve,
  "norm-playground": normPlayground,
  "cost-crossover": costCrossover,
};
