// Text before it is encoded and after it is decoded: sentences, capitals, characters that the subwords do not know.
//
// Of what src/manyheads/pipeline does, the page leaves out: sentencex (sentences are split by the rules that Python has
// for Korean), and text that is copied (numbers, addresses, emoji), which the model translates as it can.

const LINE_BREAKS = /(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])+/g;
const CLOSING_MARKS = "[\"'”’»›)\\]}」』）】》〉]*";
const SENTENCE_END = new RegExp(
  `(?<![.!?…])[.!?…]+${CLOSING_MARKS}(?=\\s)|(?<![。！？])[。！？]+${CLOSING_MARKS}`,
  "g",
);
const NOT_SENTENCE_END =
  /(?:^\s*\d{1,3}|(?:^|\s)(?:\p{L}|Mr|Mrs|Ms|Dr|Prof|St|No|vs|cf|e\.g|i\.e|etc|z\.B|bzw|ca|Nr))\.$/iu;
// Where a long sentence may be split: after punctuation rather than between words.
const BREAKS = [/[;:—–؛；：]\s+|[；：]/g, /[,،，、]\s+|[，、]/g, /\s+/g];
const HAS_WORDS = /[\p{L}\p{N}]/u;
const ASCII_MARKS = Object.fromEntries(
  [...`‘'’'‚'‛'′'“"”"„"‟"″"«"»"–-—-−-―-`].reduce(
    (pairs, mark, index, marks) => (index % 2 ? pairs : [...pairs, [mark, marks[index + 1]]]),
    [["…", "..."]],
  ),
);
const INVISIBLE = /[\p{Cc}\p{Cf}]/u;
const WORD = /\p{L}{2,}/gu;
const [MIN_LONGEST, MIN_SINGLE] = [4, 6]; // letters of the longest of several words in capitals, and of one alone
const COPY_SYMBOL = /\u27e6[0-7t=/]\u27e7/g;

// [{text, isTranslated}]: sentences and what is between them. Together they are the text. Sentences that do not fit are
// split where possible.
export function splitText(text, fits) {
  return splitLines(text).flatMap((segment) =>
    segment.isTranslated ? splitLong(segment.text, fits).flatMap(splitEdges) : [segment],
  );
}

function splitLong(text, fits) {
  const position = fits(text) ? null : findBreak(text);
  if (position === null) return [text];
  return [...splitLong(text.slice(0, position), fits), ...splitLong(text.slice(position), fits)];
}

// Nearest to the middle, after a semicolon, colon or dash if there is one, else after a comma, else between words.
function findBreak(text) {
  const length = text.trimEnd().length;
  for (const pattern of BREAKS) {
    const ends = [...text.matchAll(pattern)].filter((match) => match.index > 0).map((match) => match.index + match[0].length);
    const positions = ends.filter((end) => end < length);
    const central = positions.filter((end) => length / 5 <= end && end <= (length * 4) / 5);
    const chosen = central.length || pattern !== BREAKS.at(-1) ? central : positions;
    if (chosen.length)
      return chosen.reduce((a, b) => (Math.abs(b - length / 2) < Math.abs(a - length / 2) ? b : a));
  }
  return null;
}

function splitLines(text) {
  const segments = [];
  let start = 0;
  for (const match of text.matchAll(LINE_BREAKS)) {
    segments.push(...splitLine(text.slice(start, match.index)), { text: match[0], isTranslated: false });
    start = match.index + match[0].length;
  }
  return [...segments, ...splitLine(text.slice(start))];
}

function splitLine(line) {
  const sentences = [];
  let start = 0;
  for (const match of line.matchAll(SENTENCE_END)) {
    const end = match.index + match[0].length;
    if (end >= line.length || NOT_SENTENCE_END.test(line.slice(start, end))) continue;
    const next = line.length - line.slice(end).trimStart().length;
    sentences.push(line.slice(start, next));
    start = next;
  }
  return [...sentences, line.slice(start)].flatMap(splitEdges);
}

function splitEdges(text) {
  const content = text.trim();
  const start = text.indexOf(content);
  return [
    { text: text.slice(0, start), isTranslated: false },
    { text: content, isTranslated: HAS_WORDS.test(content) },
    { text: text.slice(start + content.length), isTranslated: false },
  ].filter((segment) => segment.text);
}

// Unknown quotes and dashes in ASCII, without unknown control characters and the like.
function simplifyMarks(text, known) {
  const isKnown = (character) => known.has(character) || (character >= " " && character <= "~");
  return [...text]
    .filter((character) => isKnown(character) || /\s/.test(character) || !INVISIBLE.test(character))
    .map((character) => (isKnown(character) ? character : (ASCII_MARKS[character] ?? character)))
    .join("");
}

function toCapitals(text) {
  return text.replaceAll("ß", "ẞ").toUpperCase();
}

function isAllCapitals(text) {
  if (!/\p{Lu}/u.test(text) || /\p{Ll}/u.test(text)) return false;
  const lengths = (text.match(WORD) ?? []).filter((word) => /\p{Lu}/u.test(word)).map((word) => [...word].length);
  return lengths.length > 0 && Math.max(...lengths) >= (lengths.length === 1 ? MIN_SINGLE : MIN_LONGEST);
}

function toSentenceCase(text, language) {
  let lower = text.toLowerCase();
  if (toCapitals(lower) !== text)
    lower = [...text].map((c) => (toCapitals(c.toLowerCase()) === c ? c.toLowerCase() : c)).join("");
  if (language.split("-")[0].toLowerCase() === "en") lower = lower.replace(/(?<![\p{L}\p{N}_])i(?![\p{L}\p{N}_])/gu, "I");
  const first = lower.search(/\p{L}/u);
  return first < 0 ? lower : lower.slice(0, first) + text[first] + lower.slice(first + 1);
}

// What is encoded of a sentence, and whether its translation is put in capitals again.
export function prepareSentence(text, subwords, language) {
  const isUpper = isAllCapitals(text);
  return { encoded: simplifyMarks(isUpper ? toSentenceCase(text, language) : text, subwords.knownCharacters), isUpper };
}

// The text of an output: no broken bytes, no copy symbols, one line, NFC.
export function cleanOutput(output, source, isUpper) {
  let text = output.replace(LINE_BREAKS, " ");
  if (text.includes("\ufffd") && !source.includes("\ufffd"))
    text = text.replaceAll("\ufffd", "").split(/\s+/).filter(Boolean).join(" ");
  if (COPY_SYMBOL.test(text)) text = text.replace(COPY_SYMBOL, "").split(/\s+/).filter(Boolean).join(" ");
  text = text.normalize("NFC");
  return isUpper ? toCapitals(text) : text;
}
