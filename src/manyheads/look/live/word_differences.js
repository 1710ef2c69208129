// Which words of a text differ from another: [{word, isNew}], by their longest common subsequence.

export function compareWords(text, other) {
  const [words, others] = [text, other].map((own) => own.split(/\s+/).filter(Boolean));
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      lengths[i][j] =
        words[i] === others[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const marked = [];
  for (let [i, j] = [0, 0]; i < words.length; ) {
    if (j < others.length && words[i] === others[j]) [marked[marked.length], i, j] = [{ word: words[i], isNew: false }, i + 1, j + 1];
    else if (j < others.length && lengths[i][j + 1] > lengths[i + 1][j]) j++;
    else [marked[marked.length], i] = [{ word: words[i], isNew: true }, i + 1];
  }
  return marked;
}
