// How tokens are shown to people: without the mark of a space, with a dot where a token continues a word, and bytes as
// the character that they spell, numbered.

import { BOS_ID, EOS_ID } from "./subwords.js";

const CONTINUES_WORD = /^[\p{L}\p{N}\p{M}]/u;
const SUBSCRIPTS = "₁₂₃₄";

export function labelTokens(subwords, ids, texts) {
  const spelled = labelBytes(subwords, ids);
  return ids.map((id, index) => {
    if (id === EOS_ID) return texts.end;
    if (id === BOS_ID) return texts.begin;
    if (spelled.has(index)) return spelled.get(index);
    const piece = subwords.describe(id);
    const isInside = index > 0 && ![BOS_ID, EOS_ID].includes(ids[index - 1]) && !subwords.startsWord(id);
    return isInside && CONTINUES_WORD.test(piece) ? `·${piece}` : piece;
  });
}

// Labels of bytes by index, of runs that are valid UTF-8 and longer than a byte per character.
function labelBytes(subwords, ids) {
  const labels = new Map();
  for (let start = 0; start < ids.length; start++) {
    let end = start;
    while (end < ids.length && subwords.isByte(ids[end])) end++;
    const text = end > start ? subwords.decode(ids.slice(start, end)) : "";
    if (end - start > text.length && !text.includes("\ufffd")) {
      let index = start;
      for (const character of text) {
        const size = new TextEncoder().encode(character).length;
        for (let byte = 0; byte < size; byte++) labels.set(index++, `${character}${SUBSCRIPTS[byte]}`);
      }
    }
    start = Math.max(start, end - 1);
  }
  return labels;
}
