"""Table 4: reading treebanks, the data folder, evaluation, and the command at its smallest."""

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
from manyheads.paper.parsing_grid import GrammarEvaluation, ParserGrid, parse_numbers
from manyheads.paper.report import ReportTable
from manyheads.paper.table4 import PUBLISHED, draw_curve, make_config, make_table, parse_inputs
from manyheads.paper.treebank import ParserInput, Treebank, read_treebank
from manyheads.paper.treebank_data import format_source, format_target, prepare_data
from manyheads.progress import Progress
from manyheads.text.trees import Tree, get_leaves, parse_tree
from manyheads.translation import Translation

CAT = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
TREES = playground.generate_treebank(train=60, valid=0, test=0, words=3)["train"]
TINY = ["model.layers=1", "model.d_model=16", "model.d_ff=16", "model.heads=2", "train.checkpoint_every=2"]


def write(file: Path, trees: list[Tree]) -> Path:
    file.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return file


# ---- treebanks


def test_file_names_state_the_split_and_corpora_without_a_test_add_training_trees(tmp_path: Path) -> None:
    for name, trees in (
        ("news.train.ptb", TREES[:20]),
        ("news.dev.ptb", TREES[20:25]),
        ("news.test.ptb", TREES[25:30]),
        ("more.train.ptb", TREES[30:50]),
        ("more.valid.ptb", TREES[50:]),
    ):
        write(tmp_path / name, trees)
    bank = read_treebank([tmp_path], Progress())
    assert sorted(map(str, bank.train)) == sorted(map(str, TREES[:20] + TREES[30:50]))
    assert (bank.valid, bank.test) == (TREES[20:25], TREES[25:30])
    assert bank.notes == ["more.valid.ptb: not read, since more has no test file"]
    assert (bank.name, bank.test_name) == ("more, news", "news")


def test_a_file_without_a_split_in_its_name_is_split_by_position(tmp_path: Path) -> None:
    bank = read_treebank([write(tmp_path / "trees.ptb", TREES)], Progress())
    assert bank.valid == [TREES[18], TREES[38], TREES[58]]
    assert bank.test == [TREES[19], TREES[39], TREES[59]]
    assert len(bank.train) == 54
    assert "of each 20 trees the last is held out for test" in bank.notes[0]


def test_training_sentences_that_are_in_valid_or_test_are_removed(tmp_path: Path) -> None:
    for name, trees in (("a.train", TREES[:20]), ("a.valid", TREES[3:5]), ("a.test", TREES[5:8])):
        write(tmp_path / name, trees)
    bank = read_treebank([tmp_path], Progress())
    assert bank.train == TREES[:3] + TREES[8:20]
    assert bank.notes == ["5 training sentences are also in valid or test: removed"]


def test_training_sentences_in_test_are_removed_whatever_their_tags(tmp_path: Path) -> None:
    other = parse_tree(CAT.replace("VBZ", "VBP"))
    for name, trees in (
        ("a.train", [other, TREES[0]]),
        ("a.valid", TREES[1:2]),
        ("a.test", [parse_tree(CAT)]),
    ):
        write(tmp_path / name, trees)
    assert read_treebank([tmp_path], Progress()).train == TREES[:1]


def test_invalid_training_trees_are_skipped_and_noted(tmp_path: Path) -> None:
    for name, trees in (("a.train", TREES[:5]), ("a.valid", TREES[5:7]), ("a.test", TREES[7:9])):
        write(tmp_path / name, trees)
    with (tmp_path / "a.train").open("a") as file:
        file.write("(TOP (NN hot dog))\n")
    bank = read_treebank([tmp_path], Progress())
    assert bank.train == TREES[:5]
    assert bank.notes == [
        f"1 lines of a.train are not trees and were skipped; the first: {tmp_path}/a.train:6: two words in "
        f"one bracket ('hot' and 'dog' at character 14)"
    ]


def test_invalid_test_trees_are_an_error(tmp_path: Path) -> None:
    for name, trees in (("a.train", TREES[:5]), ("a.valid", TREES[5:7]), ("a.test", TREES[7:9])):
        write(tmp_path / name, trees)
    (tmp_path / "a.test").write_text("(TOP (NN hot dog))\n")
    with pytest.raises(
        DataError, match=r"a.test:1: two words in one bracket .* each line must hold one complete tree"
    ):
        read_treebank([tmp_path], Progress())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "the folder is empty; add files of bracketed trees"),
        (["a.train"], "no trees for valid: file names state the split"),
        (["trees.ptb"], "no trees for valid: .* needs 20 trees or more"),
        (["a.train", "a.valid", "a.test"], "no training tree is left"),
    ],
)
def test_unusable_treebanks_are_rejected(files: list[str], message: str, tmp_path: Path) -> None:
    for name in files:
        write(tmp_path / name, TREES[:5])
    with pytest.raises(DataError, match=message):
        read_treebank([tmp_path], Progress())


def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such file or folder; give files of bracketed trees"):
        read_treebank([tmp_path / "nowhere"], Progress())


