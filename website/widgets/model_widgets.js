// Widgets that run the model of the book on the reader's sentence.

import { TOKEN_TEXTS, readableToken, readableTokens } from "../../src/manyheads/look/assets/token_text.js";
import { headKey } from "../../src/manyheads/look/live/transformer.js";
import { takeHead } from "../../src/manyheads/look/live/translator.js";
import { loadBookModel } from "./book_model.js";
import { dot, entropyBits, previousShare, softmax } from "./book_numbers.js";
import { createTable, formatNumber } from "./widget_figures.js";
import { say } from "./widget_frame.js";

const SENTENCE = "The teacher gives the student a book.";

// Tokens as the attention page shows them.
const tokenTexts = say(TOKEN_TEXTS.en, TOKEN_TEXTS.ko);
const readTokens = (tokens) => readableTokens(tokens, tokenTexts);

let translator = null;

const prepare = async () => {
  translator = await loadBookModel();
};

const sentenceControl = () => ({ name: "text", label: say("English sentence", "영어 문장"), type: "text", value: SENTENCE, lang: "en" });

// The translation of a text, and all that the model computed on the way; the latest is kept for other widgets.
let latest = { text: null };
function runModel(text) {
  if (latest.text !== text) {
    const sentence = translator.translateSentence(text);
    latest = { text, sentence, steps: translator.walk(sentence.sourceIds, sentence.ids) };
  }
  return latest;
}

function findStep(steps, place) {
  return steps.find((step) => Object.entries(place).every(([key, value]) => step[key] === value));
}

// The vector of a head at a token, of a step with axes T H K. [K]
function takeVector({ shape: [, heads, width], values }, token, head) {
  const start = (token * heads + head) * width;
  return Array.from(values.slice(start, start + width));
}

const listNumbers = (count) => Array.from({ length: count }, (_, index) => [String(index + 1), String(index + 1)]);
const listLayers = (stack) => listNumbers(translator.numLayers[stack]);
const listHeads = () => listNumbers(translator.config.heads);
// Of attentions with different numbers of layers, those that all have.
const listCommonLayers = () => listNumbers(Math.min(...Object.values(translator.numLayers)));

// Attention of one head of the encoder, from queries and keys, with a factor of the reader's choice.
async function attentionOfSentence() {
  await prepare();
  return {
    title: say("A head of a trained model", "학습된 모델의 헤드"),
    controls: [
      sentenceControl(),
      { name: "layer", label: say("encoder layer", "인코더 층"), type: "choice", value: "1", options: listLayers("encoder") },
      { name: "head", label: say("head", "헤드"), type: "choice", value: "1", options: listHeads() },
      {
        ...{ name: "factor", label: say("factor of q · k", "q · k에 곱하는 수"), type: "choice", value: "scaled" },
        options: [["scaled", "1/√d_k"], ["none", say("1 (no scale)", "1 (스케일 없음)")], ["tenth", "1/(10 √d_k)"]],
      },
    ],
    draw({ text, layer, head, factor }) {
      const { sentence, steps } = runModel(text);
      const place = { stack: "encoder", layer: Number(layer) - 1, part: "self" };
      const [queries, keys] = ["query", "key"].map((name) => findStep(steps, { ...place, name }));
      const width = queries.shape[2];
      const scale = { scaled: 1 / Math.sqrt(width), none: 1, tenth: 0.1 / Math.sqrt(width) }[factor];
      const names = readTokens(sentence.sourceTokens);
      const weights = names.map((_, i) => {
        const query = takeVector(queries, i, Number(head) - 1);
        return softmax(names.map((_, j) => dot(query, takeVector(keys, j, Number(head) - 1)) * scale));
      });
      const mean = weights.reduce((sum, row) => sum + entropyBits(row), 0) / weights.length;
      return {
        summary: say(
          `d_k = ${width}; mean entropy of the rows ${formatNumber(mean)} bits of at most ${formatNumber(Math.log2(names.length))}. Translation: ${sentence.text}`,
          `d_k = ${width}, 행의 평균 엔트로피는 ${formatNumber(mean)}비트(최대 ${formatNumber(Math.log2(names.length))})입니다. 번역: ${sentence.text}`,
        ),
        parts: [
          createTable({
            caption: say("weights: a row for each query, a column for each key", "가중치: 행은 쿼리, 열은 키"),
            ...{ columns: names, rows: names, cells: weights },
            format: (weight) => weight.toFixed(2),
            shade: (row, column) => weights[row][column],
          }),
        ],
      };
    },
  };
}

