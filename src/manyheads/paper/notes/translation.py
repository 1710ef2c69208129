"""Small translation models of the built-in English and Korean, for two of the questions."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch

from manyheads import playground
from manyheads.config import BOS_ID, EOS_ID, SubwordConfig, TrainConfig, TransformerConfig
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.learning import LabeledBatch, build_model, ignore_progress, train_model
from manyheads.progress import ReportProgress, make_counter
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.translator import Translator

PAIR = "en-ko"
CONSTRUCTIONS = ("tense", "negation", "possessive", "number", "adjective", "time", "place")
WORDS_PER_CLASS = 6
TRAIN_SENTENCES, VALID_SENTENCES = 4000, 300
VOCAB_SIZE = 900  # nearly every word is one subword
BATCH_SENTENCES = 64
Ids = tuple[list[int], list[int]]


@dataclass(frozen=True)
class TranslationData:
    """Sentence pairs as token ids, and their subwords."""

    subwords: SubwordTokenizer
    train: list[Ids]
    valid: list[Ids]

    @classmethod
    def generate(
        cls, train: int = TRAIN_SENTENCES, valid: int = VALID_SENTENCES, vocab_size: int = VOCAB_SIZE
    ) -> Self:
        corpus = playground.generate_corpus(
            PAIR, train=train, valid=valid, test=0, seed=1, constructions=CONSTRUCTIONS, words=WORDS_PER_CLASS
        )
        texts = [text for pair in corpus["train"] for text in pair]
        config = SubwordConfig(
            vocab_size=vocab_size,
            byte_fallback=False,
            copy_symbols=False,
            term_symbols=False,
            character_coverage=1.0,
        )
        subwords = SubwordTokenizer.train(texts, config)
        ids = {
            split: [(subwords.encode(source), subwords.encode(target)) for source, target in corpus[split]]
            for split in ("train", "valid")
        }
        return cls(subwords, ids["train"], ids["valid"])

    def make_sampler(self, seed: int, num_sentences: int = BATCH_SENTENCES) -> Callable[[], LabeledBatch]:
        generator = random.Random(seed)
        return lambda: make_batch(generator.sample(self.train, num_sentences))

    def model_config(self) -> TransformerConfig:
        return TransformerConfig(
            vocab_size=len(self.subwords), layers=2, d_model=64, d_ff=256, heads=4, dropout=0.0
        )


def make_batch(pairs: list[Ids]) -> LabeledBatch:
    """Make a batch: source = tokens + end; decoder input = begin + tokens; labels = tokens + end."""
    return LabeledBatch(
        source=Packed.of([[*source, EOS_ID] for source, _ in pairs]),
        inputs=Packed.of([[BOS_ID, *target] for _, target in pairs]),
        labels_T=torch.tensor([word for _, target in pairs for word in (*target, EOS_ID)]),
    )


def train_translation_model(
    data: TranslationData,
    smoothing: float,
    steps: int,
    report_progress: ReportProgress = ignore_progress,
    stage: str = "translation",
) -> Transformer:
    model = build_model(data.model_config())
    train = TrainConfig(
        steps=steps,
        warmup=max(1, steps // 5),
        learning_rate=4e-3,
        schedule="linear",
        label_smoothing=smoothing,
    )
    train_model(model, data.make_sampler(1), train, make_counter(report_progress, stage, steps))
    return model.eval()


def make_translator(model: Transformer, data: TranslationData) -> Translator:
    source, target = PAIR.split("-")
    pair = SubwordPair(data.subwords, data.subwords)
    return Translator(TorchEngine(model), pair, {"source": source, "target": target})