def test_brackets_that_the_tested_treebank_does_not_have_are_removed_from_other_corpora(
    tmp_path: Path,
) -> None:
    foreign = parse_tree("(TOP (TITLE (NP (DT an) (NML (NN update) (NN survey)))))")
    for name, trees in (
        ("news.train.ptb", [foreign, *TREES[:5]]),
        ("news.dev.ptb", TREES[20:25]),
        ("news.test.ptb", TREES[25:30]),
        ("more.train.ptb", [parse_tree(str(foreign).replace("update", "up"))]),
    ):
        write(tmp_path / name, trees)
    bank = read_treebank([tmp_path], Progress())
    assert str(bank.train[0]) == str(foreign)
    assert str(bank.train[-1]) == "(TOP (NP (DT an) (NN up) (NN survey)))"
    assert "more.train.ptb: 2 brackets with CAPTION, CIT, HEADING, NML, TITLE removed" in bank.notes


def test_a_larger_part_of_a_treebank_contains_the_smaller_one_and_own_trees_come_first() -> None:
    bank = Treebank("some", "some", TREES[:30], [], [], part_sizes=(20, 10))
    small, large = bank.take_train(15).train, bank.take_train(25).train
    assert large[:15] == small
    assert set(map(str, small)) <= set(map(str, TREES[:20])) <= set(map(str, large))
    with pytest.raises(DataError, match="--sizes has 31, but there are 30 training trees"):
        bank.take_train(31)


# ---- source and target


def test_source_and_target_of_each_input() -> None:
    tree = parse_tree(CAT)
    assert {
        parser_input: format_source(get_leaves(tree), parser_input) for parser_input in treebank.PARSER_INPUTS
    } == {
        "words": "The cat sleeps .",
        "tags": "[DT][NN][VBZ][.]",
        "both": "[DT]The[NN]cat[VBZ]sleeps[.].",
    }
    assert format_target(tree) == "(TOP(S(NP[DT][NN])NP(VP[VBZ])VP[.])S)TOP"


@pytest.mark.parametrize("parser_input", treebank.PARSER_INPUTS)
def test_every_bracket_and_tag_is_one_subword(parser_input: ParserInput, tmp_path: Path) -> None:
    bank = Treebank("some", "some", TREES[:50], TREES[50:55], TREES[55:])
    store = prepare_data(bank, parser_input, 4000, tmp_path, Progress())
    train = store.load_split("train")
    assert len(train) == 50
    tokens = format_target(TREES[0]).replace("(", " (").replace(")", " )").replace("[", " [").split()
    pieces = [store.subwords.target.id_to_piece(token) for token in train.target[0][:-1].tolist()]
    assert pieces == ["▁", *tokens]
    assert len(store.subwords.target) < 80
    if parser_input != "words":
        source_pieces = [store.subwords.source.id_to_piece(token) for token in train.source[0].tolist()]
        assert [piece for piece in source_pieces if piece.startswith("[")] == [
            f"[{leaf.tag}]" for leaf in get_leaves(TREES[0])
        ]
    again = prepare_data(bank, parser_input, 4000, tmp_path, Progress())
    assert again.sha256 == store.sha256
    with pytest.raises(DataError, match="was made from other trees; choose another folder with --out"):
        prepare_data(
            Treebank("other", "other", TREES[:49], *[TREES[50:]] * 2),
            parser_input,
            4000,
            tmp_path,
            Progress(),
        )


# ---- evaluation


def test_punctuation_is_given_the_gold_tag() -> None:
    gold = parse_tree(CAT)
    assert match_punctuation(parse_tree(CAT.replace("(. .)", "(NN .)")), gold) == (gold, 1)
    assert match_punctuation(parse_tree(CAT.replace("VBZ", "VBD")), gold) == (
        parse_tree(CAT.replace("VBZ", "VBD")),
        0,
    )


def test_a_word_tagged_as_punctuation_counts_as_a_word_with_a_wrong_tag() -> None:
    gold = parse_tree(CAT)
    matched, changed = match_punctuation(parse_tree(CAT.replace("(NN cat)", "(. cat)")), gold)
    score = score_trees([gold], [matched])
    assert (changed, score.errors, score.f1) == (1, 0, 100)
    assert score.tagging == pytest.approx(100 * 2 / 3)


def test_the_parse_is_the_best_well_formed_hypothesis_of_the_beam() -> None:
    sentence = get_leaves(parse_tree(CAT))
    right, short = format_target(parse_tree(CAT)), "(TOP(S(NP[][])NP)S)TOP"
    for texts, expected in (
        ([right, short], [True, True]),
        ([short, right], [False, True]),
        ([short, short], [False, False]),
    ):
        first, *others = [Translation("", text) for text in texts]
        parse = choose_parse(replace(first, alternatives=others), sentence, "tags")
        assert [parse.first.is_well_formed, parse.best.is_well_formed] == expected
    assert parse.best.tree == parse.first.tree


