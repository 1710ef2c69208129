// Widgets of training, search and size that need no model.

import { lengthPenalty } from "../../src/manyheads/look/live/search.js";
import { countParameters, learningRate, smoothTargets, smoothedLoss } from "./book_numbers.js";
import { listSentences, searchToy } from "./toy_language.js";
import { createLinePlot, createTable, formatNumber } from "./widget_figures.js";
import { say } from "./widget_frame.js";

const WIDTHS = [64, 128, 256, 512, 1024];

function embeddingScale() {
  return {
    title: say("Embeddings beside positions", "임베딩과 위치의 크기"),
    controls: [
      { name: "width", label: "d_model", type: "range", values: WIDTHS, value: 512 },
      {
        ...{ name: "factor", label: say("factor of the embedding", "임베딩에 곱하는 수"), type: "choice", value: "root" },
        options: [["root", "√d_model"], ["one", "1"]],
      },
    ],
    draw({ width, factor }) {
      const deviation = width ** -0.5 * (factor === "root" ? Math.sqrt(width) : 1);
      const position = Math.SQRT1_2;
      const share = deviation ** 2 / (deviation ** 2 + position ** 2);
      return {
        summary: say(
          `${formatNumber(100 * share)} % of the mean square of the sum comes from the word.`,
          `합의 제곱 평균 가운데 ${formatNumber(100 * share)} %가 단어에서 옵니다.`,
        ),
        parts: [
          createTable({
            caption: say("root mean square of a number", "수 하나의 크기 (제곱 평균의 제곱근)"),
            columns: [say("embedding", "임베딩"), say("position", "위치"), say("ratio", "비율")],
            rows: [`d_model = ${width}`],
            cells: [[deviation, position, deviation / position]],
          }),
        ],
      };
    },
  };
}

function rateSchedule() {
  const maxStep = 20000;
  return {
    title: say("The learning rate, step by step", "스텝마다의 학습률"),
    controls: [
      { name: "width", label: "d_model", type: "range", values: WIDTHS, value: 512 },
      { name: "warmup", label: say("warm-up steps", "웜업 스텝"), type: "range", min: 500, max: 16000, step: 500, value: 4000 },
      { name: "step", label: say("step", "스텝"), type: "range", values: [1, 10, 100, 500, 1000, 2000, 4000, 8000, 16000, 20000], value: 4000 },
    ],
    draw({ width, warmup, step }) {
      const points = Array.from({ length: 200 }, (_, i) => (i + 1) * (maxStep / 200)).map((x) => [x, learningRate(x, width, warmup)]);
      const rate = learningRate(step, width, warmup).toExponential(4);
      const peak = learningRate(warmup, width, warmup).toExponential(4);
      return {
        summary: say(`Step ${step}: ${rate}. The peak, at step ${warmup}, is ${peak}.`, `스텝 ${step}: ${rate}. 정점은 스텝 ${warmup}에서 ${peak}입니다.`),
        parts: [
          createLinePlot({
            label: say("learning rate against step", "스텝에 대한 학습률"),
            ...{ xName: say("step", "스텝"), yName: say("learning rate", "학습률"), mark: step },
            lines: [{ name: say("equation (3)", "식 (3)"), points: [[1, learningRate(1, width, warmup)], ...points] }],
          }),
        ],
      };
    },
  };
}

