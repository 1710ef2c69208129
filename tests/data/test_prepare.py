"""From files to a data folder: every line read is kept or listed; invalid lines stop or are skipped."""

import csv
import json
import os
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.config import Recipe
from manyheads.data.filtering import HELD_OUT
from manyheads.data.held_out import keep_distinct, sample_reservoir
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.text import clean, invalid
from manyheads.text.corpus import SentencePair
from support import corrupt_corpus

SENTENCES = [
    (f"The {thing} number {number} is {quality}.", f"{number}번 {물건}은 {성질}.")
    for number in range(1, 26)
    for thing, 물건 in (("house", "집"), ("book", "책"), ("door", "문"))
    for quality, 성질 in (("old", "오래되었다"), ("new", "새롭다"))
]


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    files = [f"{folder}/{name}.en", f"{folder}/{name}.ko"]
    for side, file in enumerate(files):
        Path(file).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return files


def recipe(train: list[str] | list[dict[str, Any]], **tables: Any) -> Recipe:
    inputs = [files if isinstance(files, dict) else None for files in train]
    tables.setdefault("subwords", {"vocab_size": 340})
    tables.setdefault("corpus", {"hold_out": 0})
    return Recipe.from_mapping({"train": inputs if inputs[0] else [{"files": train}], **tables})


def texts(store: Store, split: str = "train") -> list[tuple[str, str]]:
    pairs = store.load_split(split)
    return [
        (store.subwords.source.decode(pairs.source[i]), store.subwords.target.decode(pairs.target[i]))
        for i in range(len(pairs))
    ]


