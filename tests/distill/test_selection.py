"""Which hypothesis of the teacher becomes the target, and which pairs are dropped."""

import json
from collections import Counter
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.bulk.jobs import format_nbest
from manyheads.config import DistillConfig
from manyheads.distill.selection import (
    ScoredText,
    ShardFiles,
    ShardSelector,
    choose_hypothesis,
    find_reason_to_drop,
    select_shards,
)

HYPOTHESES = [
    ScoredText(-0.1, 0.9, "das Haus ist groß und alt"),
    ScoredText(-0.2, 0.8, "die Katze sitzt auf der Matte"),
    ScoredText(-0.3, 0.1, "Katzen sitzen auf Matten"),
]


@pytest.mark.parametrize(
    ("metric", "reference", "chosen"),
    [
        ("score", "Katzen sitzen auf Matten", 0),
        ("chrf", "Katzen sitzen auf Matten", 2),
        ("bleu", "die Katze sitzt auf der Matte .", 1),
        ("chrf", None, 0),  # monolingual text
        ("bleu", "xyz", 0),  # of equals the likeliest
    ],
)
def test_the_hypothesis_is_chosen_by_the_metric(metric: str, reference: str | None, chosen: int) -> None:
    assert choose_hypothesis(HYPOTHESES, reference, metric, "de") is HYPOTHESES[chosen]


def test_bleu_of_a_sentence_counts_the_tokens_of_its_language() -> None:
    """Of Korean, characters are the tokens: by words neither would match."""
    hypotheses = [ScoredText(0, None, "나는 집으로"), ScoredText(-1, None, "학교에 갔었다")]
    assert choose_hypothesis(hypotheses, "학교에 갔다", "bleu", "ko") is hypotheses[1]


@pytest.mark.parametrize(
    ("hypothesis", "options", "reason"),
    [
        (ScoredText(-1.0, 0.5, "a"), {}, None),
        (ScoredText(-1.0, 0.5, ""), {}, "empty"),
        (ScoredText(-1.0, 0.5, "a"), {"min_score": -0.9}, "low score"),
        (ScoredText(-0.9, 0.5, "a"), {"min_score": -0.9}, None),
        (ScoredText(-1.0, 0.5, "a"), {"min_confidence": 0.6}, "low confidence"),
        (ScoredText(-1.0, 0.0, "a"), {"min_confidence": 0.6}, "low confidence"),
        (ScoredText(-1.0, None, "12"), {"min_confidence": 0.6}, None),  # there was nothing to translate
    ],
)
def test_filters(hypothesis: ScoredText, options: dict[str, float], reason: str | None) -> None:
    assert find_reason_to_drop(hypothesis, DistillConfig(**options)) == reason


def write_shard(folder: Path, name: str, rows: list[tuple[str, list[ScoredText], str]]) -> ShardFiles:
    files = ShardFiles(folder / f"{name}.en", folder / f"{name}.nbest", folder / f"{name}.de")
    lines = [source for source, _, _ in rows], [json.dumps(row[1]) for row in rows], [row[2] for row in rows]
    for path, texts in zip((files.source, files.translation, files.reference), lines, strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return files


@pytest.mark.parametrize("num_processes", [1, 2])
def test_shards_are_selected_in_order_with_counts(tmp_path: Path, num_processes: int) -> None:
    shards = [
        write_shard(
            tmp_path, "0", [("cats", HYPOTHESES, HYPOTHESES[2].text), ("x", [ScoredText(0, 0, "")], "")]
        ),
        write_shard(tmp_path, "1", [("a house", HYPOTHESES, HYPOTHESES[0].text)]),
    ]
    selector = ShardSelector(DistillConfig(choose="chrf", min_confidence=0.05), "de")
    results = list(select_shards(selector, shards, tmp_path, num_processes))
    assert [counts for _, counts in results] == [Counter(kept=1, empty=1), Counter(kept=1)]
    texts = [[path.read_text(encoding="utf-8") for path in outs] for outs, _ in results]
    assert texts == [["cats\n", "Katzen sitzen auf Matten\n"], ["a house\n", "das Haus ist groß und alt\n"]]


def test_a_shard_with_missing_lines_is_refused(tmp_path: Path) -> None:
    shard = write_shard(tmp_path, "0", [("cats", HYPOTHESES, "Katzen"), ("dogs", HYPOTHESES, "Hunde")])
    shard.translation.write_text(json.dumps(HYPOTHESES) + "\n", encoding="utf-8")
    selector = ShardSelector(DistillConfig(), "de")
    with pytest.raises(mh.DataError, match=r"0\.nbest: has not as many lines as .*0\.en: delete it"):
        selector.select_shard(shard, (tmp_path / "a", tmp_path / "b"))


def test_an_nbest_list_is_written_and_read_as_it_is() -> None:
    other = mh.Translation("x", "zwei\tdrei", log_probability=-4.0, tokens=["a", "b", "c"])
    best = mh.Translation(
        "x", 'eins "1"', log_probability=-1.0, tokens=["a"], confidence=0.25, alternatives=[other]
    )
    line = format_nbest(best)
    assert [ScoredText(*values) for values in json.loads(line)] == [
        ScoredText(-0.5, 0.25, 'eins "1"'),
        ScoredText(-1.0, None, "zwei\tdrei"),
    ]
    assert "\n" not in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nbest": 5}, "distill.nbest is 5, but distill.beam is 4"),
        ({"choose": "chrf", "beam": 1}, "one hypothesis to choose from"),
        ({"choose": "chrf", "nbest": 1}, "one hypothesis to choose from"),
        ({"choose": "comet"}, "distill.choose is 'comet', but must be one of 'score', 'chrf', 'bleu'"),
        ({"min_confidence": 2.0}, "distill.min_confidence is 2.0, but must be"),
        ({"min_score": 0.5}, "distill.min_score is 0.5, but must be at most 0"),
        ({"original_share": 1.0}, "distill.original_share is 1.0, but must be"),
    ],
)
def test_wrong_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(mh.ConfigError, match=message.replace(".", r"\.")):
        DistillConfig(**options)


def test_choosing_by_a_metric_takes_the_whole_beam() -> None:
    assert DistillConfig().num_hypotheses == 1
    assert DistillConfig(choose="chrf", beam=6).num_hypotheses == 6
    assert DistillConfig(choose="bleu", beam=6, nbest=3).num_hypotheses == 3
