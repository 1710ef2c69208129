"""Adaptation: what is trained, what is replayed, adapter files, and the report."""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint.adapters import merge_adapter, parse_adapter
from manyheads.config import AdaptationConfig, Recipe
from manyheads.data.batches import Batches
from manyheads.data.prepare import prepare
from manyheads.data.replay import ReplayBatches
from manyheads.data.store import Store
from manyheads.errors import CheckpointError, ConfigError, DataError, RequestError
from manyheads.loading import use_adapter
from manyheads.packed import Packed
from manyheads.train.adapt import AdaptationOptions, choose_rank, create_config, install_adapter
from manyheads.train.adaptation_report import find_forgetting
from manyheads.train.adaptation_run import adapt
from manyheads.train.final_model import ADAPTER_FILE
from manyheads.train.objective import Objective
from manyheads.train.run import train
from manyheads.train.trained_weights import LowRankWeights, ModelWeights, find_linear
from manyheads.train.trainer import Trainer
from support.small_run import are_identical, make_config, read_entries, read_losses, read_weights

NEW_PAIRS = [
    (f"{who} {does} {what} {n} times.", f"{누구} {무엇} {n}번 {하다}.")
    for n in range(20, 30)
    for who, 누구 in (("She", "그녀는"), ("He", "그는"))
    for what, 무엇 in (("rivers", "강을"), ("songs", "노래를"))
    for does, 하다 in (("sees", "본다"), ("hears", "듣는다"))
]


@pytest.fixture(scope="module")
def model(finished_run: Path) -> Path:
    return finished_run / "model"


