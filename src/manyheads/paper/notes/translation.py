"""Small translators for two of the questions, who learn the built-in English and Korean."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch

from manyheads import playground
from manyheads.config import BOS_ID, EOS_ID, ModelConfig, SubwordConfig, TrainConfig
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.learning import Lesson, fresh, learn, untold
from manyheads.progress import ReportProgress, make_counter
from manyheads.text.subwords import SubwordPair, Subwords
from manyheads.translator import Translator

PAIR = "en-ko"
CONSTRUCTIONS = ("tense", "negation", "possessive", "number", "adjective", "time", "place")
WORDS = 6  # of each class
TRAIN, VALID = 4000, 300  # sentences
VOCABULARY = 900  # nearly every word is one piece
SENTENCES = 64  # of a batch
Ids = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Material:
    """Sentence pairs as ids, and the subwords that they are made of."""

    subwords: Subwords
    train: list[Ids]
    valid: list[Ids]

    @classmethod
    def made(cls, train: int = TRAIN, valid: int = VALID, vocabulary: int = VOCABULARY) -> Self:
        corpus = playground.corpus(
            PAIR, train=train, valid=valid, test=0, seed=1, constructions=CONSTRUCTIONS, words=WORDS
        )
        texts = [text for pair in corpus["train"] for text in pair]
        how = SubwordConfig(vocab_size=vocabulary, byte_fallback=False, character_coverage=1.0)
        subwords = Subwords.train(texts, how)
        ids = {
            split: [(subwords.encode(source), subwords.encode(target)) for source, target in corpus[split]]
            for split in ("train", "valid")
        }
        return cls(subwords, ids["train"], ids["valid"])

    def lessons(self, seed: int, sentences: int = SENTENCES) -> Callable[[], Lesson]:
        chance = random.Random(seed)
        return lambda: lesson_of(chance.sample(self.train, sentences))

    def model_config(self) -> ModelConfig:
        return ModelConfig(
            vocab_size=len(self.subwords), layers=2, d_model=64, d_ff=256, heads=4, dropout=0.0
        )


def lesson_of(pairs: list[Ids]) -> Lesson:
    """Source = tokens + end; what the decoder reads = begin + tokens; what it is to say = tokens + end."""
    return Lesson(
        source=Packed.of([[*source, EOS_ID] for source, _ in pairs]),
        inputs=Packed.of([[BOS_ID, *target] for _, target in pairs]),
        labels_T=torch.tensor([word for _, target in pairs for word in (*target, EOS_ID)]),
    )


def trained(
    material: Material, smoothing: float, steps: int, tell: ReportProgress = untold, stage: str = "translation"
) -> Transformer:
    model = fresh(material.model_config())
    train = TrainConfig(
        steps=steps,
        warmup=max(1, steps // 5),
        learning_rate=4e-3,
        schedule="linear",
        label_smoothing=smoothing,
    )
    learn(model, material.lessons(1), train, make_counter(tell, stage, steps))
    return model.eval()


def translator_of(model: Transformer, material: Material) -> Translator:
    source, target = PAIR.split("-")
    pair = SubwordPair(material.subwords, material.subwords)
    return Translator(TorchEngine(model), pair, {"source": source, "target": target})
