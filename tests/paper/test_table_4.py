"""Table 4: which trees are learned from, the data folder, judging, and the command at its smallest."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads import playground
from manyheads.cli import app
from manyheads.config import DecodingConfig
from manyheads.errors import ConfigError, DataError
from manyheads.evaluate.evalb import score_trees
from manyheads.paper import treebank
from manyheads.paper.parsing import choose_parse, match_punctuation
from manyheads.paper.report import ReportTable
from manyheads.paper.table4 import PUBLISHED, make_config, make_table, parse_inputs
from manyheads.paper.treebank import (
    ParserInput,
    Treebank,
    format_source,
    format_target,
    prepare_data,
    read_treebank,
)
from manyheads.progress import Progress
from manyheads.text.trees import Tree, get_leaves, parse_tree
from manyheads.translator import Translation

CAT = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
TREES = playground.generate_treebank(train=60, valid=0, test=0, words=3)["train"]
TINY = ["model.layers=1", "model.d_model=16", "model.d_ff=16", "model.heads=2", "train.checkpoint_every=2"]


def write(file: Path, trees: list[Tree]) -> Path:
    file.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return file


# ---- which trees


def test_names_tell_the_splits_and_corpora_without_a_test_are_more_to_learn_from(tmp_path: Path) -> None:
    for name, some in (
        ("news.train.ptb", TREES[:20]),
        ("news.dev.ptb", TREES[20:25]),
        ("news.test.ptb", TREES[25:30]),
        ("more.train.ptb", TREES[30:50]),
        ("more.valid.ptb", TREES[50:]),
    ):
        write(tmp_path / name, some)
    bank = read_treebank([tmp_path], Progress())
    assert sorted(map(str, bank.train)) == sorted(map(str, TREES[:20] + TREES[30:50]))
    assert (bank.valid, bank.test) == (TREES[20:25], TREES[25:30])
    assert bank.notes == ["more.valid.ptb: not read, for more has no test"]
    assert (bank.name, bank.test_name) == ("more, news", "news")


def test_a_file_whose_name_tells_no_split_is_parted_by_the_rule(tmp_path: Path) -> None:
    bank = read_treebank([write(tmp_path / "trees.ptb", TREES)], Progress())
    assert bank.valid == [TREES[18], TREES[38], TREES[58]]
    assert bank.test == [TREES[19], TREES[39], TREES[59]]
    assert len(bank.train) == 54
    assert "of each 20 trees the last is set apart for test" in bank.notes[0]


def test_sentences_of_test_are_not_learned_from(tmp_path: Path) -> None:
    for name, some in (("a.train", TREES[:20]), ("a.valid", TREES[3:5]), ("a.test", TREES[5:8])):
        write(tmp_path / name, some)
    bank = read_treebank([tmp_path], Progress())
    assert bank.train == TREES[:3] + TREES[8:20]
    assert bank.notes == ["5 training sentences stand in valid or test: left out"]


def test_nor_are_they_under_other_tags(tmp_path: Path) -> None:
    other = parse_tree(CAT.replace("VBZ", "VBP"))
    for name, some in (
        ("a.train", [other, TREES[0]]),
        ("a.valid", TREES[1:2]),
        ("a.test", [parse_tree(CAT)]),
    ):
        write(tmp_path / name, some)
    assert read_treebank([tmp_path], Progress()).train == TREES[:1]


def test_what_is_no_tree_is_left_out_of_training_and_told(tmp_path: Path) -> None:
    for name, some in (("a.train", TREES[:5]), ("a.valid", TREES[5:7]), ("a.test", TREES[7:9])):
        write(tmp_path / name, some)
    with (tmp_path / "a.train").open("a") as file:
        file.write("(TOP (NN hot dog))\n")
    bank = read_treebank([tmp_path], Progress())
    assert bank.train == TREES[:5]
    assert bank.notes == [
        f"1 lines of a.train are no trees and left out; the first: {tmp_path}/a.train:6: two words in one "
        f"bracket ('hot' and 'dog' at character 14)"
    ]


def test_but_what_is_judged_must_be_trees(tmp_path: Path) -> None:
    for name, some in (("a.train", TREES[:5]), ("a.valid", TREES[5:7]), ("a.test", TREES[7:9])):
        write(tmp_path / name, some)
    (tmp_path / "a.test").write_text("(TOP (NN hot dog))\n")
    with pytest.raises(DataError, match=r"a.test:1: two words in one bracket .* one whole tree a line"):
        read_treebank([tmp_path], Progress())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "an empty folder; put files of trees into it"),
        (["a.train"], "no trees for valid: names tell the splits"),
        (["trees.ptb"], "no trees for valid: .* needs 20 trees or more"),
        (["a.train", "a.valid", "a.test"], "no training tree is left"),
    ],
)
def test_trees_that_cannot_be_learned_from(files: list[str], message: str, tmp_path: Path) -> None:
    for name in files:
        write(tmp_path / name, TREES[:5])
    with pytest.raises(DataError, match=message):
        read_treebank([tmp_path], Progress())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such file or folder; give files of bracketed trees"):
        read_treebank([tmp_path / "nowhere"], Progress())


# ---- what the model reads and writes


def test_source_and_target_of_each_input() -> None:
    tree = parse_tree(CAT)
    assert {reads: format_source(get_leaves(tree), reads) for reads in treebank.PARSER_INPUTS} == {
        "words": "The cat sleeps .",
        "tags": "[DT][NN][VBZ][.]",
        "both": "[DT]The[NN]cat[VBZ]sleeps[.].",
    }
    assert format_target(tree) == "(TOP(S(NP[DT][NN])NP(VP[VBZ])VP[.])S)TOP"


@pytest.mark.parametrize("reads", treebank.PARSER_INPUTS)
def test_every_bracket_and_tag_is_one_piece(reads: ParserInput, tmp_path: Path) -> None:
    bank = Treebank("some", "some", TREES[:50], TREES[50:55], TREES[55:])
    store = prepare_data(bank, reads, 4000, tmp_path, Progress())
    train = store.load_split("train")
    assert len(train) == 50
    tokens = format_target(TREES[0]).replace("(", " (").replace(")", " )").replace("[", " [").split()
    pieces = [store.subwords.target.id_to_piece(one) for one in train.target[0][:-1].tolist()]
    assert pieces == ["▁", *tokens]
    assert len(store.subwords.target) < 80
    if reads != "words":
        own = [store.subwords.source.id_to_piece(one) for one in train.source[0].tolist()]
        assert [piece for piece in own if piece.startswith("[")] == [
            f"[{leaf.tag}]" for leaf in get_leaves(TREES[0])
        ]
    again = prepare_data(bank, reads, 4000, tmp_path, Progress())
    assert again.sha256 == store.sha256
    with pytest.raises(
        DataError, match="was made of other trees than these; choose another folder with --out"
    ):
        prepare_data(
            Treebank("other", "other", TREES[:49], *[TREES[50:]] * 2), reads, 4000, tmp_path, Progress()
        )


# ---- judging


def test_punctuation_is_what_gold_calls_so() -> None:
    gold = parse_tree(CAT)
    assert match_punctuation(parse_tree(CAT.replace("(. .)", "(NN .)")), gold) == (gold, 1)
    assert match_punctuation(parse_tree(CAT.replace("VBZ", "VBD")), gold) == (
        parse_tree(CAT.replace("VBZ", "VBD")),
        0,
    )


def test_a_word_that_is_taken_for_punctuation_counts_as_a_word_with_a_wrong_tag() -> None:
    gold = parse_tree(CAT)
    judged, changed = match_punctuation(parse_tree(CAT.replace("(NN cat)", "(. cat)")), gold)
    score = score_trees([gold], [judged])
    assert (changed, score.errors, score.f1) == (1, 0, 100)
    assert score.tagging == pytest.approx(100 * 2 / 3)


def test_of_the_beam_the_best_tree_over_the_words_is_taken() -> None:
    sentence = get_leaves(parse_tree(CAT))
    right, short = format_target(parse_tree(CAT)), "(TOP(S(NP[][])NP)S)TOP"
    for texts, expected in (
        ([right, short], [True, True]),
        ([short, right], [False, True]),
        ([short, short], [False, False]),
    ):
        first, *others = [Translation("", text) for text in texts]
        made = choose_parse(replace(first, alternatives=others), sentence, "tags")
        assert [made.first.is_well_formed, made.best.is_well_formed] == expected
    assert made.best.tree == made.first.tree


def test_the_paper_s_own_figures() -> None:
    ours = {training: f1 for name, training, _, f1 in PUBLISHED if name.startswith("Transformer")}
    assert ours == {"WSJ only": 91.3, "semi-supervised": 92.7}


def test_the_search_is_the_paper_s() -> None:
    assert make_config(None, None, None).decoding == DecodingConfig(beam=21, alpha=0.3, max_extra_length=300)
    assert make_config(None, None, None).train.seconds == 180
    assert make_config(None, 9000, None).train.seconds is None
    other = make_config("parsing", 7, 30.0, ["decoding.beam=4", "train.warmup=3"])
    assert (other.model.decoder_layers, other.model.d_model) == (4, 1024)
    assert (other.train.steps, other.train.seconds, other.train.warmup, other.decoding.beam) == (
        7,
        30.0,
        3,
        4,
    )


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="the input is 'letters', but must be of words, tags, both"):
        parse_inputs(["words", "letters"])


def test_the_table_holds_the_published_systems() -> None:
    table = make_table(Treebank("some", "some", [], [], []), [])
    assert isinstance(table, ReportTable)
    assert [row[0] for row in table.rows] == [row[0] for row in PUBLISHED]


# ---- the command


def test_the_command_from_trees_to_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treebank, "BUILT_IN", {"train": 60, "valid": 5, "test": 5})
    changes = [
        word
        for change in [*TINY, "decoding.beam=2", "decoding.max_extra_length=9"]
        for word in ("--set", change)
    ]
    call = ["paper", "table4", "-o", f"{tmp_path}", "--input", "words,tags", "--steps", "2", *changes]
    done = CliRunner().invoke(app, [*call, "--device", "cpu", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert [one["reads"] for one in told["ours"]] == ["words", "tags"]
    assert [one["steps"] for one in told["ours"]] == [2, 2]
    assert told["ours"][1]["tagging"] == 100  # which were given
    for one in told["ours"]:
        assert (one["learned_from"], one["sentences"], one["errors"], one["skipped"]) == (60, 5, 0, 0)
        assert 0 <= one["f1"] <= 100
        assert one["repairs"]
        assert one["well_formed"] < 100
        assert one["mended"] == 5
    page = (tmp_path / "table4.md").read_text(encoding="utf-8")
    assert "| Transformer (4 layers) | WSJ only | 40 thousand | WSJ section 23 | 91.3 |" in page
    assert "EVALB|deleted:TOP -NONE- , : `` '' .|equal:ADVP=PRT" in page
    assert (tmp_path / "table4.csv").read_text().startswith("parser,training,sentences,test,F1,")
    assert all(Path(file).exists() for file in told["files"])
    for other in (["--steps", "3"], ["--vocabulary", "500"]):  # a report is of what its command asked for
        done = CliRunner().invoke(app, [*call, *other, "--device", "cpu"])
        assert isinstance(done.exception, ConfigError)
        assert "was made with other settings" in str(done.exception)


def test_a_wrong_call_is_an_error_of_ours(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["paper", "table4", f"{tmp_path}/nowhere", "-o", f"{tmp_path}/out"])
    assert isinstance(done.exception, DataError)
    assert done.exception.exit_code == 3
    assert not (tmp_path / "out").exists()
