"""Figures 3, 4 and 5 of constructed heads and of an untrained model."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from manyheads.cli import main
from manyheads.errors import RequestError
from manyheads.loading import load
from manyheads.paper import sentence_scores
from manyheads.paper.head_ablation import HeadAblation, cut_head
from manyheads.paper.head_selection import choose_figures, compute_agreement, count_antecedents
from manyheads.paper.sentence_scores import SentenceScores
from support.untrained_model import save_untrained_model

SENTENCES = [
    "Julia bought a very red flower because she liked flowers",
    "Peter says that the green pencil is not his again",
    "My cousins read the long letters that they wrote yesterday",
]
ANTECEDENTS = {"she": "Julia", "his": "Peter", "they": "cousins"}


def make_maps(translator: Any, sentence: str) -> tuple[list[str], np.ndarray]:
    """Four heads: the word before; far away; back from a pronoun; a tree."""
    words = [*sentence.split(), "</s>"]
    count = len(words)
    eye = np.eye(count)
    before = eye[[max(0, position - 1) for position in range(count)]]
    far = eye[[(position + 5) % (count - 1) for position in range(count)]]
    back = np.full((count, count), 1 / count)
    for pronoun, name in ANTECEDENTS.items():
        if pronoun in words:
            back[words.index(pronoun)] = eye[words.index(name)]
    tree = eye[[1, 2, 1, 6, 3, 4, 5, 5, 7, 8, 8][:count]]
    return words, np.stack([[before, far], [back, tree]])


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[SentenceScores]:
    monkeypatch.setattr(sentence_scores, "compute_encoder_maps", make_maps)
    english: Any = SimpleNamespace(source_language="en")
    return sentence_scores.score_sentences(english, SENTENCES, 10, lambda *_: None)


def test_the_head_of_each_figure_is_selected(scores: list[SentenceScores]) -> None:
    far, back, structure = (figure for figure, _ in choose_figures(scores))
    assert [figure.figure for figure in (far, back, structure)] == [3, 4, 5]
    assert (far.layer, far.head) == (0, 1)
    assert (back.layer, back.head) == (1, 0)
    assert (structure.layer, structure.head) == (1, 1)
    assert structure.second_head not in (None, (1, 1))


def test_the_head_of_figure_4_points_from_each_pronoun_at_its_antecedent(
    scores: list[SentenceScores],
) -> None:
    back = next(figure for figure, _ in choose_figures(scores) if figure.figure == 4)
    assert ANTECEDENTS[back.word] in back.sentence
    assert sorted(back.antecedent_counts) == [("Julia", 1), ("Peter", 1), ("cousins", 1)]
    # Nine words query; the antecedent gets 1 from its pronoun and 1/n from each other word.
    words = len(back.sentence.split())
    share = 1 / (words + 1)
    assert back.score == pytest.approx(1 - (1 + (words - 1) * share) / words)


def test_scores_of_other_heads_are_reported(scores: list[SentenceScores]) -> None:
    for figure, best_sentence in choose_figures(scores):
        means = np.mean([sentence.scores[figure.measure] for sentence in scores], axis=0)
        assert figure.head_mean == means.max() == pytest.approx(means[figure.layer, figure.head])
        assert figure.all_heads_mean == pytest.approx(means.mean())
        assert figure.score >= figure.mean_best_score >= 0
        assert best_sentence.words[figure.position] == figure.word


def test_a_weak_link_points_nowhere(scores: list[SentenceScores]) -> None:
    assert count_antecedents(scores, 0, 0) == [("nowhere", 3)], "of the word before, which may not be meant"


def test_function_words_neighbors_and_pronouns_are_not_antecedents() -> None:
    words = ["The", "cook", "says", "that", "she", "met", "her", "father", "again"]
    positions = np.arange(len(words))
    offsets = positions[None, :] - positions[:, None]
    function_words = sentence_scores.find_function_words([], "en")
    pronouns, back = sentence_scores.find_antecedents(words, positions, offsets, "en", function_words)
    assert [words[row] for row in pronouns] == ["she", "her"]
    assert [words[position] for position in np.flatnonzero(back[pronouns[0]])] == ["cook", "says"]
    assert [words[position] for position in np.flatnonzero(back[pronouns[1]])] == ["cook", "says"]


def test_without_word_lists_every_word_is_a_pronoun_and_frequent_words_are_function_words() -> None:
    sentences = ["le chat dort", "le chien dort bien", *["le soir"] * 10]
    function_words = sentence_scores.find_function_words(sentences, "fr")
    assert function_words == {"le", "soir", "dort"}
    words = sentences[1].split()
    offsets = np.arange(4)[None, :] - np.arange(4)[:, None]
    pronouns, _ = sentence_scores.find_antecedents(words, np.arange(4), offsets, "fr", function_words)
    assert [words[row] for row in pronouns] == ["bien"]


def test_agreement_is_how_often_two_heads_point_at_the_same_word(scores: list[SentenceScores]) -> None:
    assert compute_agreement(scores, (0, 0), (0, 0)) == 1
    assert compute_agreement(scores, (0, 0), (0, 1)) == 0


def test_the_second_head_of_figure_5_differs_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_maps_with_equal_heads(translator: Any, sentence: str) -> tuple[list[str], np.ndarray]:
        words, maps = make_maps(translator, sentence)
        return words, np.stack([maps[0], maps[1][[1, 1]]])

    monkeypatch.setattr(sentence_scores, "compute_encoder_maps", make_maps_with_equal_heads)
    english: Any = SimpleNamespace(source_language="en")
    scores = sentence_scores.score_sentences(english, SENTENCES, 10, lambda *_: None)
    structure = next(figure for figure, _ in choose_figures(scores) if figure.figure == 5)
    assert (structure.layer, structure.second_head[0] if structure.second_head else None) == (1, 0)


def test_a_model_without_encoder_attention_is_rejected() -> None:
    nothing = SimpleNamespace(trace=SimpleNamespace(encoder=[]))
    recurrent: Any = SimpleNamespace(attention=lambda *_, **__: nothing)
    with pytest.raises(RequestError, match=r"encoder has no self-attention.*give a Transformer"):
        sentence_scores.compute_encoder_maps(recurrent, SENTENCES[0])


def test_given_places_are_shown_and_heads_are_still_chosen_by_all_sentences(
    scores: list[SentenceScores],
) -> None:
    given = {number: (scores[1], sentence_scores.find_word(scores[1], "his")) for number in (3, 4, 5)}
    for figure, best_sentence in choose_figures(scores, given):
        chosen = next(own for own, _ in choose_figures(scores) if own.figure == figure.figure)
        assert best_sentence is scores[1]
        assert figure.is_given
        assert not chosen.is_given
        assert (figure.layer, figure.head) == (chosen.layer, chosen.head)
        assert figure.mean_best_score <= chosen.mean_best_score
    words = {figure.figure: figure.word for figure, _ in choose_figures(scores, given)}
    assert (words[3], words[4]) == ("his", "his")


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


def test_the_command_draws_three_figures_and_describes_them(call: Call, model: Path, tmp_path: Path) -> None:
    code, out, _ = call(str(model), "--sentences", "12", "--device", "cpu", "-o", "out", "--json")
    assert code == 0
    report = json.loads(out)
    assert {Path(file).name for file in report["files"]} == {
        "figures.md",
        "figures.csv",
        *(f"figure-{number}.{suffix}" for number in (3, 4, 5) for suffix in ("svg", "pdf", "png")),
    }
    page = (tmp_path / "out" / "figures.md").read_text(encoding="utf-8")
    for figure in report["figures"]:
        assert f"> {figure['sentence']}" in page
        assert (
            f"Layer {figure['layer'] + 1}, head {figure['head'] + 1}. “{figure['word']}” attends to" in page
        )
        assert 0 <= figure["all_heads_mean"] <= figure["head_mean"] <= 1


def test_cutting_a_head_is_what_zeros_in_its_output_do_and_leaves_the_model_as_it_was(model: Path) -> None:
    translator = load(model, device="cpu", engine="torch:float32")
    engine: Any = translator.engine
    attention = engine.model.encoder[1].self_attention
    config = engine.model.config
    width, before = config.head_dim_v, attention.w_o.weight.detach().clone()
    heads = torch.randn(3, config.heads * width)
    others = heads.clone()
    others[:, width : 2 * width] += 1
    with torch.no_grad():
        assert not torch.equal(attention.w_o(heads), attention.w_o(others))
        with cut_head(engine, (1, 1)):
            assert torch.equal(attention.w_o(heads), attention.w_o(others)), "the second head alone differs"
    assert torch.equal(attention.w_o.weight, before)


def test_the_report_compares_bleu_without_the_head_and_without_an_average_head(
    call: Call, model: Path, tmp_path: Path
) -> None:
    code, out, err = call(str(model), "--sentences", "12", "--device", "cpu", "-o", "out", "--json")
    assert code == 0, err
    ablation = json.loads(out)["ablation"]
    config = load(model, device="cpu").engine.model.config  # type: ignore[attr-defined]
    assert [len(row) for row in ablation["cut_bleu"]] == [config.heads] * config.encoder_layers
    assert ablation["num_sentences"] == 12
    page = (tmp_path / "out" / "figures.md").read_text(encoding="utf-8")
    assert "Without this head BLEU is" in page
    assert "BLEU without an average head" in page


def test_head_ablation_ranks_heads_by_what_is_lost() -> None:
    ablation = HeadAblation(30.0, "", 10, [[30.0, 20.0], [28.0, 30.0]], [[1.0, 1.0], [3.0, 1.0]])
    assert (ablation.difference((0, 1)), ablation.mean_difference) == (-10, -3)
    assert [ablation.rank(head) for head in ((0, 1), (1, 0))] == [1, 2]
    assert "(-10.00 ± 1.00, beyond the margin of chance)" in ablation.describe((0, 1))
    assert "(-2.00 ± 3.00, within the margin of chance)" in ablation.describe((1, 0))
    assert "without an average head 27.00 (-3.00). By this loss it is number 2 of 4." in ablation.describe(
        (1, 0)
    )


def test_the_papers_sentences_are_drawn_on_request(call: Call, model: Path) -> None:
    code, out, err = call(str(model), "--sentences", "12", "--device", "cpu", "--paper-sentences", "--json")
    assert code == 0, err
    figures = {figure["figure"]: figure for figure in json.loads(out)["figures"]}
    assert figures[3]["word"] == "making"
    assert figures[4]["word"] == "its"
    assert figures[5]["sentence"].startswith("The Law will never be perfect")


def test_references_need_their_text_and_as_many_lines(call: Call, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("I go home today and read a good book at school.\n", "utf-8")
    (tmp_path / "short").write_text("", "utf-8")
    code, _, err = call(str(model), "--reference", "short", "--device", "cpu")
    assert (code, "--reference short: needs the text" in err) == (2, True)
    code, _, err = call(str(model), "text", "--reference", "short", "--device", "cpu")
    assert (code, "text has 1 lines, but short has 0: they must be parallel" in err) == (3, True)


def test_a_given_text_is_used(call: Call, model: Path, tmp_path: Path) -> None:
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
            "figures need a trained model: give its folder, as in manyheads paper figures manyheads-demo",
        ),
        (["nowhere"], 3, "nowhere: not a model folder"),
        (["MODEL", "nothing.txt"], 3, "nothing.txt: cannot be read (No such file or directory)"),
        (
            ["MODEL", "short.txt"],
            2,
            "no sentence has 8 to 30 words, as the figures require: give another text",
        ),
        (["MODEL", "bytes.txt"], 3, "bytes.txt: not UTF-8"),
    ],
)
def test_an_error_is_one_line(
    arguments: list[str], code: int, message: str, call: Call, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("I go home.\n", "utf-8")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    status, out, err = call(*(argument.replace("MODEL", str(model)) for argument in arguments))
    assert (status, out) == (code, "")
    assert err.startswith(f"manyheads: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "paper").exists()