@pytest.fixture(scope="module")
def new_data(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other text with the subwords of the model."""
    folder = tmp_path_factory.mktemp("new")
    text = "".join(f"{source}\t{target}\n" for source, target in NEW_PAIRS)
    (folder / "new.tsv").write_text(text, encoding="utf-8")
    tables = {
        "train": [{"files": [f"{folder}/new.tsv"]}],
        "corpus": {"hold_out": 4, "source": "en", "target": "ko"},
        "subwords": {"reuse_from": str(model)},
    }
    prepare(Recipe.from_mapping(tables), folder / "data")
    return folder / "data"


def adaptation_config(new_data: Path, model: Path, steps: int = 6, **adaptation: Any) -> mh.Config:
    config = make_config(new_data, init_from=str(model), steps=steps, average_checkpoints=1, calibrate=False)
    return replace(config, adaptation=AdaptationConfig(**adaptation))


@pytest.fixture(scope="module")
def adapter_run(new_data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("adapter") / "run"
    assert train(adaptation_config(new_data, model, rank=2), run, device="cpu") == "steps"
    return run


# ---- what is trained


def make_batch(model: mh.Transformer) -> tuple[Objective, tuple[Packed, Packed, torch.Tensor]]:
    target = [[5, 6, 7, 2], [8, 2]]
    inputs = Packed.of([[1, *ids[:-1]] for ids in target])
    labels = Packed.of(target).tokens
    return Objective(model, mh.TrainConfig()), (Packed.of([[9, 4, 2], [3, 7, 7, 2]]), inputs, labels)


def test_gradients_of_an_adapter_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=12, layers=1, d_model=8, d_ff=12, heads=2, dropout=0.0)
    )
    weights = LowRankWeights(model, rank=3, scale=1.5)
    weights.set_base()
    for _, b_Fr in weights.factors.values():
        torch.nn.init.normal_(b_Fr, std=0.1)
    weights.update_model()
    objective, batch = make_batch(model)
    objective(*batch)[0].backward()
    weights.map_gradients()
    merged = {
        f"model.{name}": weights.initial[name] + 1.5 * b_Fr @ a_rD
        for name, (a_rD, b_Fr) in weights.factors.items()
    }
    loss = torch.func.functional_call(objective, merged, batch)[0]
    expected = torch.autograd.grad(loss, list(weights.parameters.values()))
    for parameter, gradient in zip(weights.parameters.values(), expected, strict=True):
        assert parameter.grad is not None
        assert gradient.abs().max() > 0
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_an_adapter_starts_as_the_model_itself(new_data: Path, model: Path, adapter_run: Path) -> None:
    first, *rest = read_entries(adapter_run, "valid")
    assert first["step"] == 0
    plain = adapter_run.with_name("plain")
    train(adaptation_config(new_data, model, steps=1), plain, device="cpu")
    assert first["loss"] == read_entries(plain, "valid")[0]["loss"]
    assert rest[-1]["loss"] != first["loss"]


def test_an_anchor_adds_the_distance_to_the_gradient() -> None:
    model = torch.nn.Linear(2, 2)
    weights = ModelWeights(model, anchor=0.5)
    weights.set_base()
    with torch.no_grad():
        model.weight.add_(0.2)
    model.weight.grad, model.bias.grad = torch.ones(2, 2), torch.ones(2)
    weights.map_gradients()
    assert torch.allclose(model.weight.grad, torch.full((2, 2), 1.1))
    assert torch.equal(model.bias.grad, torch.ones(2))


def test_an_anchor_keeps_weights_near_their_initial_values(
    new_data: Path, model: Path, tmp_path: Path
) -> None:
    initial = checkpoint.read_tensors(model / "weights.safetensors")
    distances = []
    for anchor in (0.0, 100.0):
        run = tmp_path / f"{anchor}"
        train(adaptation_config(new_data, model, anchor=anchor), run, device="cpu")
        weights = read_weights(run)
        distances.append(sum(float((weights[name] - initial[name]).square().sum()) for name in initial))
    assert distances[1] < 0.5 * distances[0]


@pytest.mark.parametrize("part", ["embeddings", "encoder", "decoder"])
@pytest.mark.parametrize("rank", [None, 2])
def test_frozen_parts_do_not_change(
    new_data: Path, model: Path, tmp_path: Path, part: str, rank: int | None
) -> None:
    config = adaptation_config(new_data, model, steps=2, freeze=[part], rank=rank)
    train(config, tmp_path / "run", device="cpu")
    before, after = checkpoint.read_tensors(model / "weights.safetensors"), read_weights(tmp_path / "run")
    changed = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    parts = {"encoder", "decoder"} | ({"source_embedding"} if rank is None else set())
    assert changed == parts - {"source_embedding" if part == "embeddings" else part}


def test_an_adapter_run_killed_after_a_step_ends_bit_identical(
    new_data: Path, model: Path, adapter_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def fail_at_step(self: Trainer, *rest: Any) -> None:
        if self.progress.step == 5:
            raise ZeroDivisionError
        step(self, *rest)

    monkeypatch.setattr(Trainer, "_step", fail_at_step)
    config = adaptation_config(new_data, model, rank=2)
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path / "run", device="cpu")
    monkeypatch.undo()
    assert train(config, tmp_path / "run", device="cpu") == "steps"
    assert are_identical(read_weights(tmp_path / "run"), read_weights(adapter_run))
    assert (tmp_path / "run" / ADAPTER_FILE).read_bytes() == (adapter_run / ADAPTER_FILE).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"average_checkpoints": 2}, "set train.average_checkpoints = 1"),
        ({"optimizer": "muon", "average_checkpoints": 1}, "muon"),
        ({"init_from": None, "average_checkpoints": 1}, "train.init_from"),
    ],
)
def test_settings_without_a_low_rank_are_refused(
    new_data: Path, model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = make_config(new_data, **{"init_from": str(model), **changes})
    config = replace(config, adaptation=AdaptationConfig(rank=2))
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "run", device="cpu")


# ---- replay


def test_batches_with_replay_hold_both_corpora_in_the_given_shares(
    data: Path, new_data: Path, model: Path
) -> None:
    new, general = Store.open(new_data), Store.open(data)
    sizes = {"new": 300, "general": 100}
    made = [
        Batches(store.load_split("train"), mh.DataConfig(batch_tokens=size), seed=3)
        for store, size in zip((new, general), sizes.values(), strict=True)
    ]
    batches = ReplayBatches(*made)
    num_new = num_general = 0
    for epoch in range(3):
        for index in range(batches.count_batches(epoch)):
            batch, plain = batches.get_batch(epoch, index), made[0].get_batch(epoch, index)
            assert len(batch.source) == len(batch.inputs) == len(batch.labels) > len(plain.source)
            num_plain = len(plain.labels.tokens)
            assert torch.equal(batch.labels.tokens[:num_plain], plain.labels.tokens)
            assert batch.labels.split()[-1][-1] == batch.source.split()[-1][-1] == 2  # the end token
            assert batch.inputs.split()[-1][0] == 1
            num_new, num_general = num_new + num_plain, num_general + len(batch.labels.tokens) - num_plain
    assert num_general / num_new == pytest.approx(1 / 3, rel=0.25)
    first = batches.get_batch(0, 0).source.tokens
    assert torch.equal(batches.get_batch(0, 0).source.tokens, first)


def test_general_text_is_replayed_and_measured(
    data: Path, new_data: Path, model: Path, tmp_path: Path
) -> None:
    config = adaptation_config(new_data, model, general=str(data), replay=0.5)
    train(config, tmp_path / "run", device="cpu")
    valid = read_entries(tmp_path / "run", "valid")
    assert all({"general_loss", "general_bleu"} <= entry.keys() for entry in valid)
    assert valid[0]["general_loss"] != valid[0]["loss"]
    train(replace(config, adaptation=AdaptationConfig()), tmp_path / "plain", device="cpu")
    assert read_losses(tmp_path / "run") != read_losses(tmp_path / "plain")


def test_general_data_with_other_subwords_is_refused(
    data: Path, new_data: Path, model: Path, tmp_path: Path
) -> None:
    source = next(data.parent.glob("a.en"))
    tables = {
        "train": [{"files": [str(source), str(source.with_suffix(".ko"))]}],
        "subwords": {"vocab_size": 320},
    }
    prepare(Recipe.from_mapping(tables), tmp_path / "other")
    config = adaptation_config(new_data, model, general=str(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"subwords\.reuse_from"):
        train(config, tmp_path / "run", device="cpu")
    with pytest.raises(ConfigError, match=r"adaptation.general names no data"):
        AdaptationConfig(replay=0.5)


# ---- adapter files


@pytest.fixture
def adapted_model(model: Path, adapter_run: Path, tmp_path: Path) -> Path:
    """A copy of the model with an adapter."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in model.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    install_adapter(adapter_run, folder, "rivers")
    return folder


def test_an_adapter_comes_back_as_it_was_written(adapter_run: Path, adapted_model: Path) -> None:
    trained = parse_adapter(adapter_run / ADAPTER_FILE, "rivers")
    adapter = checkpoint.read_adapter(adapted_model, "rivers")
    linear = dict(find_linear(checkpoint.load_model(adapted_model)[0]))
    assert checkpoint.list_adapters(adapted_model) == ["rivers"]
    assert (adapter.rank, adapter.base) == (2, trained.base)
    assert adapter.factors.keys() == trained.factors.keys() == linear.keys()
    for name, pair in adapter.factors.items():
        assert all(torch.equal(a, b) for a, b in zip(pair, trained.factors[name], strict=True))


def test_an_adapted_model_is_the_model_of_its_run_and_leaves_the_base_untouched(
    adapter_run: Path, adapted_model: Path
) -> None:
    sources, targets = ["She hears songs 21 times."], ["그녀는 노래를 21번 듣는다."]
    base: Any = mh.load(adapted_model, device="cpu")
    before = {name: tensor.clone() for name, tensor in base.engine.model.named_parameters()}
    base_score = base.score(sources, targets)[0].log_probability
    adapted: Any = use_adapter(base, "rivers")
    merged = mh.load(adapter_run / "model", device="cpu")
    expected = merged.score(sources, targets)[0].log_probability
    assert adapted.score(sources, targets)[0].log_probability == pytest.approx(expected, rel=1e-3)
    assert abs(expected - base_score) > 0.05
    assert mh.load(adapted_model, device="cpu", adapter="rivers").adapter == "rivers"
    for name, tensor in base.engine.model.named_parameters():
        assert torch.equal(tensor, before[name])
    assert base.score(sources, targets)[0].log_probability == base_score
    own = dict(adapted.engine.model.named_parameters())
    assert own["source_embedding.weight"] is base.engine.model.source_embedding.weight
    assert adapted.engine.model.output.weight is own["source_embedding.weight"]


def test_several_threads_merge_the_same_weights(adapted_model: Path) -> None:
    model, adapter = checkpoint.load_model(adapted_model)[0], checkpoint.read_adapter(adapted_model, "rivers")
    merged = [dict(merge_adapter(model, adapter, threads).named_parameters()) for threads in (1, 3)]
    assert are_identical(*merged)
    assert not are_identical(merged[0], dict(model.named_parameters()))


def test_an_adapter_of_other_weights_is_refused(adapted_model: Path, adapter_run: Path) -> None:
    with pytest.raises(CheckpointError, match="was trained with other weights"):
        install_adapter(adapter_run, adapter_run / "model", "rivers")
    (adapter_run / "model" / "adapters" / "rivers.safetensors").unlink()


def test_a_damaged_adapter_is_refused(adapted_model: Path) -> None:
    path = checkpoint.adapter_path(adapted_model, "rivers")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read_adapter(adapted_model, "rivers")
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="not safetensors"):
        checkpoint.read_adapter(adapted_model, "rivers")


