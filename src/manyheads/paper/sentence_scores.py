"""Scores of every encoder head on sentences, by the three measures of Figures 3, 4 and 5.

Only attention from words to other words counts, and of a weight only what exceeds the mean that its word
receives from all rows (look/measures.py). Per sentence and head:

far         Figure 3: the mean share of attention on words at least four words away
anaphora    Figure 4: from a pronoun, the largest weight on one earlier word that it may refer to: not a
            neighbor, a pronoun or a function word such as "the" or "who"; the mean over the sentence's
            pronouns. In a language without word lists every word counts as a pronoun, and words in more than
            a tenth of the sentences count as function words
structure   Figure 5: how strongly rows point at one other word, times how much word and direction vary

Shapes: L layers, H heads, Q querying words, K words that are attended to.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.attention_data import Maps, merge_into_words, stack_maps
from manyheads.look.figure_heads import compute_links, score_heads
from manyheads.look.measures import Array
from manyheads.look.words import is_word, tokens_to_words
from manyheads.progress import ReportProgress
from manyheads.translator import Translator

MIN_WORDS, MAX_WORDS = 8, 30  # per sentence
COMMON_WORD_SHARE = 0.1  # of the sentences: without a list, more frequent words are function words

PRONOUNS = {
    "en": "he him his himself she her hers herself it its itself they them their theirs themselves",
    "de": "er ihn ihm sie ihr ihnen es sein seine seinen seinem seiner ihre ihren ihrem ihrer sich",
}
FUNCTION_WORDS = {
    "en": "a an the this that these those i me my we us our you your who whom whose which what when where "
    "why how and or but because if than as to of in on at by with for from about into not no do does did is "
    "are was were be been being am have has had will would can could may might must shall should there",
    "de": "der die das den dem des ein eine einen einem einer eines dieser diese dieses diesen diesem ich "
    "mich mir mein meine wir uns unser unsere du dich dir dein wer wen wem wessen was wann wo wohin "
    "warum wie und oder aber weil dass wenn als zu von vom in im an am auf mit für aus bei nach um über "
    "nicht kein keine ist sind war waren bin bist hat haben hatte hatten wird werden wurde kann können "
    "konnte muss müssen will wollen soll",
}


@dataclass(frozen=True)
class SentenceScores:
    """Scores of one sentence by measure: per head, [L, H], and per head and row, [L, H, Q]."""

    sentence: str
    words: list[str]
    query_positions: NDArray[np.intp]  # positions of the querying words
    scores: dict[str, Array]
    by_row: dict[str, Array]
    target_positions: NDArray[np.intp]  # that each row points at, [L, H, Q]
    antecedents: dict[int, NDArray[np.intp]]  # row of a pronoun -> position each head points at, [L, H]


def score_sentences(
    translator: Translator, sentences: Iterable[str], max_sentences: int, report_progress: ReportProgress
) -> list[SentenceScores]:
    """Score the first `max_sentences` of suitable length."""
    suitable = list(
        islice((sentence for sentence in sentences if has_suitable_length(sentence)), max_sentences)
    )
    if not suitable:
        raise RequestError(
            f"no sentence has {MIN_WORDS} to {MAX_WORDS} words, as the figures require: give another text"
        )
    function_words, scores = find_function_words(suitable, translator.source_language), []
    for done, sentence in enumerate(suitable, 1):
        scores.append(score_sentence(translator, sentence, function_words))
        report_progress("scoring sentences", done, len(suitable))
    return scores


def find_word(scores: SentenceScores, word: str) -> int:
    """Return the row of the first occurrence of a word."""
    return next(
        row
        for row, position in enumerate(scores.query_positions)
        if strip_punctuation(scores.words[position]) == word
    )


def has_suitable_length(sentence: str) -> bool:
    return MIN_WORDS <= sum(map(is_word, sentence.split())) <= MAX_WORDS


def find_function_words(sentences: Sequence[str], language: str) -> set[str]:
    """Return the function words of a language: a fixed list, or the words in many of the sentences."""
    if language in FUNCTION_WORDS:
        return set(FUNCTION_WORDS[language].split())
    counts = Counter(
        word for sentence in sentences for word in {strip_punctuation(word) for word in sentence.split()}
    )
    return {word for word, count in counts.items() if count > COMMON_WORD_SHARE * len(sentences)}


def strip_punctuation(word: str) -> str:
    return word.strip(".,;:!?\"'()").lower()


def score_sentence(translator: Translator, sentence: str, function_words: set[str]) -> SentenceScores:
    words, maps_LHQK = compute_encoder_maps(translator, sentence)
    are_words = [is_word(word) for word in words]
    query_positions, links_LHQK, offsets_QK = compute_links(maps_LHQK, "encoder", are_words, are_words)
    head_scores = score_heads(links_LHQK, offsets_QK)
    pronouns, back_QK = find_antecedents(
        words, query_positions, offsets_QK, translator.source_language, function_words
    )
    back_LHQK = links_LHQK * back_QK
    by_row = {
        "far": head_scores["long"][1],
        "structure": head_scores["structural"][1],
        "anaphora": back_LHQK.max(-1),
    }
    scores = {"far": head_scores["long"][0], "structure": head_scores["structural"][0]}
    if pronouns:
        scores["anaphora"] = by_row["anaphora"][:, :, pronouns].mean(-1)
    antecedents = {row: back_LHQK[:, :, row].argmax(-1) for row in pronouns}
    return SentenceScores(
        sentence, words, query_positions, scores, by_row, links_LHQK.argmax(-1), antecedents
    )


def compute_encoder_maps(translator: Translator, sentence: str) -> tuple[list[str], Maps]:
    """Return the words of a sentence and the encoder's attention between them. [L, H, Q, K]"""
    attention = translator.attention(sentence, "", candidates=1)  # the encoder does not depend on the target
    if not attention.trace.encoder:
        raise RequestError(
            "the model's encoder has no self-attention, which the figures show: give a Transformer"
        )
    maps_LHQK = merge_into_words(stack_maps(attention, "encoder"), attention, "encoder")
    return tokens_to_words(attention.source_tokens), maps_LHQK


def find_antecedents(
    words: Sequence[str],
    query_positions: NDArray[np.intp],
    offsets_QK: Array,
    language: str,
    function_words: set[str],
) -> tuple[list[int], NDArray[np.bool_]]:
    """Return the rows of pronouns, and the earlier words that each may refer to. [Q, K]"""
    pronoun_list = PRONOUNS.get(language, "").split()
    bare_words = [strip_punctuation(word) for word in words]
    is_noun_K = np.array([word not in pronoun_list and word not in function_words for word in bare_words])
    back_QK = (offsets_QK <= -2) & is_noun_K
    pronouns = [
        row
        for row, position in enumerate(query_positions)
        if bare_words[position] in pronoun_list or not pronoun_list
    ]
    return [row for row in pronouns if back_QK[row].any()], back_QK
