"""What the benchmarks count and compare; and that each of them runs."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
import manyheads as mh
import quality
import report
from manyheads import playground
from manyheads.data.prepare import prepare
from manyheads.demo import make_recipe, write_corpus
from manyheads.errors import RequestError
from manyheads.inference.engine import decode_all
from manyheads.search.options import DecodingConstraints
from workload import draw_pairs, make_batch

BENCH = Path(__file__).parents[2] / "bench"
KERNELS = {
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT": "matrix products",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "matrix products",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128>(Params)": "matrix products",
    "attend_forward": "attention",
    "attend_backward_keys": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>": "attention",
    "residual_norm_forward": "norm, dropout, residual",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>": "norm, dropout, residual",
    "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_5": "norm, dropout, residual",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float>": "norm, dropout, residual",
    "cross_entropy_backward": "loss",
    "void at::native::cunn_SoftMaxForward<4, float, float>": "loss",
    "embed_backward": "embedding",
    "void cub::DeviceRadixSortOnesweepKernel<cub::Policy900>": "embedding",
    "void at::native::(anonymous namespace)::embedding_backward_feature_kernel": "embedding",
    "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimizer",
    "relu_forward": "activation",
    "Memcpy DtoD (Device -> Device)": "copies",
    "void at::native::elementwise_kernel<direct_copy_kernel_cuda>": "copies",
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>": "elementwise and sums",
    "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>": "search",
    "what nobody knows": "other",
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_goes_to_its_group(name: str) -> None:
    assert kernels.group_of(name) == KERNELS[name]


def test_a_profile_sums_what_the_device_did_and_what_lay_between() -> None:
    """Two streams that overlap, a gap of 3 ms, and a named range that is no work of its own."""
    trace = [
        {"cat": "kernel", "name": "nvjet_a", "ts": 0, "dur": 5000},
        {"cat": "kernel", "name": "attend_forward", "ts": 1000, "dur": 2000},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 8000, "dur": 1000},
        {"cat": "kernel", "name": "nvjet_a", "ts": 8500, "dur": 2000},
        {"cat": "gpu_user_annotation", "name": "a range", "ts": 0, "dur": 9000},
        {"cat": "kernel", "name": "a mark without a duration", "ts": 20_000},
    ]
    events = kernels.events_of(trace)
    found = kernels.summed(events, 11.0, kernels.idle_between(events))
    assert (found.busy_ms, found.idle_ms) == pytest.approx((10.0, 3.0))
    groups = [(one.name, one.milliseconds, one.share, one.calls) for one in found.groups]
    assert groups == [
        ("matrix products", pytest.approx(7), pytest.approx(0.7), 2),
        ("attention", pytest.approx(2), pytest.approx(0.2), 1),
        ("copies", pytest.approx(1), pytest.approx(0.1), 1),
    ]
    assert [one.name for one in found.kernels] == ["nvjet_a", "attend_forward", "Memcpy HtoD"]


def test_systems_are_chosen_by_a_part_of_their_name() -> None:
    names = ["manyheads", "Marian", "Marian, compiled"]
    assert report.only(names, None) == names
    assert report.only(names, ["maria"]) == names[1:]
    assert report.only(names, ["marian"]) == [names[1]]  # a whole name is that one
    assert report.only(names, ["compiled", "many"]) == [names[0], names[2]]
    with pytest.raises(RequestError, match="fairseq"):
        report.only(names, ["fairseq"])


def test_the_spread_is_a_share_of_the_mean() -> None:
    assert report.spread([98.0, 102.0]) == pytest.approx(0.04)
    assert report.spread([98.0]) is None


def test_a_peer_that_fails_costs_its_own_row_alone_and_ours_may_not_fail() -> None:
    import train_step

    def fall() -> None:
        raise MemoryError("no room")

    rows = [train_step.Result(name, "sorted", 1, 10, 10, [[2.0], [2.0]]) for name in ("manyheads", "peer")]
    train_step.shielded(rows[1:], fall)
    assert train_step.as_json(rows[1], rows, 1.0)["fault"] == "MemoryError: no room"
    assert train_step.told(rows[1], rows, 1.0)[-1] == "MemoryError: no room"
    assert rows[0].speed == 5.0
    with pytest.raises(MemoryError):
        train_step.shielded(rows[:1], fall)


# ---- the peers


CONFIG = replace(mh.presets.TINY, vocab_size=40, layers=1, d_model=16, d_ff=32, heads=2, dropout=0.0)


def peer(name: str) -> Any:
    import peers

    torch.manual_seed(0)
    return getattr(peers, name)(CONFIG, mh.TrainConfig())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["TorchTransformer", "Marian"])
def test_padding_changes_nothing_of_a_peers_loss_and_gradient(name: str) -> None:
    from peers import padded

    batch, model = make_batch(draw_pairs(4, vocabulary=40, seed=0)), peer(name)
    found = []
    for multiple in (1, 8):
        sides = [padded(side, model.pad, multiple) for side in (batch.sources, batch.inputs, batch.labels)]
        assert sides[0].shape[1] % multiple == 0
        model.zero_grad()
        loss = model(*sides)
        loss.backward()
        gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
        found.append((loss.detach(), torch.cat(gradients)))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_marian_is_asked_what_our_engines_are_asked() -> None:
    """Outputs of the lengths forced, in the order of the sources; scores are those of a sentence alone."""
    from peers import MarianEngine

    engine = MarianEngine(peer("Marian").marian, 0, "cpu", batch_tokens=150)
    pairs = draw_pairs(6, vocabulary=40, seed=1)
    sources = [[*pair.source, 2] for pair in pairs]
    wishes = [DecodingConstraints(length, length) for length in (3, 1, 7, 2, 5, 4)]
    for beam in (1, 3):
        found = decode_all(engine, sources, wishes, mh.DecodingConfig(beam=beam))
        assert [len(one[0].tokens) for one in found] == [wish.max_length for wish in wishes]
    together = engine.score(sources, [pair.target for pair in pairs])
    for source, pair, scores in zip(sources, pairs, together, strict=True):
        assert len(scores) == len(pair.target) + 1
        assert scores == pytest.approx(engine.score([source], [pair.target])[0], abs=1e-5)


# ---- the scripts


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / f"{script}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("script", ["train_step", "decode", "quality"])
def test_a_benchmark_says_what_it_takes(script: str) -> None:
    assert "--device {cpu,cuda}" in run(script, "--help").stdout


WRONG = {
    "multi30k --data . --seconds 5 --json nowhere/rows.json": (2, "there is no folder nowhere"),
    "multi30k --data . --seconds 5 --json .": (2, "is a folder"),
    "multi30k --data . --seconds 5 --only nobody": (2, "none has that in its name among manyheads; Hugging"),
    "multi30k --data . --seconds 5 --only compiled --out run": (2, "our run is kept there"),
    "multi30k --data . --seconds 5 --peer-set model.layers=1": (2, "no peer is asked for"),
    "multi30k --data . --seconds 5 --peer --peer-set model.layer=1": (2, "unknown key model.layer"),
    "multi30k --data . --seconds 5 --set train.seconds=2": (2, "said by --seconds"),
    "multi30 --data . --seconds 5": (2, "no recipe of runs/ (base, big,"),
    "multi30k --data nowhere --seconds 5": (3, "not a data folder"),
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_told_in_one_line_before_any_work(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["quality.py", *line.split(), "--device", "cpu"])
    with pytest.raises(SystemExit) as ended:
        report.run(quality.main)
    code, words = WRONG[line]
    assert ended.value.code == code
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("quality.py: ")
    assert words in told


def test_a_benchmark_that_is_stopped_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> str:
        return "stopped"

    monkeypatch.setattr(quality, "train", stop)
    monkeypatch.setattr(sys, "argv", ["decode.py"])
    with pytest.raises(SystemExit) as ended:
        report.run(lambda: quality.train_ours(mh.Config(), Path(), "cpu") and None)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "decode.py: stopped\n"


TINY = ("--device", "cpu", "--preset", "tiny", "--vocabulary", "100")


@pytest.mark.heavy
def test_a_training_step_is_measured_beside_its_peers(tmp_path: Path) -> None:
    result = tmp_path / "rows.json"
    few = ("--batch-tokens", "60", "--batches", "1", "--json", str(result))
    run("train_step", *TINY, *few)
    told = json.loads(result.read_text())
    rows = told["rows"]
    names = [
        "manyheads",
        "torch.nn.Transformer",
        "torch.nn.Transformer, its own dropout",
        "Hugging Face Marian",
    ]
    assert [(row["system"], row["order"]) for row in rows] == [(name, "sorted") for name in names]
    for row in rows:
        assert not row["fault"]
        assert len(row["seconds"]) == 2
        assert row["peak_gib"] > 0
        assert row["share_of_ceiling"] == pytest.approx(row["flops_per_second"] / told["ceiling"])
        assert row["tokens_per_second"] * row["ms_per_step"] / 1000 == pytest.approx(row["tokens"])


@pytest.mark.heavy
def test_a_step_is_profiled(tmp_path: Path) -> None:
    result = tmp_path / "profile.json"
    run("train_step", *TINY, "--batch-tokens", "60", "--batches", "1", "--profile", "--json", str(result))
    profile = json.loads(result.read_text())["profile"]
    groups = {part["name"]: part["share"] for part in profile["groups"]}
    assert {"matrix products", "attention", "optimizer", "loss"} <= groups.keys()
    assert sum(groups.values()) == pytest.approx(1)


@pytest.mark.heavy
def test_decoding_is_measured_beside_its_peers(tmp_path: Path) -> None:
    result = tmp_path / "rows.json"
    run("decode", *TINY, "--sentences", "4", "--lengths", "2", "--repetitions", "1", "--json", str(result))
    rows = json.loads(result.read_text())["rows"]
    assert {row["beam"] for row in rows} == {1, 4}
    assert sum("Hugging Face" in row["system"] for row in rows) == 4
    assert all(row["tokens_per_second"] > 0 and row["ours_is_faster_by"] > 0 for row in rows)


@pytest.mark.heavy
def test_a_recipe_and_its_peers_learn_and_are_scored(tmp_path: Path) -> None:
    corpus = playground.generate_corpus("en-ko", train=400, valid=20, test=20, seed=1, words=6)
    write_corpus(tmp_path, "en-ko", corpus)
    prepare(make_recipe(tmp_path, "en-ko", 600), tmp_path / "data")
    small = [
        "model.layers=1",
        "model.d_model=32",
        "model.d_ff=64",
        "data.batch_tokens=300",
        "train.warmup=20",
    ]
    changes = [part for one in small for part in ("--set", one)]
    where = ("--data", str(tmp_path / "data"), "--seconds", "6", "--json", str(tmp_path / "rows.json"))
    all_of_them = ("--only", "manyheads", "--only", "face")
    run("quality", "koen", *where, *all_of_them, "--device", "cpu", "--out", str(tmp_path / "run"), *changes)
    told = json.loads((tmp_path / "rows.json").read_text())
    peers = ["Hugging Face Marian", "Hugging Face Marian, compiled"]
    assert [row["system"] for row in told["rows"]] == ["manyheads", *peers]
    for row in told["rows"]:
        assert row["seconds"] >= 6
        assert row["steps"] > 20
        assert row["valid_loss"] < 6  # the logarithm of the vocabulary's size is 6.4
        assert [score["name"] for score in row["scores"]][:2] == ["BLEU", "chrF"]
        assert "tok:char" in row["scores"][0]["signature"]
    assert len(told["samples"]) == 5
    assert (tmp_path / "run" / "model" / "weights.safetensors").exists()
