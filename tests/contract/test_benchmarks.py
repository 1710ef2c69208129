"""The benchmarks: what they count and compare, and that each of them runs."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fp8_products
import kernels
import manyheads as mh
import quality
import report
from manyheads import playground
from manyheads.demo import prepare_corpus
from manyheads.errors import RequestError
from manyheads.inference.engine import decode_all
from manyheads.search.options import DecodingConstraints
from workload import draw_pairs, make_batch

BENCH = Path(__file__).parents[2] / "bench"
KERNELS = {
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NNT": "matrix products",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "matrix products",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128>(Params)": "matrix products",
    "attention_forward": "attention",
    "attention_backward_keys": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>": "attention",
    "add_norm_forward": "norm, dropout, residual",
    "matmul_relu_backward_kernel": "matrix products",
    "linear_backward": "bias gradients",
    "sum_stripes_kernel": "bias gradients",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>": "norm, dropout, residual",
    "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_5": "norm, dropout, residual",
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float>": "norm, dropout, residual",
    "cross_entropy_row": "loss",
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
def test_kernels_are_grouped_by_name(name: str) -> None:
    assert kernels.classify_kernel(name) == KERNELS[name]


def test_a_profile_sums_kernels_and_idle_time() -> None:
    """Two overlapping streams, a gap of 3 ms, and a named range that does not count."""
    trace = [
        {"cat": "kernel", "name": "nvjet_a", "ts": 0, "dur": 5000},
        {"cat": "kernel", "name": "attention_forward", "ts": 1000, "dur": 2000},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 8000, "dur": 1000},
        {"cat": "kernel", "name": "nvjet_a", "ts": 8500, "dur": 2000},
        {"cat": "gpu_user_annotation", "name": "a range", "ts": 0, "dur": 9000},
        {"cat": "kernel", "name": "a mark without a duration", "ts": 20_000},
    ]
    events = kernels.parse_trace(trace)
    profile = kernels.summarize(events, 11.0, kernels.measure_idle(events))
    assert (profile.busy_ms, profile.idle_ms) == pytest.approx((10.0, 3.0))
    groups = [(group.name, group.milliseconds, group.share, group.calls) for group in profile.groups]
    assert groups == [
        ("matrix products", pytest.approx(7), pytest.approx(0.7), 2),
        ("attention", pytest.approx(2), pytest.approx(0.2), 1),
        ("copies", pytest.approx(1), pytest.approx(0.1), 1),
    ]
    assert [group.name for group in profile.kernels] == ["nvjet_a", "attention_forward", "Memcpy HtoD"]


def test_systems_are_selected_by_a_part_of_their_name() -> None:
    names = ["manyheads", "Marian", "Marian, compiled"]
    assert report.select_systems(names, None) == names
    assert report.select_systems(names, ["maria"]) == names[1:]
    assert report.select_systems(names, ["marian"]) == [names[1]]  # an exact name matches only itself
    assert report.select_systems(names, ["compiled", "many"]) == [names[0], names[2]]
    with pytest.raises(RequestError, match="fairseq"):
        report.select_systems(names, ["fairseq"])


def test_the_spread_is_relative_to_the_mean() -> None:
    assert report.compute_spread([98.0, 102.0]) == pytest.approx(0.04)
    assert report.compute_spread([98.0]) is None


def test_an_error_of_a_peer_is_recorded_in_its_row_and_ours_must_not_fail() -> None:
    import train_results
    import train_step

    def fail() -> None:
        raise MemoryError("out of memory")

    rows = [train_results.Result(name, "sorted", 1, 10, 10, [[2.0], [2.0]]) for name in ("manyheads", "peer")]
    train_step.record_errors(rows[1:], fail)
    assert train_results.to_json(rows[1], rows, 1.0)["error"] == "MemoryError: out of memory"
    assert train_results.format_row(rows[1], rows, 1.0)[-1] == "MemoryError: out of memory"
    assert rows[0].speed == 5.0
    with pytest.raises(MemoryError):
        train_step.record_errors(rows[:1], fail)


def make_rows(speeds: dict[str, int]) -> list[Any]:
    import train_results

    return [
        train_results.Result(name, "sorted", 1, 10 * speed, 10, [[10.0], [10.0]], peak_gib=1.0)
        for name, speed in speeds.items()
    ]


def test_the_strongest_of_each_family_of_peers_is_named() -> None:
    import train_results

    rows = make_rows({"manyheads": 60, "JAX, packed rows": 40, "Marian": 10, "Marian, compiled": 30})
    rows.append(train_results.Result("PyTorch", "sorted", 1, 10, 10, error="MemoryError: out of memory"))
    assert train_results.format_strongest(rows) == [
        "strongest JAX: JAX, packed rows, sorted, 40 tokens/s; ours is 1.50 x as fast",
        "strongest Marian: Marian, compiled, sorted, 30 tokens/s; ours is 2.00 x as fast",
    ]


def test_results_are_written_before_all_systems_are_measured(tmp_path: Path) -> None:
    import train_results

    environment = report.Environment("a machine", 1.0, "float32", {})
    rows = make_rows({"manyheads": 60, "JAX, packed rows": 40, "Marian": 10})
    rows[2].seconds = []
    train_results.write_results(tmp_path / "rows.json", "title", environment, rows)
    data = json.loads((tmp_path / "rows.json").read_text())
    assert [row["system"] for row in data["rows"]] == ["manyheads", "JAX, packed rows"]
    assert data["strongest_peer"] == "JAX, packed rows"
    assert data["speedup_over_strongest"] == 1.5


def test_runs_are_compared_row_by_row() -> None:
    import train_results

    runs = []
    for speed in (98, 102):
        rows = make_rows({"manyheads": speed, "Marian": 49})
        runs.append({"rows": [train_results.to_json(row, rows, 1.0) for row in rows]})
    assert train_results.format_series(runs) == [
        ("manyheads", "sorted", "98, 102", "4.0%", "1.00 x"),
        ("Marian", "sorted", "49, 49", "0.0%", "2.04 x"),
    ]


# ---- the peers


CONFIG = replace(mh.presets.TINY, vocab_size=40, layers=1, d_model=16, d_ff=32, heads=2, dropout=0.0)


def peer(name: str) -> Any:
    import peers

    torch.manual_seed(0)
    return getattr(peers, name)(CONFIG, mh.TrainConfig())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["TorchTransformer", "Marian"])
def test_padding_does_not_change_the_loss_and_gradient_of_a_peer(name: str) -> None:
    from peers import pad_sentences

    batch, model = make_batch(draw_pairs(4, vocab_size=40, seed=0)), peer(name)
    results = []
    for multiple in (1, 8):
        sides = [
            pad_sentences(side, model.pad, multiple) for side in (batch.sources, batch.inputs, batch.labels)
        ]
        assert sides[0].shape[1] % multiple == 0
        model.zero_grad()
        loss = model(*sides)
        loss.backward()
        gradients = [
            parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None
        ]
        results.append((loss.detach(), torch.cat(gradients)))
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-5)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_marian_decodes_forced_lengths_and_scores_like_an_engine() -> None:
    """Outputs have the forced lengths in the order of the sources; scores are those of single sentences."""
    from peers import MarianEngine

    engine = MarianEngine(peer("Marian").marian, 0, "cpu", batch_tokens=150)
    pairs = draw_pairs(6, vocab_size=40, seed=1)
    sources = [[*pair.source, 2] for pair in pairs]
    constraints = [DecodingConstraints(length, length) for length in (3, 1, 7, 2, 5, 4)]
    for beam in (1, 3):
        hypotheses = decode_all(engine, sources, constraints, mh.DecodingConfig(beam=beam))
        assert [len(by_sentence[0].tokens) for by_sentence in hypotheses] == [
            constraint.max_length for constraint in constraints
        ]
    scores = engine.score(sources, [pair.target for pair in pairs])
    for source, pair, own_scores in zip(sources, pairs, scores, strict=True):
        assert len(own_scores) == len(pair.target) + 1
        assert own_scores == pytest.approx(engine.score([source], [pair.target])[0], abs=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("beam", [1, 3])
def test_a_static_cache_decodes_what_a_growing_one_does(beam: int) -> None:
    """Without compiling. The last batch is not full."""
    from peers import MarianEngine
    from static_marian import StaticMarianEngine

    marian = peer("Marian").marian
    for parameter in marian.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    sources = [[*pair.source, 2] for pair in draw_pairs(6, vocab_size=40, seed=1)]
    constraints, config = [DecodingConstraints(5, 5)] * 6, mh.DecodingConfig(beam=beam)
    static = StaticMarianEngine(marian, 0, "cpu", 9, compiled=False)
    static.batch_tokens = 64  # 4 sentences
    expected = decode_all(MarianEngine(marian, 0, "cpu"), sources, constraints, config)
    assert decode_all(static, sources, constraints, config) == expected
    assert len({tuple(by_sentence[0].tokens) for by_sentence in expected}) > 2


# ---- fp8 products


def test_fp8_shapes_cover_every_matrix_of_the_model() -> None:
    config = mh.TransformerConfig(vocab_size=64, layers=2, d_model=32, d_ff=48, heads=4)
    counted = sum(shape.count * shape.inner * shape.columns for shape in fp8_products.list_shapes(config))
    parameters = mh.Transformer(config).named_parameters()
    matrices = {name: weight.numel() for name, weight in parameters if weight.dim() == 2}
    assert counted == sum(matrices.values())


def test_fp8_products_are_those_of_bfloat16_up_to_rounding() -> None:
    torch.manual_seed(0)
    shape = fp8_products.MatrixShape("any", 64, 32, 1)
    products = fp8_products.Products(shape, 16, "cpu", compiled=False)
    assert 0 < products.measure_error(products.run_bfloat16()) < 0.01
    assert 0.01 < products.measure_error(products.run_fp8(converts=True)) < 0.1


# ---- the scripts


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / f"{script}.py"), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.mark.parametrize(
    "script",
    [
        "train_step",
        "decode",
        "quality",
        "translate_file",
        "startup",
        "translate_memory",
        "robustness",
        "corrections",
        "fp8_products",
    ],
)
def test_a_benchmark_prints_its_help(script: str) -> None:
    assert "--device {cpu,cuda}" in run(script, "--help").stdout


WRONG = {
    "multi30k --data . --seconds 5 --json nowhere/rows.json": (2, "there is no folder nowhere"),
    "multi30k --data . --seconds 5 --json .": (2, "is a folder"),
    "multi30k --data . --seconds 5 --only nobody": (
        2,
        "no system has this in its name; known: manyheads; Hugging",
    ),
    "multi30k --data . --seconds 5 --only compiled --out run": (2, "keeps our run, which is not selected"),
    "multi30k --data . --seconds 5 --peer-set model.layers=1": (2, "no peer is selected: add --peer"),
    "multi30k --data . --seconds 5 --peer --peer-set model.layer=1": (2, "unknown key model.layer"),
    "multi30k --data . --seconds 5 --set train.seconds=2": (2, "is set by --seconds"),
    "multi30 --data . --seconds 5": (2, "not a recipe of runs/ (base, big,"),
    "multi30k --data nowhere --seconds 5": (3, "not a data folder"),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_usage_error_is_one_line_before_any_work(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["quality.py", *line.split(), "--device", "cpu"])
    with pytest.raises(SystemExit) as exited:
        report.run_main(quality.main)
    code, words = WRONG[line]
    assert exited.value.code == code
    (error_line,) = capsys.readouterr().err.splitlines()
    assert error_line.startswith("quality.py: ")
    assert words in error_line


def test_an_interrupted_benchmark_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> str:
        return "stopped"

    monkeypatch.setattr(quality, "train", stop)
    monkeypatch.setattr(sys, "argv", ["decode.py"])
    with pytest.raises(SystemExit) as exited:
        report.run_main(lambda: quality.train_ours(mh.Config(), Path(), "cpu") and None)
    assert exited.value.code == 130
    assert capsys.readouterr().err == "decode.py: stopped\n"


TINY = ("--device", "cpu", "--preset", "tiny", "--vocab-size", "100")


@pytest.mark.heavy
def test_a_training_step_and_its_peers_are_measured(tmp_path: Path) -> None:
    result = tmp_path / "rows.json"
    arguments = ("--batch-tokens", "60", "--batches", "1", "--json", str(result))
    run("train_step", *TINY, *arguments)
    data = json.loads(result.read_text())
    rows = data["rows"]
    names = [
        "manyheads",
        "torch.nn.Transformer",
        "torch.nn.Transformer, its own dropout",
        "Hugging Face Marian",
    ]
    assert [(row["system"], row["order"]) for row in rows] == [(name, "sorted") for name in names]
    for row in rows:
        assert not row["error"]
        assert len(row["seconds"]) == 2
        assert row["peak_gib"] > 0
        assert row["share_of_matmul_peak"] == pytest.approx(row["flops_per_second"] / data["matmul_peak"])
        assert row["tokens_per_second"] * row["ms_per_step"] / 1000 == pytest.approx(row["tokens"])


@pytest.mark.heavy
def test_a_training_step_is_profiled(tmp_path: Path) -> None:
    result = tmp_path / "profile.json"
    run("train_step", *TINY, "--batch-tokens", "60", "--batches", "1", "--profile", "--json", str(result))
    profile = json.loads(result.read_text())["profile"]
    groups = {part["name"]: part["share"] for part in profile["groups"]}
    assert {"matrix products", "attention", "optimizer", "loss"} <= groups.keys()
    assert sum(groups.values()) == pytest.approx(1)


@pytest.mark.heavy
def test_decoding_and_its_peers_are_measured(tmp_path: Path) -> None:
    result = tmp_path / "rows.json"
    run("decode", *TINY, "--sentences", "4", "--lengths", "2", "--repetitions", "1", "--json", str(result))
    rows = json.loads(result.read_text())["rows"]
    assert {row["beam"] for row in rows} == {1, 4}
    assert sum("Hugging Face" in row["system"] for row in rows) == 4
    assert all(row["tokens_per_second"] > 0 and row["speedup_of_ours"] > 0 for row in rows)


@pytest.mark.heavy
def test_a_recipe_and_its_peers_are_trained_and_scored(tmp_path: Path) -> None:
    corpus = playground.generate_corpus("en-ko", train=400, valid=20, test=20, seed=1, words=6)
    prepare_corpus(tmp_path, "en-ko", corpus, 600)
    small = [
        "model.layers=1",
        "model.d_model=32",
        "model.d_ff=64",
        "data.batch_tokens=300",
        "train.warmup=20",
    ]
    changes = [part for key in small for part in ("--set", key)]
    arguments = ("--data", str(tmp_path / "data"), "--seconds", "6", "--json", str(tmp_path / "rows.json"))
    selection = ("--only", "manyheads", "--only", "face")
    run(
        "quality", "koen", *arguments, *selection, "--device", "cpu", "--out", str(tmp_path / "run"), *changes
    )
    data = json.loads((tmp_path / "rows.json").read_text())
    peers = ["Hugging Face Marian", "Hugging Face Marian, compiled"]
    assert [row["system"] for row in data["rows"]] == ["manyheads", *peers]
    for row in data["rows"]:
        assert row["seconds"] >= 6
        assert row["steps"] > 20
        assert row["valid_loss"] < 6  # the logarithm of the vocabulary size is 6.4
        assert [score["name"] for score in row["scores"]][:2] == ["BLEU", "chrF"]
        assert "tok:char" in row["scores"][0]["signature"]
    assert len(data["examples"]) == 5
    assert (tmp_path / "run" / "model" / "weights.safetensors").exists()
