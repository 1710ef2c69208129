"""Glossaries on every path: annotated for models that inflect, forced for others, by any engine."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.config import SubwordConfig
from manyheads.inference.engine import Capabilities
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.text_engine import CAPABILITIES, TextEngine
from support.untrained_model import TEXTS, save_untrained_model

SENTENCES = ["We see the dogs and a cat.", "Wir sehen die Hunde und eine Katze.", "THE DOG GOES HOME NOW"]
SUBWORDS = SubwordTokenizer.train([*TEXTS, *SENTENCES] * 5, SubwordConfig(vocab_size=420))
TERM = re.compile("⟦t⟧ ([^⟦]*)⟦=⟧ ([^⟦]*)⟦/⟧")


def make_translator(
    *functions: Callable[[str], str], engine: Any = None, annotated: bool = True, **options: Any
) -> mh.Translator:
    engine = engine or TextEngine(SUBWORDS, *functions)
    languages = {"source": "en", "target": "de"}
    pair = SubwordPair(SUBWORDS, SUBWORDS)
    return mh.Translator(engine, pair, languages, uses_term_symbols=annotated, **options)


def obey(text: str) -> str:
    """Translate as a trained model does: what is annotated replaces the term, with an ending for plurals."""
    return TERM.sub(lambda term: term[2] + ("e" if term[1].endswith("s") else ""), text)


def ignore(text: str) -> str:
    return TERM.sub(r"\1", text)


def test_a_trained_model_reads_and_inflects_terms() -> None:
    translator = make_translator(obey)
    result = translator.translate("We see the dogs.", glossary={"dog": "Hund"})
    assert translator.engine.sources == ["We see the ⟦t⟧ dogs⟦=⟧ Hund⟦/⟧."]  # type: ignore[attr-defined]
    assert (result.text, result.notes) == ("We see the Hunde.", [])
    assert "".join(result.source_tokens) == "▁We▁see▁the▁dogs.", "the source is shown without annotations"
    assert translator.translate("We see the cat.", glossary={"dog": "Hund"}).text == "We see the cat."


def test_a_sentence_in_capitals_has_terms_too() -> None:
    result = make_translator(obey).translate("THE DOG GOES HOME NOW", glossary={"dog": "Hund"})
    assert result.text == "THE HUND GOES HOME NOW"


class ForcingEngine(TextEngine):
    """Writes the required phrases at the end, as a search does that cannot avoid them."""

    def decode(self, requests: Any, config: Any, **options: Any) -> Any:
        requests = list(requests)
        for index, hypotheses in super().decode(requests, config, **options):
            phrases = requests[index].constraints.required_phrases
            yield (
                index,
                [
                    replace(own, tokens=[*own.tokens, *(token for ids in phrases for token in ids)])
                    for own in hypotheses
                ],
            )


class ScoringEngine(TextEngine):
    """Likes a phrase behind "the", and short translations. It cannot be required to write one."""

    capabilities: Capabilities = replace(CAPABILITIES, required_phrases=False)

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        self.num_scored = len(targets)
        return [[-1.0 if "the Hund" in SUBWORDS.decode(ids) else -9.0] * (len(ids) + 1) for ids in targets]


class AttendingEngine(ScoringEngine):
    """The word that is last but one attends to the annotation."""

    capabilities = replace(CAPABILITIES, alignment=True)

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[torch.Tensor]:
        annotated, starts = SUBWORDS.pieces.index("⟦=⟧"), SUBWORDS.word_start_ids
        maps = []
        for source, target in zip(sources, targets, strict=True):
            weights_TS = torch.zeros(len(target) + 1, len(source))
            word = [position for position, token in enumerate(target) if token in starts][-2]
            weights_TS[word, source.index(annotated) + 1] = 1
            maps.append(weights_TS)
        return maps


def test_a_term_that_is_missing_takes_the_place_of_the_word_that_attends_to_it() -> None:
    engine = AttendingEngine(SUBWORDS, ignore)
    result = make_translator(engine=engine).translate("We see the dog.", glossary={"dog": "Hund"})
    assert (result.text, result.notes) == ("We see the Hund.", ["term forced"])
    assert len(engine.sources) == 1, "there is no second search"
    assert engine.num_scored < 12


def test_an_ending_may_follow_a_term_that_is_forced() -> None:
    class PluralEngine(AttendingEngine):
        def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
            return [[-1.0 if "Hunde" in SUBWORDS.decode(ids) else -9.0] * (len(ids) + 1) for ids in targets]

    engine = PluralEngine(SUBWORDS, lambda text: "Wir sehen die Hute.")
    result = make_translator(engine=engine).translate("We see the dogs.", glossary={"dog": "Hund"})
    assert (result.text, result.notes) == ("Wir sehen die Hunde.", ["term forced"])


def test_a_prefix_and_forbidden_words_stay_as_they_are() -> None:
    translator = make_translator(engine=ScoringEngine(SUBWORDS, ignore), annotated=False)
    options = {"glossary": {"dog": "Hund"}, "prefix": "We see the dog"}
    result = translator.translate("We see the dog today.", **options)  # type: ignore[arg-type]
    assert result.text.startswith("We see the dog")
    assert "Hund" in result.text
    forbidden = translator.translate("We see the dog.", glossary={"dog": "Hund"}, forbid=["Hund"])
    assert (forbidden.text, forbidden.notes) == ("We see the dog.", ["term missing"])


def test_other_models_are_forced_at_once() -> None:
    engine = ForcingEngine(SUBWORDS, ignore)
    result = make_translator(engine=engine, annotated=False).translate("A dog.", glossary={"dog": "Hund"})
    assert engine.sources == ["A dog."]
    assert (result.text, result.notes) == ("A dog. Hund", [])


def test_an_engine_without_required_phrases_puts_the_term_where_it_is_likeliest() -> None:
    result = make_translator(engine=ScoringEngine(SUBWORDS, ignore), annotated=False).translate(
        "We see the dog today.", glossary={"dog": "Hund"}
    )
    assert (result.text, result.notes) == ("We see the Hund today.", ["term forced"])


def test_each_term_that_is_missing_gets_its_place() -> None:
    class AnyEngine(ScoringEngine):
        def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
            liked = ("the Hund", "a Katze")
            return [
                [-9.0 + 4 * sum(text in SUBWORDS.decode(ids) for text in liked)] * (len(ids) + 1)
                for ids in targets
            ]

    result = make_translator(engine=AnyEngine(SUBWORDS, ignore), annotated=False).translate(
        "We see the dog and a cat.", glossary={"dog": "Hund", "cat": "Katze"}
    )
    assert result.text == "We see the Hund and a Katze."


def test_a_sentence_that_annotations_make_too_long_is_forced() -> None:
    engine = ForcingEngine(SUBWORDS, ignore)
    engine.capabilities = replace(CAPABILITIES, max_positions=8)
    result = make_translator(engine=engine, max_length=8).translate("We see a dog.", glossary={"dog": "Hund"})
    assert "⟦" not in engine.sources[0]
    assert result.text.endswith("Hund")


class AligningEngine(TextEngine):
    """Every target token attends to a token of the annotation."""

    capabilities = replace(CAPABILITIES, alignment=True)

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[torch.Tensor]:
        annotated = SUBWORDS.pieces.index("⟦=⟧")
        maps = []
        for source, target in zip(sources, targets, strict=True):
            weights_TS = torch.zeros(len(target) + 1, len(source))
            weights_TS[:, source.index(annotated) + 1] = 1
            maps.append(weights_TS)
        return maps


def test_what_is_aligned_with_an_annotation_is_aligned_with_its_term() -> None:
    result = make_translator(engine=AligningEngine(SUBWORDS, obey)).translate(
        "We see the dogs.", glossary={"dog": "Hund"}, alignment=True
    )
    assert result.alignment
    term = "".join(result.source_tokens[: result.alignment[0][0] + 1])
    assert term.endswith("dogs")


def test_streams_and_calls_use_terms_alike() -> None:
    texts = [f"We see the dog {n}." for n in range(20)]
    for engine in (AttendingEngine(SUBWORDS, ignore), ForcingEngine(SUBWORDS, ignore)):
        translator = make_translator(engine=engine, annotated=isinstance(engine, AttendingEngine))
        results = translator.translate(texts, glossary={"dog": "Hund"})
        streamed = list(translator.stream(texts, glossary={"dog": "Hund"}))
        assert [own.text for own in streamed] == [own.text for own in results]
        assert all("Hund" in own.text for own in streamed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("glossaries") / "model")


def test_ctranslate2_writes_the_terms_of_a_glossary(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    translator = mh.load(folder, engine="ctranslate2")
    texts = ["We read a book at school.", "I go home today."]
    results = translator.translate(texts, glossary={"book": "집에", "home": "오늘"})
    assert "집에" in results[0].text
    assert "오늘" in results[1].text
    assert "term forced" in results[0].notes + results[1].notes