@pytest.mark.parametrize("name", ["", "../weights", "a/b", ".hidden", "x" * 65])
def test_the_name_of_an_adapter_is_no_path(adapted_model: Path, name: str) -> None:
    with pytest.raises(RequestError, match="the name of an adapter"):
        checkpoint.read_adapter(adapted_model, name)


def test_an_unknown_adapter_is_named_with_those_there_are(adapted_model: Path) -> None:
    with pytest.raises(RequestError, match=r"has no adapter 'lakes'; it has rivers"):
        mh.load(adapted_model, adapter="lakes", device="cpu")


def test_other_engines_and_ensembles_refuse_adapters(adapted_model: Path) -> None:
    with pytest.raises(RequestError, match="--to manyheads"):
        mh.load(adapted_model, adapter="rivers", engine="ctranslate2")
    with pytest.raises(RequestError, match="not to an ensemble"):
        mh.load(adapted_model, adapted_model, adapter="rivers")


def test_a_merged_folder_translates_like_the_adapter(adapted_model: Path, tmp_path: Path) -> None:
    from manyheads.checkpoint.merging import save_merged

    save_merged(adapted_model, "rivers", tmp_path / "merged")
    pair = ["He sees rivers 22 times."], ["그는 강을 22번 본다."]
    scores = [
        translator.score(*pair)[0].log_probability
        for translator in (mh.load(tmp_path / "merged"), mh.load(adapted_model, adapter="rivers"))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_adapters_survive_a_new_calibration(adapted_model: Path) -> None:
    checkpoint.write_confidence(adapted_model, b"a calibration")
    assert checkpoint.read_adapter(adapted_model, "rivers").rank == 2


# ---- the command's defaults and report


def test_an_adaptation_does_not_inherit_steps_seconds_and_schedule(
    data: Path, new_data: Path, model: Path
) -> None:
    info = checkpoint.read_info(model)
    parent = replace(info.config.train, seconds=5.0, schedule="paper", r_drop=1.0)
    info = replace(info, config=replace(info.config, train=parent))
    config = create_config(info, Store.open(new_data), AdaptationOptions(general=data))
    assert config.train.seconds is None
    assert (config.train.schedule, config.train.r_drop, config.train.patience) == ("constant", 0.0, 4)
    assert config.train.steps >= 200
    assert config.train.learning_rate == pytest.approx(0.15 * 5e-3)
    assert (config.adaptation.replay, config.adaptation.anchor) == (0.5, 0.0)
    assert config.model == info.config.model
    alone = create_config(info, Store.open(new_data), AdaptationOptions())
    assert (alone.adaptation.replay, alone.adaptation.anchor) == (0.0, 0.01)
    assert alone.adaptation.general == str(data)  # measured, since the parent's data is there
    changed = create_config(info, Store.open(new_data), AdaptationOptions(), ["train.steps=7"])
    assert changed.train.steps == 7


def test_data_of_other_languages_or_without_a_validation_set_is_refused(new_data: Path, model: Path) -> None:
    info = checkpoint.read_info(model)
    other = replace(info, languages={"source": "ko", "target": "en"})
    with pytest.raises(DataError, match="translates ko-en"):
        create_config(other, Store.open(new_data), AdaptationOptions())
    unknown = replace(info, languages={"source": "und", "target": info.languages["target"]})
    create_config(unknown, Store.open(new_data), AdaptationOptions())  # as of an import that names none
    store = Store.open(new_data)
    del store.manifest["splits"]["valid"]
    with pytest.raises(DataError, match="has no validation set"):
        create_config(info, store, AdaptationOptions())


def test_the_default_rank_keeps_an_adapter_below_a_twentieth_of_the_model(model: Path) -> None:
    info = checkpoint.read_info(model)
    base = replace(info, config=replace(info.config, model=mh.presets.BASE))
    assert choose_rank(base) == 32
    rank = choose_rank(replace(info, config=replace(info.config, model=mh.presets.TINY)))
    assert 1 < rank < 32


def test_forgetting_starts_where_the_general_loss_stays_above_its_first_value() -> None:
    def curve(*losses: float) -> list[dict[str, float | None]]:
        return [{"step": 10 * index, "general_loss": loss} for index, loss in enumerate(losses)]

    assert find_forgetting(curve(2.0, 1.9, 2.005)) is None
    assert find_forgetting(curve(2.0, 2.1, 1.9, 2.1, 2.2)) == 30
    assert find_forgetting([{"step": 0, "loss": 1.0}]) is None


def test_adapt_writes_a_report_and_installs_the_adapter(
    data: Path, new_data: Path, adapted_model: Path, tmp_path: Path
) -> None:
    options = AdaptationOptions(general=data, adapter="counts", rank=2)
    changes = ["train.steps=6", "train.validate_every=3", "train.calibrate=false", "train.bleu_sentences=3"]
    run = tmp_path / "run"
    report = adapt(adapted_model, new_data, run, options, changes=changes, device="cpu", max_sentences=3)
    assert report is not None
    assert report.general is not None
    assert [point["step"] for point in report.curve] == [0, 3, 6]
    assert report.new.num_sentences == 3
    assert all(math.isfinite(score.value) for score in (*report.new.before, *report.general.after))
    assert checkpoint.list_adapters(adapted_model) == ["counts", "rivers"]
    text = (run / "adaptation.md").read_text(encoding="utf-8")
    assert "| new: test of" in text
    assert "| general: test of" in text
    again = adapt(adapted_model, new_data, run, options, changes=changes, device="cpu", max_sentences=3)
    assert again is not None
    assert again.curve == report.curve


def test_an_adapter_that_was_used_stays_merged_until_its_file_changes(
    adapter_run: Path, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    for name in ("first", "second"):
        install_adapter(adapter_run, folder, name)
    translator = mh.load(folder, device="cpu")
    first = use_adapter(translator, "first")
    second = use_adapter(first, "second")
    weights = [own.engine.model.state_dict() for own in (first, second)]  # type: ignore[attr-defined]
    assert are_identical(*weights), "the second is merged with the model, not with the first"
    assert use_adapter(second, "first") is first
    path = checkpoint.adapter_path(folder, "first")
    os.utime(path, ns=(1, 1))
    assert use_adapter(translator, "first") is not first
    path.unlink()
    with pytest.raises(RequestError, match="has no adapter 'first'"):
        use_adapter(translator, "first")