// ---- maps of all heads

const ATTENTIONS = () => [
  ["encoder", say("encoder, self-attention", "인코더 셀프 어텐션")],
  ["decoder", say("decoder, self-attention", "디코더 셀프 어텐션")],
  ["cross", say("decoder, over the source", "디코더, 원문에 대해")],
];

const attentionControl = (value) => ({ name: "attention", label: say("attention", "어텐션"), type: "choice", value, options: ATTENTIONS() });

// The maps of a layer, with the names of rows and columns.
function readMaps(text, attention, layer, cuts = null) {
  const { sentence } = runModel(text);
  const { maps } = translator.attention(sentence.sourceIds, sentence.ids, { cuts });
  const map = maps[attention][layer];
  const [source, target] = [sentence.sourceTokens, ["<s>", ...sentence.tokens]].map(readTokens);
  const rows = attention === "encoder" ? source : target;
  const columns = attention === "decoder" ? target : source;
  const heads = Array.from({ length: map.heads }, (_, head) => {
    const { weights } = takeHead(map, head);
    return rows.map((_, row) => Array.from(weights.slice(row * map.columns, (row + 1) * map.columns)));
  });
  return { sentence, rows, columns, heads };
}

// What each head of a layer attends to most, and the translation without one of them.
async function headsOfSentence() {
  await prepare();
  const cutOptions = [["none", say("none", "없음")], ...listHeads()];
  return {
    title: say("What several heads see", "여러 헤드가 보는 것"),
    controls: [
      sentenceControl(),
      attentionControl("cross"),
      { name: "layer", label: say("layer", "층"), type: "choice", value: "1", options: listCommonLayers() },
      { name: "cut", label: say("without head", "끄는 헤드"), type: "choice", value: "none", options: cutOptions },
    ],
    draw({ text, attention, layer, cut }) {
      const { sentence, rows, columns, heads } = readMaps(text, attention, Number(layer) - 1);
      const cuts = new Set(cut === "none" ? [] : [headKey(attention, Number(layer) - 1, Number(cut) - 1)]);
      const changed = translator.translateSentence(text, { cuts });
      const before = translator.score(sentence.sourceIds, sentence.ids).reduce((sum, x) => sum + x, 0);
      const after = translator.score(sentence.sourceIds, sentence.ids, { cuts }).reduce((sum, x) => sum + x, 0);
      return {
        summary: say(
          `Translation: ${changed.text} (log p of “${sentence.text}”: ${before.toFixed(2)} with all heads, ${after.toFixed(2)} now)`,
          `번역: ${changed.text} (“${sentence.text}”의 log p: 모든 헤드로 ${before.toFixed(2)}, 지금 ${after.toFixed(2)})`,
        ),
        parts: [
          createTable({
            caption: say("the word with the largest weight, by head", "헤드별로 가중치가 가장 큰 단어"),
            columns: heads.map((_, head) => `${say("head", "헤드")} ${head + 1}`),
            rows,
            cells: rows.map((_, row) => heads.map((map) => `${columns[findPeak(map[row])]} ${Math.max(...map[row]).toFixed(2)}`)),
            shade: (row, head) => (cut === String(head + 1) ? 0 : Math.max(...heads[head][row])),
          }),
        ],
      };
    },
  };
}

const findPeak = (weights) => weights.indexOf(Math.max(...weights));

// The decoder's own words: nothing after a position has a weight.
async function maskOfSentence() {
  await prepare();
  return {
    title: say("The mask in a trained decoder", "학습된 디코더의 마스크"),
    controls: [
      sentenceControl(),
      { name: "layer", label: say("decoder layer", "디코더 층"), type: "choice", value: "1", options: listLayers("decoder") },
      { name: "head", label: say("head", "헤드"), type: "choice", value: "1", options: listHeads() },
    ],
    draw({ text, layer, head }) {
      const { sentence, rows, heads } = readMaps(text, "decoder", Number(layer) - 1);
      const weights = heads[Number(head) - 1];
      const future = weights.flatMap((row, i) => row.slice(i + 1));
      return {
        summary: say(
          `The largest of the ${future.length} weights on later words is ${Math.max(0, ...future)}. Translation: ${sentence.text}`,
          `뒤에 오는 단어의 가중치 ${future.length}개 가운데 가장 큰 것은 ${Math.max(0, ...future)}입니다. 번역: ${sentence.text}`,
        ),
        parts: [
          createTable({
            caption: say(`layer ${layer}, head ${head}: what each position of the decoder sees`, `${layer}층 헤드 ${head}: 디코더의 위치마다 보는 것`),
            ...{ columns: rows, rows, cells: weights },
            format: (weight) => weight.toFixed(2),
            shade: (row, column) => weights[row][column],
          }),
        ],
      };
    },
  };
}

