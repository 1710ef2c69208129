"""Back-translation: synthetic pairs from text in one language, and their tag in prepared data."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads.bulk.backtranslation import BacktranslationOptions, create_decoding, format_pair
from manyheads.cli import app
from manyheads.confidence_policy import ConfidencePolicy
from manyheads.config import DataConfig, Recipe
from manyheads.data.batches import Batches
from manyheads.data.prepare import prepare
from manyheads.errors import ConfigError, ManyheadsError, RequestError
from manyheads.text.word_noise import add_word_noise
from manyheads.translation import Translation
from support.untrained_model import calibrate_untrained_model, save_untrained_model

LINES = ["I go home today.", "", "We read a book\tat school.", "I go home today."]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrate_untrained_model(save_untrained_model(tmp_path_factory.mktemp("reverse") / "model"))


def backtranslate(model: Path, tmp_path: Path, *options: str) -> str:
    (tmp_path / "mono.en").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = ["backtranslate", str(model), str(tmp_path / "mono.en"), "--out", str(tmp_path / "bt")]
    result = CliRunner().invoke(app, [*arguments, "--workers", "1", "--device", "cpu", *options])
    if isinstance(result.exception, ManyheadsError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return (tmp_path / "bt" / "mono.en.tsv").read_text(encoding="utf-8")


def test_a_pair_is_a_synthetic_source_and_the_line_itself(model: Path, tmp_path: Path) -> None:
    text = backtranslate(model, tmp_path)
    rows = [line.split("\t") for line in text.splitlines()]
    assert [row[1] for row in rows] == ["I go home today.", "We read a book at school.", "I go home today."]
    assert rows[0] == rows[2]
    assert all(row[0] for row in rows)
    modified = (tmp_path / "bt" / "mono.en.tsv").stat().st_mtime_ns
    backtranslate(model, tmp_path)  # the same command again has nothing to do
    assert (tmp_path / "bt" / "mono.en.tsv").stat().st_mtime_ns >= modified
    assert json.loads((tmp_path / "bt" / "job.json").read_text())["task"] == "backtranslate"


def test_pairs_below_the_confidence_are_left_out() -> None:
    options, policy = BacktranslationOptions(), ConfidencePolicy(0.5)
    pairs = [
        format_pair(Translation("ein Haus", "a  house", confidence=value), options, policy)
        for value in (0.4, 0.6, None)
    ]
    assert pairs == [None, "a house\tein Haus", "a house\tein Haus"]
    assert format_pair(Translation("ein Haus", ""), options, policy) is None


def test_a_threshold_needs_a_calibrated_model(model: Path, tmp_path: Path) -> None:
    plain = save_untrained_model(tmp_path / "plain")
    with pytest.raises(ManyheadsError, match="calibrated"):
        backtranslate(plain, tmp_path, "--min-confidence", "0.5")


def test_noise_drops_and_shuffles_words_but_keeps_what_must_survive() -> None:
    text = " ".join(f"word{chr(97 + number)}" for number in range(20)) + " {name} 42"
    noised = [add_word_noise(text, seed) for seed in range(50)]
    assert noised[0] == add_word_noise(text, 0)
    assert len(set(noised)) == 50
    lengths = [len(line.split()) for line in noised]
    assert 19 < sum(lengths) / 50 < 21.5
    for line in noised:
        words = line.split()
        assert {"{name}", "42"} <= set(words) <= set(text.split())
    assert add_word_noise("word", 3) == "word"


def test_methods_take_their_own_options_only() -> None:
    assert create_decoding("sampling", None, None, 10, 3) == {"temperature": 1.0, "seed": 3, "top_k": 10}
    assert create_decoding("beam", 5, None, None, 0) == {"beam": 5}
    assert create_decoding("noised-beam", None, None, None, 0) == {}
    wrong: list[tuple[str, int | None, float | None]] = [
        ("greedy", None, None), ("sampling", 4, None), ("beam", None, 1.0),
    ]  # fmt: skip
    for method, beam, temperature in wrong:
        with pytest.raises(RequestError, match=r"--method|sampling"):
            create_decoding(method, beam, temperature, None, 0)


# ---- tags


def write_pairs(folder: Path) -> None:
    real = [(f"a house number {n}", f"ein Haus Nummer {n}") for n in range(60)]
    synthetic = [(f"a tree number {n}", f"ein Baum Nummer {n}") for n in range(60)]
    for name, pairs in (("real", real), ("bt", synthetic)):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


def make_recipe(folder: Path, *, tag: str = "<bt>", **subwords: object) -> Recipe:
    inputs = [
        {"files": [f"{folder}/real.tsv"], "weight": 2},
        {"files": [f"{folder}/bt.tsv"], "weight": 0.5, "tag": tag},
    ]
    corpus = {"source": "en", "target": "de", "hold_out": 20}
    return Recipe.from_mapping(
        {"train": inputs, "corpus": corpus, "subwords": {"vocab_size": 330, **subwords}}
    )


def test_a_tag_is_one_piece_before_each_synthetic_source(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    store = prepare(make_recipe(tmp_path), tmp_path / "data")
    split, tokenizer = store.load_split("train"), store.subwords.source
    tag = tokenizer.pieces.index("<bt>")
    tagged = [tag in split.source[index].tolist() for index in range(len(split))]
    (_, _, num_real), (_, weight, num_synthetic) = split.parts
    assert tagged == [False] * num_real + [True] * num_synthetic
    assert (weight, num_synthetic) == (0.5, 60)
    text = tokenizer.decode(split.source[num_real].tolist())
    assert text == "<bt> a tree number 0"
    assert not any(tag in split.target[index].tolist() for index in range(len(split)))


def test_pairs_with_a_tag_are_never_held_out(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    store = prepare(make_recipe(tmp_path), tmp_path / "data")
    for name in ("valid", "test"):
        sources, _ = store.read_text(name)
        assert sources
        assert all("house" in line for line in sources)


def test_weights_mix_real_and_synthetic_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    split = prepare(make_recipe(tmp_path), tmp_path / "data").load_split("train")
    batches, num_real = Batches(split, DataConfig(batch_tokens=500)), split.parts[0][2]
    for epoch in range(2):
        pairs = [
            pair
            for index in range(batches.count_batches(epoch))
            for pair in batches.get_batch(epoch, index).pairs
        ]
        assert sum(pair >= num_real for pair in pairs) == 30
        assert sum(pair < num_real for pair in pairs) == 2 * num_real


def test_a_tag_that_reused_subwords_lack_is_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    prepare(make_recipe(tmp_path), tmp_path / "data")
    recipe = make_recipe(tmp_path, tag="<noisy>", reuse_from=str(tmp_path / "data"))
    with pytest.raises(ConfigError, match=r"the tag '<noisy>' is no piece"):
        prepare(recipe, tmp_path / "other")
    prepare(make_recipe(tmp_path, reuse_from=str(tmp_path / "data")), tmp_path / "same")
    with pytest.raises(ConfigError, match="white space"):
        make_recipe(tmp_path, tag="< bt>")


def test_synthetic_text_alone_needs_a_validation_set(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    files = {"files": [f"{tmp_path}/bt.tsv"], "tag": "<bt>"}
    tables = {"train": [files], "corpus": {"source": "en", "target": "de"}}
    with pytest.raises(ConfigError, match="every training text has a tag"):
        prepare(Recipe.from_mapping(tables), tmp_path / "data")
