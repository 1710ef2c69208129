"""Figures 3, 4 and 5: of heads that were made to be found, and of a model that was never trained."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manyheads.cli import main
from manyheads.errors import RequestError
from manyheads.paper import figures
from support.untrained_model import save_untrained_model

SENTENCES = [
    "Julia bought a very red flower because she liked flowers",
    "Peter says that the green pencil is not his again",
    "My cousins read the long letters that they wrote yesterday",
]
MEANT = {"she": "Julia", "his": "Peter", "they": "cousins"}


def made_up(translator: Any, sentence: str) -> tuple[list[str], np.ndarray]:
    """Four heads: the word before; far away; back from a pronoun; a tree."""
    words = [*sentence.split(), "</s>"]
    count = len(words)
    eye = np.eye(count)
    before = eye[[max(0, place - 1) for place in range(count)]]
    far = eye[[(place + 5) % (count - 1) for place in range(count)]]
    back = np.full((count, count), 1 / count)
    for pronoun, name in MEANT.items():
        if pronoun in words:
            back[words.index(pronoun)] = eye[words.index(name)]
    tree = eye[[1, 2, 1, 6, 3, 4, 5, 5, 7, 8, 8][:count]]
    return words, np.stack([[before, far], [back, tree]])


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[figures.SentenceScores]:
    monkeypatch.setattr(figures, "encoder_maps", made_up)
    english: Any = SimpleNamespace(source_language="en")
    return figures.score_sentences(english, SENTENCES, 10, lambda *_: None)


def test_the_head_of_each_kind_is_found(found: list[figures.SentenceScores]) -> None:
    far, back, structure = (chosen for chosen, _ in figures.choose_figures(found))
    assert [one.figure for one in (far, back, structure)] == [3, 4, 5]
    assert (far.layer, far.head) == (0, 1)
    assert (back.layer, back.head) == (1, 0)
    assert (structure.layer, structure.head) == (1, 1)
    assert structure.second_head not in (None, (1, 1))


def test_from_each_pronoun_the_head_points_at_what_it_stands_for(found: list[figures.SentenceScores]) -> None:
    back = next(chosen for chosen, _ in figures.choose_figures(found) if chosen.figure == 4)
    assert MEANT[back.word] in back.sentence
    assert sorted(back.antecedent_counts) == [("Julia", 1), ("Peter", 1), ("cousins", 1)]
    # Nine words look; the one it stands for gets 1 from its pronoun and a share of 1/n from each other.
    words = len(back.sentence.split())
    share = 1 / (words + 1)
    assert back.score == pytest.approx(1 - (1 + (words - 1) * share) / words)


def test_the_numbers_of_other_heads_stand_beside(found: list[figures.SentenceScores]) -> None:
    for chosen, shown in figures.choose_figures(found):
        means = np.mean([one.scores[chosen.measure] for one in found], axis=0)
        assert chosen.head_mean == means.max() == pytest.approx(means[chosen.layer, chosen.head])
        assert chosen.all_heads_mean == pytest.approx(means.mean())
        assert chosen.score >= chosen.mean_best_score >= 0
        assert shown.words[chosen.position] == chosen.word


def test_a_weak_link_points_nowhere(found: list[figures.SentenceScores]) -> None:
    assert figures.count_antecedents(found, 0, 0) == [("nowhere", 3)], (
        "of the word before, which may not be meant"
    )


def test_a_function_word_a_neighbor_and_a_pronoun_are_not_meant() -> None:
    words = ["The", "cook", "says", "that", "she", "met", "her", "father", "again"]
    rows = np.arange(len(words))
    offsets = rows[None, :] - rows[:, None]
    empty = figures.find_function_words([], "en")
    pronouns, back = figures.find_antecedents(words, rows, offsets, "en", empty)
    assert [words[row] for row in pronouns] == ["she", "her"]
    assert [words[place] for place in np.flatnonzero(back[pronouns[0]])] == ["cook", "says"]
    assert [words[place] for place in np.flatnonzero(back[pronouns[1]])] == ["cook", "says"]


def test_without_lists_every_word_asks_and_frequent_words_are_empty() -> None:
    sentences = ["le chat dort", "le chien dort bien", *["le soir"] * 10]
    empty = figures.find_function_words(sentences, "fr")
    assert empty == {"le", "soir", "dort"}
    words = sentences[1].split()
    offsets = np.arange(4)[None, :] - np.arange(4)[:, None]
    pronouns, _ = figures.find_antecedents(words, np.arange(4), offsets, "fr", empty)
    assert [words[row] for row in pronouns] == ["bien"]


def test_two_heads_that_point_alike_are_one_kind(found: list[figures.SentenceScores]) -> None:
    assert figures.compute_agreement(found, (0, 0), (0, 0)) == 1
    assert figures.compute_agreement(found, (0, 0), (0, 1)) == 0


def test_the_second_head_of_figure_5_is_no_twin_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_a_twin(translator: Any, sentence: str) -> tuple[list[str], np.ndarray]:
        words, maps = made_up(translator, sentence)
        return words, np.stack([maps[0], maps[1][[1, 1]]])

    monkeypatch.setattr(figures, "encoder_maps", with_a_twin)
    english: Any = SimpleNamespace(source_language="en")
    found = figures.score_sentences(english, SENTENCES, 10, lambda *_: None)
    structure = next(chosen for chosen, _ in figures.choose_figures(found) if chosen.figure == 5)
    assert (structure.layer, structure.second_head[0] if structure.second_head else None) == (1, 0)


def test_a_model_whose_encoder_has_no_heads_is_refused() -> None:
    nothing = SimpleNamespace(trace=SimpleNamespace(encoder=[]))
    recurrent: Any = SimpleNamespace(attention=lambda *_, **__: nothing)
    with pytest.raises(RequestError, match=r"encoder has no self-attention.*give a Transformer"):
        figures.compute_encoder_maps(recurrent, SENTENCES[0])


# ---- of a model

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", "paper", "figures", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return called


def test_the_command_draws_three_figures_and_says_what_they_show(
    call: Call, model: Path, tmp_path: Path
) -> None:
    code, out, _ = call(str(model), "--sentences", "12", "--device", "cpu", "-o", "out", "--json")
    assert code == 0
    told = json.loads(out)
    assert {Path(file).name for file in told["files"]} == {
        "figures.md",
        "figures.csv",
        *(f"figure-{number}.{suffix}" for number in (3, 4, 5) for suffix in ("svg", "pdf", "png")),
    }
    page = (tmp_path / "out" / "figures.md").read_text(encoding="utf-8")
    for one in told["figures"]:
        assert f"> {one['sentence']}" in page
        assert f"Layer {one['layer'] + 1}, head {one['head'] + 1}. “{one['word']}” looks at" in page
        assert 0 <= one["mean_of_all"] <= one["mean"] <= 1


def test_a_text_of_ones_own(call: Call, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Too short. I go home today and read a good book at school.\n", "utf-8")
    code, out, err = call(str(model), "text", "--device", "cpu")
    assert code == 0, err
    assert "Figure 3: I go home today and read a good book at school." in out
    assert "Figure 4" not in out, "there is no pronoun in it that stands for anything"
    assert (tmp_path / "paper" / "figure-5.pdf").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            [],
            2,
            "figures are of a trained model: give its folder, as in manyheads paper figures manyheads-demo",
        ),
        (["nowhere"], 3, "nowhere: no model folder"),
        (["MODEL", "nothing.txt"], 3, "nothing.txt: cannot be read (No such file or directory)"),
        (["MODEL", "short.txt"], 2, "no sentence has 8 to 30 words, as the figures need: give another text"),
        (["MODEL", "bytes.txt"], 3, "bytes.txt: not UTF-8"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(
    arguments: list[str], code: int, message: str, call: Call, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("I go home.\n", "utf-8")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    found, out, err = call(*(one.replace("MODEL", str(model)) for one in arguments))
    assert (found, out) == (code, "")
    assert err.startswith(f"manyheads: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "paper").exists()
