// Which words of a text differ from another: [{word, isNew}], by their longest common subsequence. On request, what the
// text leaves out of the other is among them, one or several words: {word, isOmitted}.

export function compareWords(text, other, { withOmitted = false } = {}) {
  const [words, others] = [text, other].map((own) => own.split(/\s+/).filter(Boolean));
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      lengths[i][j] =
        words[i] === others[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const marked = [];
  for (let [i, j] = [0, 0]; i < words.length || (withOmitted && j < others.length); ) {
    if (i < words.length && j < others.length && words[i] === others[j]) {
      marked.push({ word: words[i], isNew: false });
      [i, j] = [i + 1, j + 1];
    } else if (i === words.length || (j < others.length && lengths[i][j + 1] > lengths[i + 1][j])) {
      if (withOmitted && marked.at(-1)?.isOmitted) marked.at(-1).word += ` ${others[j]}`;
      else if (withOmitted) marked.push({ word: others[j], isOmitted: true });
      j++;
    } else marked.push({ word: words[i++], isNew: true });
  }
  return marked;
}