function labelSmoothing() {
  return {
    title: say("What the loss wants", "손실이 원하는 것"),
    controls: [
      { name: "size", label: say("words K", "단어 수 K"), type: "range", values: [2, 5, 10, 100, 1000, 37000], value: 5 },
      { name: "smoothing", label: "ε", type: "range", min: 0, max: 0.4, step: 0.05, value: 0.1 },
      {
        ...{ name: "over", label: say("ε is shared by", "ε을 나누는 범위"), type: "choice", value: "all" },
        options: [["all", say("all words (Inception)", "모든 단어 (Inception)")], ["others", say("the other words", "다른 단어들")]],
      },
      { name: "p", label: say("probability of the right word", "정답 단어의 확률"), type: "range", min: 0.05, max: 0.95, step: 0.05, value: 0.5 },
    ],
    draw({ size, smoothing, over, p }) {
      const { right, other } = smoothTargets(size, smoothing, over);
      const ps = Array.from({ length: 197 }, (_, i) => 0.01 + i * 0.005);
      return {
        summary: say(
          `The target is ${formatNumber(right, 4)} for the right word and ${formatNumber(other, 4)} for each other. The loss is least at p = ${formatNumber(right, 4)}.`,
          `목표는 정답 단어에 ${formatNumber(right, 4)}, 다른 단어마다 ${formatNumber(other, 4)}입니다. 손실은 p = ${formatNumber(right, 4)}에서 가장 작습니다.`,
        ),
        parts: [
          createTable({
            caption: say(`at p = ${p}`, `p = ${p}에서`),
            columns: [say("smoothed loss", "스무딩한 손실"), "-log p"],
            rows: [say("nats", "내트")],
            cells: [[smoothedLoss(p, size, smoothing, over), -Math.log(p)]],
          }),
          createLinePlot({
            label: say("loss against the probability of the right word", "정답 단어의 확률에 대한 손실"),
            ...{ xName: "p", yName: say("loss", "손실"), mark: p },
            lines: [
              { name: say("smoothed", "스무딩"), points: ps.map((x) => [x, smoothedLoss(x, size, smoothing, over)]) },
              { name: "-log p", points: ps.map((x) => [x, -Math.log(x)]) },
            ],
          }),
        ],
      };
    },
  };
}

function beamTree() {
  return {
    title: say("Beam search over a language of a few sentences", "문장이 몇 개뿐인 언어에서의 빔 서치"),
    controls: [
      { name: "beam", label: say("beam", "빔"), type: "range", min: 1, max: 4, value: 1 },
      { name: "alpha", label: "α", type: "range", min: 0, max: 2, step: 0.2, value: 0.6, format: (x) => x.toFixed(1) },
    ],
    draw({ beam, alpha }) {
      const result = searchToy(beam, alpha);
      const all = listSentences().map((own) => ({ ...own, score: own.logP / lengthPenalty(own.length, alpha) }));
      all.sort((a, b) => b.score - a.score);
      const best = all[0].words.join(" ");
      return {
        summary: say(`The search finds “${result}”. The best of all is “${best}”.`, `서치가 찾은 것은 “${result}”, 모든 문장 가운데 최선은 “${best}”입니다.`),
        parts: [
          createTable({
            caption: say("all sentences, by score", "모든 문장, 점수 순"),
            columns: [say("probability", "확률"), "log p", say("length with </s>", "</s>까지 길이"), say("length penalty", "길이 페널티"), say("score", "점수")],
            rows: all.map(({ words }) => words.join(" ")),
            cells: all.map(({ logP, length, score }) => [Math.exp(logP), logP, length, lengthPenalty(length, alpha), score]),
            shade: (row) => (all[row].words.join(" ") === result ? 0.6 : 0),
          }),
        ],
      };
    },
  };
}

function parameterCount() {
  const control = (name, label, values, value) => ({ name, label, type: "range", values, value });
  return {
    title: say("How many parameters?", "파라미터는 몇 개일까요?"),
    controls: [
      control("layers", "N", [1, 2, 3, 4, 6, 8, 12, 24], 6),
      control("width", "d_model", [128, 256, 512, 1024], 512),
      control("hidden", "d_ff", [512, 1024, 2048, 4096], 2048),
      control("heads", "h", [1, 2, 4, 8, 16, 32], 8),
      control("headWidth", "d_k = d_v", [16, 32, 64, 128, 256, 512], 64),
      control("vocabulary", say("vocabulary", "어휘"), [1000, 8000, 16000, 32000, 37000], 37000),
    ],
    draw(state) {
      const { embeddings, encoder, decoder, total } = countParameters(state);
      const show = (count) => count.toLocaleString("en-US");
      return {
        summary: say(`${show(total)} parameters.`, `파라미터 ${show(total)}개.`),
        parts: [
          createTable({
            caption: say("where they are", "있는 곳"),
            columns: [say("parameters", "파라미터"), say("share", "비중")],
            rows: [say("embeddings (one matrix)", "임베딩 (행렬 하나)"), say("encoder", "인코더"), say("decoder", "디코더")],
            cells: [embeddings, encoder, decoder].map((count) => [show(count), `${((100 * count) / total).toFixed(1)} %`]),
          }),
        ],
      };
    },
  };
}

export const TRAINING_WIDGETS = {
  "embedding-scale": embeddingScale,
  "rate-schedule": rateSchedule,
  "label-smoothing": labelSmoothing,
  "beam-tree": beamTree,
  "parameter-count": parameterCount,
};