// How many hidden units of the feed-forward layer are above zero at each token.
async function unitsOfSentence() {
  await prepare();
  return {
    title: say("Hidden units of a trained feed-forward layer", "학습된 피드포워드 층의 은닉 유닛"),
    controls: [
      sentenceControl(),
      { name: "layer", label: say("encoder layer", "인코더 층"), type: "choice", value: "1", options: listLayers("encoder") },
    ],
    draw({ text, layer }) {
      const { sentence, steps } = runModel(text);
      const { shape, values } = findStep(steps, { stack: "encoder", layer: Number(layer) - 1, part: "feed_forward", name: "hidden" });
      const names = readTokens(sentence.sourceTokens);
      const rows = names.map((_, token) => {
        const units = Array.from(values.slice(token * shape[1], (token + 1) * shape[1]));
        return { active: units.filter((unit) => unit > 0).length, top: findPeak(units), value: Math.max(...units) };
      });
      const mean = rows.reduce((sum, { active }) => sum + active, 0) / rows.length / shape[1];
      return {
        summary: say(
          `On average ${formatNumber(100 * mean)} % of the ${shape[1]} units are above zero (layer ${layer}).`,
          `평균하여 유닛 ${shape[1]}개 가운데 ${formatNumber(100 * mean)} %가 0보다 큽니다(${layer}층).`,
        ),
        parts: [
          createTable({
            caption: say("units above zero, by token", "토큰별로 0보다 큰 유닛"),
            columns: [say("above zero", "0보다 큰 수"), say("largest unit", "가장 큰 유닛"), say("its value", "그 값")],
            ...{ rows: names, cells: rows.map(({ active, top, value }) => [active, String(top), value]) },
            shade: (row, column) => (column === 0 ? rows[row].active / shape[1] : 0),
          }),
        ],
      };
    },
  };
}

// Subwords whose embeddings point in the direction of a word's.
async function neighborsOfWord() {
  await prepare();
  return {
    title: say("Words near a word, in the shared matrix", "공유 행렬에서 한 단어의 이웃"),
    controls: [{ name: "text", label: say("a word, English or Korean", "단어 하나, 영어나 한국어"), type: "text", value: "teacher", maxLength: 40 }],
    draw({ text }) {
      const { rows, numIn, numOut } = translator.model.sourceEmbedding;
      const [id] = translator.source.encode(text);
      if (id === undefined) return { summary: say("Write a word.", "단어를 쓰세요."), parts: [] };
      const take = (index) => rows.subarray(index * numIn, (index + 1) * numIn);
      const norm = (vector) => Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0)) || 1;
      const own = take(id);
      const cosines = Array.from({ length: numOut }, (_, other) => take(other).reduce((sum, x, i) => sum + x * own[i], 0) / norm(take(other)) / norm(own));
      const nearest = cosines.map((_, index) => index).filter((index) => index !== id).sort((a, b) => cosines[b] - cosines[a]).slice(0, 6);
      const [name, ...names] = translator.source.listPieces([id, ...nearest]).map((piece) => readableToken(piece, tokenTexts));
      return {
        summary: say(`Nearest to “${name}”: ${names.slice(0, 3).join(", ")}`, `“${name}”에 가장 가까운 것: ${names.slice(0, 3).join(", ")}`),
        parts: [
          createTable({
            caption: say("cosine of the embeddings", "임베딩의 코사인"),
            columns: [say("cosine", "코사인")],
            ...{ rows: names, cells: nearest.map((index) => [cosines[index]]) },
            shade: (row) => cosines[nearest[row]],
          }),
        ],
      };
    },
  };
}