def test_the_published_scores_of_the_transformer() -> None:
    ours = {training: f1 for name, training, _, f1 in PUBLISHED if name.startswith("Transformer")}
    assert ours == {"WSJ only": 91.3, "semi-supervised": 92.7}


def test_decoding_is_that_of_the_paper() -> None:
    assert make_config(None, [], None).decoding == DecodingConfig(beam=21, alpha=0.3, max_extra_length=300)
    assert make_config(None, [], None).train.seconds == 180
    assert make_config(None, [9000], None).train.seconds is None
    other = make_config("parsing", [7], 30.0, ["decoding.beam=4", "train.warmup=3"])
    assert (other.model.decoder_layers, other.model.d_model) == (4, 1024)
    assert (other.train.steps, other.train.seconds, other.train.warmup, other.decoding.beam) == (
        7,
        30.0,
        3,
        4,
    )


def test_an_unknown_input_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match="--input has 'letters', but must be one or more of words, tags, both"
    ):
        parse_inputs(["words", "letters"])


def test_the_table_contains_the_published_parsers() -> None:
    table = make_table(Treebank("some", "some", [], [], []), [], [])
    assert isinstance(table, ReportTable)
    assert [row[0] for row in table.rows] == [row[0] for row in PUBLISHED]


def test_a_grid_varies_trees_and_steps_independently_and_names_each_run() -> None:
    grid = ParserGrid(["words"], [850, 3394], [4000, 9000], 2)
    runs = list(grid.list_runs(make_config(None, [4000, 9000], None)))
    assert [name for name, *_ in runs[:3]] == [
        "words-850trees-4000steps-seed1",
        "words-850trees-4000steps-seed2",
        "words-850trees-9000steps-seed1",
    ]
    assert [(size, config.train.steps, config.train.seed) for _, _, size, config in runs][-1] == (
        3394,
        9000,
        2,
    )


@pytest.mark.parametrize("text", ["850,0", "850,850", "many"])
def test_wrong_numbers_of_trees_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--sizes is .*, but must be different numbers above 0"):
        parse_numbers("--sizes", text)


def test_the_curve_has_a_line_for_the_grammar(tmp_path: Path) -> None:
    scores = score_trees([parse_tree(CAT)], [parse_tree(CAT)])
    grammars = [GrammarEvaluation("words", size, 9, scores, 0, 1.0) for size in (10, 20)]
    assert all(path.exists() for path in draw_curve([], grammars, tmp_path))


# ---- the command


def test_the_command_trains_evaluates_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treebank, "BUILT_IN_SIZES", {"train": 60, "valid": 5, "test": 5})
    changes = [
        word
        for change in [*TINY, "decoding.beam=2", "decoding.max_extra_length=9"]
        for word in ("--set", change)
    ]
    arguments = [
        "paper",
        "table4",
        "-o",
        f"{tmp_path}",
        "--input",
        "words,tags",
        "--steps",
        "2",
        "--sizes",
        "60",
        *changes,
    ]
    finished = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--json"], catch_exceptions=False)
    assert finished.exit_code == 0
    report = json.loads(finished.stdout)
    assert [result["parser_input"] for result in report["ours"]] == ["words", "tags"]
    assert [result["steps"] for result in report["ours"]] == [2, 2]
    assert report["ours"][1]["tagging"] == 100  # given in the input
    assert [(grammar["parser_input"], grammar["train_trees"]) for grammar in report["grammars"]] == [
        ("words", 60),
        ("tags", 60),
    ]
    assert all(0 < grammar["f1"] <= 100 for grammar in report["grammars"])
    for result in report["ours"]:
        assert (result["train_trees"], result["sentences"], result["errors"], result["skipped"]) == (
            60,
            5,
            0,
            0,
        )
        assert 0 <= result["f1"] <= 100
        assert result["repairs"]
        assert result["well_formed"] < 100
        assert result["num_repaired"] == 5
    page = (tmp_path / "table4.md").read_text(encoding="utf-8")
    assert "| Transformer (4 layers) | WSJ only | 40 thousand | WSJ section 23 | 91.3 |" in page
    assert "EVALB|deleted:TOP -NONE- , : `` '' .|equal:ADVP=PRT" in page
    assert (tmp_path / "table4.csv").read_text().startswith("parser,training,sentences,test,F1,")
    assert all(Path(file).exists() for file in report["files"])
    for changed in (["--set", "train.warmup=9"], ["--vocab-size", "500"]):  # the folder keeps its settings
        finished = CliRunner().invoke(app, [*arguments, *changed, "--device", "cpu"])
        assert isinstance(finished.exception, ConfigError)
        assert "was made with other settings" in str(finished.exception)


def test_a_missing_path_is_a_data_error(tmp_path: Path) -> None:
    finished = CliRunner().invoke(app, ["paper", "table4", f"{tmp_path}/nowhere", "-o", f"{tmp_path}/out"])
    assert isinstance(finished.exception, DataError)
    assert finished.exception.exit_code == 3
    assert not (tmp_path / "out").exists()
