"""What a head is worth: BLEU when its output is cut, for each head of the encoder's self-attention alone.

A head is cut by zeros in the columns of W_O that read it. Whether a chosen head matters is judged beside all
others: each of them is cut too.

Shapes: L layers, H heads.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from manyheads.errors import RequestError
from manyheads.evaluate.bleu import bleu, bleu_tokenizer
from manyheads.evaluate.significance import bleu_statistics, bootstrap_bleu_difference
from manyheads.model.transformer import Transformer
from manyheads.paper.trials import BOOTSTRAP_SAMPLES
from manyheads.progress import ReportProgress
from manyheads.translator import Translator

Head = tuple[int, int]  # layer and head, from 0


@dataclass(frozen=True)
class HeadAblation:
    """BLEU of the whole model and of the model without each head; greedy search."""

    bleu: float
    signature: str
    num_sentences: int
    cut_bleu: list[list[float]]  # [L][H]
    margins: list[list[float]]  # of the difference, 95 %, by paired bootstrap over sentences [L][H]

    def difference(self, head: Head) -> float:
        """Return BLEU without the head minus BLEU with it."""
        return self.cut_bleu[head[0]][head[1]] - self.bleu

    @property
    def mean_difference(self) -> float:
        """The mean over all heads: what a head chosen at random is worth."""
        return float(np.mean(self.cut_bleu)) - self.bleu

    def rank(self, head: Head) -> int:
        """Return how many heads cost at least as much BLEU as this one, itself included."""
        return int((np.array(self.cut_bleu) <= self.cut_bleu[head[0]][head[1]]).sum())

    @property
    def num_heads(self) -> int:
        return sum(map(len, self.cut_bleu))

    def describe(self, head: Head) -> str:
        difference, margin = self.difference(head), self.margins[head[0]][head[1]]
        side = "within" if abs(difference) <= margin else "beyond"
        average = self.bleu + self.mean_difference
        return (
            f"Without this head BLEU is {self.bleu + difference:.2f} ({difference:+.2f} ± {margin:.2f}, "
            f"{side} the margin of chance); without an average head {average:.2f} "
            f"({self.mean_difference:+.2f}). "
            f"By this loss it is number {self.rank(head)} of {self.num_heads}."
        )


def ablate_heads(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> HeadAblation:
    """Translate the sentences by the whole model, then without each head, and compare the BLEU."""
    engine: Any = translator.engine
    model = engine.model
    if not isinstance(model, Transformer):
        raise RequestError("heads are cut in a single Transformer: give a model of that architecture")
    language = translator.target_language
    whole = translate(translator, sources)
    score = bleu(whole, references, language)
    whole_statistics = count_ngrams(whole, references, language)
    cut_bleu: list[list[float]] = []
    margins: list[list[float]] = []
    total = model.config.encoder_layers * model.config.heads
    for layer in range(model.config.encoder_layers):
        cut_bleu.append([])
        margins.append([])
        for head in range(model.config.heads):
            with cut_head(engine, (layer, head)):
                translations = translate(translator, sources)
            statistics = count_ngrams(translations, references, language)
            cut_bleu[-1].append(bleu(translations, references, language).value)
            margins[-1].append(bootstrap_bleu_difference(statistics, whole_statistics, BOOTSTRAP_SAMPLES))
            report_progress("cutting heads", layer * model.config.heads + head + 1, total)
    return HeadAblation(score.value, score.signature, len(sources), cut_bleu, margins)


def translate(translator: Translator, sources: Sequence[str]) -> list[str]:
    """Translate by greedy search, each source as one sentence, without a second try."""
    options = {"beam": 1, "nbest": 1, "split": False, "corrections": False, "second_try": False}
    results = translator.translate(sources, **options)
    return [result.text for result in results]


def count_ngrams(translations: Sequence[str], references: Sequence[str], language: str) -> Any:
    """Return the counts that BLEU is computed from, as the bootstrap reads them. [1, sentences, 10]"""
    return np.array([bleu_statistics(translations, [references], bleu_tokenizer(language))], np.int64)


@contextmanager
def cut_head(engine: Any, head: Head) -> Iterator[None]:
    """Run the model of a torch engine without the output of one head of the encoder's self-attention."""
    layer, index = head
    weight = engine.model.encoder[layer].self_attention.w_o.weight
    width = engine.model.config.head_dim_v
    columns = weight.data[:, index * width : (index + 1) * width]
    kept = columns.clone()
    try:
        columns.zero_()
        engine.refresh_weights()
        yield
    finally:
        with torch.no_grad():
            columns.copy_(kept)
        engine.refresh_weights()
