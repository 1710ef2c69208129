// How tokens are shown to people: without the mark of a space, and with a dot where a token continues a word.

import { BOS_ID, EOS_ID } from "./subwords.js";

const CONTINUES_WORD = /^[\p{L}\p{N}\p{M}]/u;

export function labelTokens(subwords, ids, texts) {
  return ids.map((id, index) => {
    if (id === EOS_ID) return texts.end;
    if (id === BOS_ID) return texts.begin;
    const piece = subwords.describe(id);
    const isInside = index > 0 && ![BOS_ID, EOS_ID].includes(ids[index - 1]) && !subwords.startsWord(id);
    return isInside && (CONTINUES_WORD.test(piece) || subwords.isByte(id)) ? `·${piece}` : piece;
  });
}