async function beamOfSentence() {
  await prepare();
  return {
    title: say("Search with a trained model", "학습된 모델의 서치"),
    controls: [
      sentenceControl(),
      { name: "beam", label: say("beam", "빔"), type: "range", min: 1, max: 8, value: 4 },
      { name: "alpha", label: "α", type: "range", min: 0, max: 2, step: 0.2, value: 0.6, format: (x) => x.toFixed(1) },
    ],
    draw({ text, beam, alpha }) {
      const result = translator.translateSentence(text, { beam, alpha, nbest: beam });
      const total = result.scores.reduce((sum, score) => sum + score, 0);
      return {
        summary: say(
          `${result.text} — log p ${total.toFixed(3)}, with the length penalty of α = ${alpha.toFixed(1)} ${result.score.toFixed(3)}, beam ${beam}.`,
          `${result.text} — log p ${total.toFixed(3)}, α = ${alpha.toFixed(1)}의 길이 페널티로 ${result.score.toFixed(3)}, 빔 ${beam}.`,
        ),
        parts: [
          createTable({
            caption: say("log p of each token, and of the end", "토큰마다의 log p, 끝 표시까지"),
            columns: readTokens([...result.tokens, "</s>"]),
            rows: ["log p"],
            cells: [result.scores],
            shade: (row, column) => Math.exp(result.scores[column]),
          }),
          ...result.alternatives.length
            ? [createTable({ caption: say("the other results of the beam", "빔의 다른 결과"), columns: [say("text", "글")], rows: result.alternatives.map((_, i) => String(i + 2)), cells: result.alternatives.map((own) => [own]) })]
            : [],
        ],
      };
    },
  };
}

// Simple measures of every head: how sharp, how far, and where.
async function measuresOfHeads() {
  await prepare();
  return {
    title: say("Measures of every head", "모든 헤드를 재기"),
    controls: [sentenceControl(), attentionControl("encoder"), { name: "layer", label: say("layer", "층"), type: "choice", value: "1", options: listCommonLayers() }],
    draw({ text, attention, layer }) {
      const { columns, heads } = readMaps(text, attention, Number(layer) - 1);
      const mean = (map, value) => map.reduce((sum, row, i) => sum + row.reduce((part, weight, j) => part + weight * value(i, j), 0), 0) / map.length;
      const rows = heads.map((map) => [
        map.reduce((sum, row) => sum + entropyBits(row), 0) / map.length,
        mean(map, (i, j) => (i === j ? 1 : 0)),
        previousShare(map),
        mean(map, (i, j) => Math.abs(i - j)),
        mean(map, (i, j) => (j === columns.length - 1 ? 1 : 0)),
      ]);
      const sharpest = findPeak(rows.map(([entropy]) => -entropy));
      return {
        summary: say(
          `Layer ${layer}: the sharpest head is ${sharpest + 1}, with an entropy of ${formatNumber(rows[sharpest][0])} bits of at most ${formatNumber(Math.log2(columns.length))}.`,
          `${layer}층에서 어텐션이 가장 한곳에 몰린 헤드는 ${sharpest + 1}번으로, 엔트로피가 ${formatNumber(rows[sharpest][0])}비트(최대 ${formatNumber(Math.log2(columns.length))})입니다.`,
        ),
        parts: [
          createTable({
            caption: say("means over the rows of this sentence", "이 문장의 행에 대한 평균"),
            columns: [say("entropy, bits", "엔트로피, 비트"), say("on the same position", "같은 위치"), say("one before", "바로 앞"), say("mean distance", "평균 거리"), say("on the last token", "마지막 토큰")],
            rows: heads.map((_, head) => `${say("head", "헤드")} ${head + 1}`),
            cells: rows,
            shade: (row, column) => ([1, 2, 4].includes(column) ? rows[row][column] : 0),
          }),
        ],
      };
    },
  };
}

// A widget that asks for a sentence where there is none, instead of a translation of nothing.
const withSentence = (create) => async () => {
  const widget = await create();
  const empty = { summary: say("Write an English sentence.", "영어 문장을 쓰세요."), parts: [] };
  return { ...widget, draw: (state) => (state.text.trim() ? widget.draw(state) : empty) };
};

export const MODEL_WIDGETS = {
  "attention-of-sentence": withSentence(attentionOfSentence),
  "heads-of-sentence": withSentence(headsOfSentence),
  "mask-of-sentence": withSentence(maskOfSentence),
  "units-of-sentence": withSentence(unitsOfSentence),
  "neighbors-of-word": neighborsOfWord,
  "beam-of-sentence": withSentence(beamOfSentence),
  "measures-of-heads": withSentence(measuresOfHeads),
};
