// Tokens as people read them. A subword model marks the start of a word with ▁ and writes rare characters as bytes.

export const WORD_START = "\u2581";
const BYTE = /^<0x([0-9A-F]{2})>$/;

// What the texts of every page have for tokens that spell nothing.
export const TOKEN_TEXTS = {
  en: { beginToken: "[start]", endToken: "[end]", unknownToken: "[unknown]", byteToken: (byte) => `[byte ${byte}]` },
  ko: { beginToken: "[시작]", endToken: "[끝]", unknownToken: "[모르는 토큰]", byteToken: (byte) => `[바이트 ${byte}]` },
};

// "▁ho", "me", "." are "ho", "·me", "."; a character of three bytes is "가 1/3", "가 2/3", "가 3/3"; a space alone is ␣.
export function readableTokens(tokens, texts) {
  const readable = tokens.map((token) => readableToken(token, texts));
  for (const { start, bytes } of findByteRuns(tokens)) {
    for (const { text, first, count } of decodeCharacters(bytes)) {
      for (let n = 0; n < count; n++) readable[start + first + n] = count > 1 ? `${text} ${n + 1}/${count}` : text;
    }
  }
  return readable;
}

// One token without its neighbors, such as a candidate.
export function readableToken(token, texts) {
  if (token === "<s>") return texts.beginToken;
  if (token === "</s>") return texts.endToken;
  if (token === "<unk>") return texts.unknownToken;
  const byte = BYTE.exec(token);
  if (byte) return texts.byteToken(byte[1]);
  if (token.startsWith(WORD_START)) return token.slice(1).replaceAll(WORD_START, " ") || "\u2423";
  return /^[\p{P}\p{S}]+$/u.test(token) ? token : `·${token}`;
}

// Names of the begin and end tokens among words, which have no other marks.
export function readableWord(word, texts) {
  return word === "<s>" ? texts.beginToken : word === "</s>" ? texts.endToken : word;
}

function findByteRuns(tokens) {
  const runs = [];
  tokens.forEach((token, n) => {
    const byte = BYTE.exec(token);
    if (!byte) return;
    const last = runs.at(-1);
    if (last && last.start + last.bytes.length === n) last.bytes.push(parseInt(byte[1], 16));
    else runs.push({ start: n, bytes: [parseInt(byte[1], 16)] });
  });
  return runs;
}

// The characters of UTF-8, each with its first byte and their number; bytes that are no text are left out.
function decodeCharacters(bytes) {
  const characters = [];
  for (let first = 0; first < bytes.length; ) {
    const lead = bytes[first];
    const count = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    const text = new TextDecoder().decode(new Uint8Array(bytes.slice(first, first + count)));
    const isWhole = first + count <= bytes.length && !text.includes("\ufffd");
    if (isWhole) characters.push({ text: text.trim() || "\u2423", first, count });
    first += isWhole ? count : 1;
  }
  return characters;
}