def read_dropped(folder: Path) -> list[dict[str, str]]:
    with (folder / "dropped.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def get_input_report(store: Store, split: str = "train", number: int = 0) -> dict[str, Any]:
    report: dict[str, Any] = store.manifest["splits"][split]["inputs"][number]
    return report


def assert_nothing_is_lost(store: Store) -> None:
    for split in store.manifest["splits"].values():
        for part in split["inputs"]:
            lost = sum(part["invalid"].values()) + sum(part["dropped"].values())
            assert part["read"] == part["kept"] + lost


def test_valid_text_is_stored_completely_and_in_order(tmp_path: Path) -> None:
    store = prepare(recipe(write(tmp_path, "a", SENTENCES)), tmp_path / "data")
    assert texts(store) == SENTENCES
    assert read_dropped(tmp_path / "data") == []
    assert_nothing_is_lost(store)


# ---- the fuzzed corpus


def check_fuzzed(folder: Path, lines: int) -> None:
    made_recipe = corrupt_corpus.write_corrupt_text(
        folder, lines, corrupt_fraction=0.01 if lines > 100_000 else 0.1, seed=5
    )
    memory = corrupt_corpus.write_corrupt_tmx(folder, lines // 20, seed=6)
    inputs = [{"files": list(made_recipe.files)}, {"files": [memory.files[0]]}]
    skipping = {"hold_out": 0, "on_invalid": "skip", "source": "en", "target": "ko"}
    store = prepare(recipe(inputs, corpus=skipping), folder / "data")
    ways = {reason for reason, _ in corrupt_corpus.CORRUPTIONS if reason != "empty"}
    assert set(made_recipe.drop_reasons.values()) == ways | {
        invalid.EMPTY_SOURCE,
        invalid.EMPTY_TARGET,
        invalid.NO_COUNTERPART,
    }
    for corrupt in (made_recipe, memory):
        rows = [row for row in read_dropped(folder / "data") if row["file"] in corrupt.files]
        assert {int(row["line"]): row["reason"] for row in rows} == corrupt.drop_reasons
        assert len(rows) == len(corrupt.drop_reasons)
    assert texts(store) == [*made_recipe.valid_pairs.values(), *memory.valid_pairs.values()]
    assert_nothing_is_lost(store)


def test_each_invalid_line_is_listed_and_every_valid_one_is_stored(tmp_path: Path) -> None:
    check_fuzzed(tmp_path, 3000)


@pytest.mark.heavy
def test_each_invalid_line_of_a_million_is_listed_and_every_valid_one_is_stored(tmp_path: Path) -> None:
    check_fuzzed(tmp_path, 1_000_000)


# ---- policies


def test_stop_reports_the_first_invalid_line_and_leaves_nothing(tmp_path: Path) -> None:
    files = write(tmp_path, "a", SENTENCES)
    Path(files[1]).write_bytes(Path(files[1]).read_bytes().replace("책".encode(), b"\xff", 1))
    skipping = prepare(recipe(files), tmp_path / "skipped")
    assert len(skipping.load_split("train")) == len(SENTENCES) - 1
    stopping = recipe(files, corpus={"hold_out": 0, "on_invalid": "stop"})
    with pytest.raises(
        mh.DataError, match=r"a\.ko:3: invalid UTF-8 \(byte 6 is 0xff\)\. Correct it, or skip it"
    ):
        prepare(stopping, tmp_path / "stopped")
    assert not (tmp_path / "stopped").exists()
    assert not list(tmp_path.glob("stopped*"))


def test_differing_line_counts_stop_unless_they_may_be_skipped(tmp_path: Path) -> None:
    files = write(tmp_path, "a", SENTENCES)
    Path(files[0]).write_text(Path(files[0]).read_text() + "one more\nand more\n")
    message = (
        r"a\.en:151: line without counterpart \(.*a\.ko has 150 lines, .*a\.en 152\)\. .*align the files"
    )
    with pytest.raises(mh.DataError, match=message):
        prepare(recipe(files), tmp_path / "data")
    store = prepare(recipe(files, corpus={"hold_out": 0, "on_invalid": "skip"}), tmp_path / "data")
    assert texts(store) == SENTENCES
    assert [(row["line"], row["reason"]) for row in read_dropped(tmp_path / "data")] == [
        ("151", invalid.NO_COUNTERPART),
        ("152", invalid.NO_COUNTERPART),
    ]
    assert_nothing_is_lost(store)


def test_a_broken_container_stops_unless_it_may_be_skipped(tmp_path: Path) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="ko"><seg>{target}</seg></tuv></tu>\n'
        for source, target in SENTENCES
    )
    (tmp_path / "a.tmx").write_text(f"<tmx><body>\n{units}</wrong></tmx>", encoding="utf-8")
    tables = {"source": "en", "target": "ko", "hold_out": 0}
    with pytest.raises(mh.DataError, match=r"a\.tmx:152: broken file"):
        prepare(recipe([f"{tmp_path}/a.tmx"], corpus=tables), tmp_path / "data")
    store = prepare(recipe([f"{tmp_path}/a.tmx"], corpus={**tables, "on_invalid": "skip"}), tmp_path / "data")
    assert texts(store) == SENTENCES
    assert [row["reason"] for row in read_dropped(tmp_path / "data")] == [invalid.BROKEN_FILE]


# ---- filters


def test_every_filter_is_counted_and_listed(tmp_path: Path) -> None:
    bad = [
        ("Save %s", "저장", clean.MARKUP_DIFFERS),
        ("x" * 2001, "가" * 500, clean.TOO_LONG_SIDE),
        ("short", "아주 " * 40, clean.LENGTH_RATIO),
        ("A Korean side", "without Hangul", clean.WRONG_SCRIPT),
        ("1 + 1 = 2", "1 + 1 = 2", clean.IDENTICAL),
        (*SENTENCES[0], clean.DUPLICATE),
    ]
    pairs = SENTENCES + [(source, target) for source, target, _ in bad]
    store = prepare(recipe(write(tmp_path, "a", pairs)), tmp_path / "data")
    assert texts(store) == SENTENCES
    expected = {str(len(SENTENCES) + 1 + number): reason for number, (_, _, reason) in enumerate(bad)}
    assert {row["line"]: row["reason"] for row in read_dropped(tmp_path / "data")} == expected
    assert get_input_report(store)["dropped"] == {reason: 1 for _, _, reason in bad}
    assert_nothing_is_lost(store)
    off = {"markup": "ignore", "max_length": "none", "max_length_ratio": "none"}
    off |= dict.fromkeys(("script", "identical", "duplicates"), False)
    subwords = {"vocab_size": 340, "case_lexicon": False}  # which writes "xxx" as a name
    kept = prepare(recipe(write(tmp_path, "a", pairs), clean=off, subwords=subwords), tmp_path / "off")
    assert texts(kept) == [(source, " ".join(target.split())) for source, target in pairs]


def test_duplicates_are_found_across_inputs_and_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.data.prepare.CHUNK_PAIRS", 7)
    monkeypatch.setattr("manyheads.data.tokenize.CHUNK_PAIRS", 7)
    inputs = [
        {"files": write(tmp_path, "a", SENTENCES), "name": "first"},
        {"files": write(tmp_path, "b", [*SENTENCES[::-1], ("Only here.", "여기만.")]), "weight": 2.5},
    ]
    store = prepare(recipe(inputs), tmp_path / "data")
    assert texts(store) == [*SENTENCES, ("Only here.", "여기만.")]
    assert get_input_report(store, number=1)["dropped"] == {clean.DUPLICATE: len(SENTENCES)}
    assert store.load_split("train").parts == (("first", 1.0, len(SENTENCES)), ("b", 2.5, 1))


def test_no_sentence_of_valid_or_test_stays_in_training(tmp_path: Path) -> None:
    train = [*SENTENCES, ("House, new in words.", SENTENCES[1][1]), (SENTENCES[2][0], "다른 말.")]
    inputs = {
        "valid": [{"files": write(tmp_path, "v", [SENTENCES[1]])}],
        "test": [{"files": write(tmp_path, "t", [SENTENCES[2], SENTENCES[2], ("", "빈")])}],
    }
    store = prepare(recipe(write(tmp_path, "a", train), **inputs), tmp_path / "data")
    assert texts(store) == [SENTENCES[0], *SENTENCES[3:]]
    assert get_input_report(store)["dropped"] == {clean.LEAKAGE: 4}
    assert texts(store, "test") == [SENTENCES[2]] * 2  # a score is of all of them: nothing is filtered
    assert get_input_report(store, "test")["invalid"] == {invalid.EMPTY_SOURCE: 1}
    assert store.read_text("valid") == ([SENTENCES[1][0]], [SENTENCES[1][1]])
    assert_nothing_is_lost(store)


def test_without_valid_pairs_are_held_out_of_train(tmp_path: Path) -> None:
    noisy = [*SENTENCES, *SENTENCES[:20], ("bad %s", "나쁘다")]
    made_recipe = recipe(write(tmp_path, "a", noisy), corpus={"hold_out": 5, "seed": 3})
    store = prepare(made_recipe, tmp_path / "data")
    held_out = [*texts(store, "valid"), *texts(store, "test")]
    assert (len(texts(store, "valid")), len(texts(store, "test")), len(set(held_out))) == (5, 5, 10)
    assert sorted(texts(store) + held_out) == sorted(SENTENCES)
    assert get_input_report(store)["dropped"][HELD_OUT] >= 10
    assert {row["detail"] for row in read_dropped(tmp_path / "data") if row["reason"] == HELD_OUT} == {
        "valid",
        "test",
    }
    assert_nothing_is_lost(store)
    again = prepare(made_recipe, tmp_path / "again")
    assert texts(again, "valid") == texts(store, "valid")
    other = prepare(made_recipe.override(["corpus.seed=4"]), tmp_path / "other")
    assert texts(other, "valid") != texts(store, "valid")


def test_reservoir_sampling_is_uniform() -> None:
    counts: Counter[int] = Counter()
    for seed in range(2000):
        chosen, seen = sample_reservoir(
            (SentencePair("", "", line) for line in range(10)), 3, random.Random(seed)
        )
        assert (len(chosen), seen) == (3, 10)
        counts.update(pair.line for pair in chosen)
    assert all(count == pytest.approx(600, abs=90) for count in counts.values())
    assert len(sample_reservoir([SentencePair("", "", 1)], 3, random.Random(0))[0]) == 1


@pytest.mark.parametrize("seed", range(4))
def test_held_out_pairs_of_a_repetitive_corpus_are_distinct(tmp_path: Path, seed: int) -> None:
    made_recipe = recipe(write(tmp_path, "a", SENTENCES[:30] * 10), corpus={"hold_out": 5, "seed": seed})
    store = prepare(made_recipe, tmp_path / "data")
    held_out = [*texts(store, "valid"), *texts(store, "test")]
    assert len(held_out) == len(set(held_out)) == 10
    assert sorted(texts(store) + held_out) == sorted(SENTENCES[:30])


def test_held_out_pairs_share_no_side() -> None:
    pairs = [
        SentencePair("a", "ㄱ", 1),
        SentencePair("a", "ㄴ", 2),
        SentencePair("b", "ㄱ", 3),
        SentencePair("b", "ㄷ", 4),
    ]
    assert keep_distinct(pairs) == [pairs[0], pairs[3]]


def test_normalizations_are_counted_for_each_input(tmp_path: Path) -> None:
    inputs = [
        {"files": write(tmp_path, "a", SENTENCES)},
        {"files": write(tmp_path, "b", [("two  spaces here", "두  칸"), ("good text", "좋은 글")])},
    ]
    store = prepare(recipe(inputs), tmp_path / "data")
    assert [get_input_report(store, number=number)["normalized"] for number in (0, 1)] == [
        {},
        {"white space": 2},
    ]


def test_the_list_of_dropped_pairs_has_seven_cells_per_line(tmp_path: Path) -> None:
    odd = [("see <a\tb>", "본다"), ("x" * 30, "same"), ("same", "same")]
    made_recipe = recipe(write(tmp_path, "a", SENTENCES + odd), clean={"whitespace": False})
    prepare(made_recipe, tmp_path / "data")
    rows = (tmp_path / "data" / "dropped.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(rows) == 4
    assert {row.count("\t") for row in rows} == {6}
    assert rows[1].split("\t")[2:] == ["151", clean.MARKUP_DIFFERS, "<a b> / none", "see <a b>", "본다"]


def test_at_most_a_twentieth_is_held_out(tmp_path: Path) -> None:
    store = prepare(recipe(write(tmp_path, "a", SENTENCES), corpus={"hold_out": 2000}), tmp_path / "data")
    assert len(store.load_split("valid")) == len(store.load_split("test")) == 7
    assert len(store.load_split("train")) == len(SENTENCES) - 14


def test_held_out_pairs_stay_out_of_train_without_the_leakage_filter(tmp_path: Path) -> None:
    made_recipe = recipe(write(tmp_path, "a", SENTENCES), corpus={"hold_out": 5}, clean={"leakage": False})
    store = prepare(made_recipe, tmp_path / "data")
    assert not set(texts(store)) & {*texts(store, "valid"), *texts(store, "test")}


# ---- subwords


def test_separate_vocabularies_and_detected_placeholders(tmp_path: Path) -> None:
    pairs = [(f"{source} %s", f"%s {target}") for source, target in SENTENCES]
    made_recipe = recipe(write(tmp_path, "a", pairs), subwords={"vocab_size": 310, "joint": False})
    store = prepare(made_recipe, tmp_path / "data")
    assert not store.subwords.is_joint
    assert (
        store.subwords.source.encode_as_pieces("%s")[-1]
        == store.subwords.target.encode_as_pieces("%s")[-1]
        == "%s"
    )
    assert store.manifest["subwords"]["source_vocab_size"] == 310
    ignored = recipe(write(tmp_path, "a", pairs), clean={"markup": "ignore"})
    assert prepare(ignored, tmp_path / "ignored").subwords.source.encode_as_pieces("%s")[-1] != "%s"


def test_subwords_of_another_folder_are_reused_unchanged(tmp_path: Path) -> None:
    first = prepare(recipe(write(tmp_path, "a", SENTENCES[:100])), tmp_path / "first")
    domain = recipe(write(tmp_path, "b", SENTENCES[100:]), subwords={"reuse_from": f"{tmp_path}/first"})
    second = prepare(domain, tmp_path / "second")
    assert second.subwords.source.sha256 == first.subwords.source.sha256
    assert texts(second) == SENTENCES[100:]


def test_the_usual_case_of_words_is_learned_and_used_for_sources_in_one_case(tmp_path: Path) -> None:
    lower = [("the house number 5 is new.", "the house, 팔렸다."), ("The House Number 6 Is New", "여섯")]
    store = prepare(recipe(write(tmp_path, "a", SENTENCES + lower)), tmp_path / "data")
    assert store.subwords.casing
    assert {"house", "number", "is"} <= set(store.subwords.casing.words)
    assert texts(store)[-2:] == [
        ("The house number 5 is new.", "the house, 팔렸다."),
        ("The house number 6 is new", "여섯"),
    ]
    again = recipe(write(tmp_path, "b", SENTENCES), subwords={"reuse_from": str(tmp_path / "data")})
    assert prepare(again, tmp_path / "other").subwords.casing == store.subwords.casing
    without = {"vocab_size": 340, "case_lexicon": False}
    plain = prepare(recipe(write(tmp_path, "a", SENTENCES + lower), subwords=without), tmp_path / "plain")
    assert plain.subwords.casing is None
    assert texts(plain)[-2:] == lower


def test_sources_behind_a_tag_are_read_like_those_without(tmp_path: Path) -> None:
    lower = [("the house number 5 is new.", "집, 하나"), ("The House Number 6 Is New", "여섯")]
    files, tagged = write(tmp_path, "a", SENTENCES), write(tmp_path, "b", lower)
    inputs = [{"files": files}, {"files": tagged, "tag": "<bt>"}]
    store = prepare(recipe(inputs), tmp_path / "data")
    assert [source for source, _ in texts(store)[-2:]] == [
        "<bt> The house number 5 is new.",
        "<bt> The house number 6 is new",
    ]


def test_a_source_without_case_has_no_case_lexicon(tmp_path: Path) -> None:
    files = write(tmp_path, "a", SENTENCES)
    corpus = {"source": "ko", "target": "en", "hold_out": 0}
    store = prepare(recipe([files[1], files[0]], corpus=corpus), tmp_path / "data")
    assert store.subwords.casing is None
    assert not (tmp_path / "data" / "casing.txt").exists()


def test_subwords_are_trained_on_a_sample_of_the_configured_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from manyheads.text.subwords import SubwordTokenizer

    seen: list[list[str]] = []
    train = SubwordTokenizer.train

    def train_recorded(sentences: Any, *rest: Any) -> SubwordTokenizer:
        seen.append(list(sentences))
        return train(seen[-1], *rest)

    monkeypatch.setattr(SubwordTokenizer, "train", train_recorded)
    subwords = {"vocab_size": 330, "sample_sentences": 120}
    made_recipe = recipe(write(tmp_path, "a", SENTENCES), subwords=subwords)
    prepare(made_recipe, tmp_path / "data")
    (sample,) = seen
    assert len(sample) == len(set(sample)) == 120
    places = [SENTENCES.index(pair) for pair in zip(sample[::2], sample[1::2], strict=True)]
    assert places == sorted(places)
    assert [sum(place // 50 == third for place in places) > 10 for third in range(3)] == [True] * 3


# ---- wrong calls


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        ({}, mh.ConfigError, "no training text: give --train"),
        ({"train": [{"files": ["a.tmx"]}]}, mh.DataError, r"^a\.tmx: No such file or directory$"),
        ({"train": [{"files": ["a.en", "a.xx"]}]}, mh.DataError, r"^a\.en: No such file or directory$"),
        (
            {"train": [{"files": ["gone.en", "gone.ko"]}]},
            mh.DataError,
            r"gone\.en: No such file or directory",
        ),
        (
            {"train": [{"flies": ["a"]}]},
            mh.ConfigError,
            r"unknown key input\.flies; did you mean input\.files",
        ),
        ({"train": {"files": ["a"]}}, mh.ConfigError, r"must be a list of tables: \[\[train\]\]"),
        ({"trian": []}, mh.ConfigError, "unknown table trian; did you mean train"),
        ({"corpus": {"source": "English!"}}, mh.ConfigError, r"corpus\.source is 'English!'"),
        ({"corpus": {"source": "ko", "target": "ko"}}, mh.ConfigError, "are both 'ko'"),
    ],
)
def test_a_wrong_recipe_is_an_error_that_names_the_problem(
    tmp_path: Path, tables: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        prepare(Recipe.from_mapping(tables), tmp_path / "data")
    assert not list(tmp_path.iterdir())


def test_languages_that_no_file_name_states_are_asked_for(tmp_path: Path) -> None:
    names = ["a.tmx", "a.en", "b.en"]
    for name in names:
        (tmp_path / name).touch()
    for files in (names[:1], names[1:]):
        tables = {"train": [{"files": [str(tmp_path / name) for name in files]}]}
        with pytest.raises(mh.ConfigError, match="no file name states them: give --pair en-ko"):
            prepare(Recipe.from_mapping(tables), tmp_path / "data")


def test_if_no_pair_is_left_the_reasons_are_counted(tmp_path: Path) -> None:
    files = write(tmp_path, "a", [("same", "same"), ("", "x"), ("other", "other")])
    message = (
        r"no training pair is left: 3 read; identical sides 2, empty source 1\. The first: .*a\.en:1: ident"
    )
    with pytest.raises(mh.DataError, match=message):
        prepare(recipe(files), tmp_path / "data")
    swapped = recipe(write(tmp_path, "b", [(korean, english) for english, korean in SENTENCES]))
    with pytest.raises(mh.DataError, match=r"wrong script 150.* Are source and target swapped"):
        prepare(swapped, tmp_path / "data")


def test_files_whose_suffix_contradicts_the_languages_are_refused(tmp_path: Path) -> None:
    files = write(tmp_path, "a", SENTENCES)
    message = r"a\.ko is given for en, but its suffix is ko"
    for tables in (
        {"corpus": {"source": "en", "target": "ko"}, "train": [{"files": files[::-1]}]},
        {"train": [{"files": files}, {"files": files[::-1]}]},
        {"train": [{"files": files}], "valid": [{"files": files[::-1]}]},
    ):
        with pytest.raises(mh.ConfigError, match=message):
            prepare(Recipe.from_mapping(tables), tmp_path / "data")
    with pytest.raises(mh.ConfigError, match="'kr' is not a known language code; did you mean ko"):
        prepare(recipe(files, corpus={"source": "en", "target": "kr"}), tmp_path / "data")
    unnamed = [shutil.copy(file, f"{file}.txt") for file in files]
    named = recipe(unnamed, corpus={"source": "en", "target": "ko", "hold_out": 0})
    assert texts(prepare(named, tmp_path / "data")) == SENTENCES


def test_holding_out_pairs_of_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.en")
    os.mkfifo(tmp_path / "a.ko")
    piped = recipe([f"{tmp_path}/a.en", f"{tmp_path}/a.ko"], corpus={"hold_out": 5})
    with pytest.raises(
        mh.DataError,
        match=r"a\.en: not a regular file, and holding out pairs needs to read it twice.*corpus\.hold_out=0",
    ):
        prepare(piped, tmp_path / "data")


def test_a_text_too_small_to_hold_out_pairs_has_no_valid(tmp_path: Path) -> None:
    small = recipe(write(tmp_path, "a", SENTENCES[:19]), corpus={"seed": 0}, subwords={"vocab_size": 310})
    assert prepare(small, tmp_path / "data").splits == ["train"]


def test_missing_subwords_are_reported_before_anything_is_read(tmp_path: Path) -> None:
    wrong = recipe(["gone.en", "gone.ko"], subwords={"reuse_from": str(tmp_path)})
    with pytest.raises(mh.DataError, match="no subwords"):
        prepare(wrong, tmp_path / "data")


def test_a_recipe_is_saved_and_loaded(tmp_path: Path) -> None:
    made_recipe = recipe(
        [
            {"files": ["a.en", "a.ko"], "name": 'quo"ted', "weight": 2.0},
            {"files": ["b.tsv"], "fields": ["1", "3"]},
        ],
        subwords={"user_symbols": ["<polite>", "<plain>"], "algorithm": "unigram"},
        valid=[{"files": ["v.jsonl"]}],
    )
    made_recipe.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == made_recipe


def test_a_recipe_without_inputs_shows_an_example() -> None:
    toml = Recipe().to_toml()
    assert "# [[train]]\n# files = [" in toml
    assert Recipe.from_toml(toml) == Recipe()
    example = toml[toml.index("# [[train]]") :]
    (inputs,) = Recipe.from_toml(re.sub(r"^# ", "", example, flags=re.M)).train
    assert inputs.files == ("train.en", "train.ko")


def test_the_manifest_describes_the_data(tmp_path: Path) -> None:
    store = prepare(recipe(write(tmp_path, "a", SENTENCES)), tmp_path / "data")
    manifest = json.loads((tmp_path / "data" / "corpus.json").read_text(encoding="utf-8"))
    train = manifest["splits"]["train"]
    assert train["pairs"] == len(SENTENCES)
    assert train["source"]["tokens"] == len(store.load_split("train").source.tokens)
    assert sum(train["source"]["lengths"]) == len(SENTENCES)
    assert train["target"]["unknown"] == 0
    assert train["target"]["max_length"] == store.load_split("train").target.lengths.max()
    assert manifest["subwords"]["sha256"] == {"subwords.model": store.subwords.source.sha256}
    assert Recipe.from_mapping(manifest["recipe"]).subwords.vocab_size == 340
    lengths = Counter(int(length) for length in store.load_split("train").source.lengths)
    assert train["source"]["lengths"][1] == sum(
        count for length, count in lengths.items() if 9 <= length <= 16
    )
