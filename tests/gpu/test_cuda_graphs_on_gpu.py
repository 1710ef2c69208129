"""CUDA graphs against eager execution: steps of training, and steps of search."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.cuda.graphs import capture
from manyheads.data.batches import Batch
from manyheads.inference import cuda_graph_search, prefill
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, is_plain, supports_search
from manyheads.inference.engine import decode_all
from manyheads.inference.prefill import PrefillQueue
from manyheads.inference.search_model import to_bfloat16
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.options import DecodingConstraints
from manyheads.search.scheduler import ListQueue
from manyheads.train.captured_step import CapturedStep
from manyheads.train.distributed import DistributedContext
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from support.graph_search import make_requests, run_eager_search, run_graph_search
from support.strategies import randomize_weights

pytestmark = pytest.mark.gpu

TINY = mh.TransformerConfig(vocab_size=500, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)


def batch(rng: np.random.Generator, sentences: int, max_length: int = 60) -> Batch:
    def text(lengths: list[int], first: int | None, last: int | None) -> mh.Packed:
        ids = [rng.integers(3, 500, length).tolist() for length in lengths]
        return mh.Packed.of(
            [[*([first] if first else []), *tokens, *([last] if last else [])] for tokens in ids]
        )

    lengths = [rng.integers(0, max_length, sentences).tolist() for _ in range(2)]
    labels = text(lengths[1], None, 2)
    inputs = mh.Packed(labels.tokens.roll(1), labels.offsets, labels.max_length)
    return Batch(text(lengths[0], None, 2), inputs, labels, np.zeros(0, np.int64), 0, 0)


class Learner:
    """A model and its captured steps."""

    def __init__(self, model: mh.ModelConfig = TINY, full: int = 700, **settings: object) -> None:
        torch.manual_seed(3)
        self.train = mh.TrainConfig(**settings)  # type: ignore[arg-type]
        self.model = mh.Transformer(model).cuda().train()
        self.optimizer = Optimizer(self.model, self.train)
        world = DistributedContext(0, 1, torch.device("cuda"))
        self.captured = CapturedStep(
            Objective(self.model, self.train),
            self.optimizer,
            self.train,
            world,
            full_tokens=full,
            max_length=256,
        )

    def update(self, parts: list[Batch], seed: int = 0) -> tuple[float, float, float]:
        self.captured.zero_grad()
        tokens = sum(len(part.labels.tokens) for part in parts)
        for part in parts:
            self.captured.accumulate(part, 1 / tokens, seed)
        return self.captured.apply_update(1e-3).read()


def plain_losses(
    batches: list[Batch], precision: torch.dtype | None, model: mh.ModelConfig = TINY
) -> list[float]:
    """Return the losses of the same steps without graphs and without fillers."""
    torch.manual_seed(3)
    train = mh.TrainConfig()
    learner = mh.Transformer(model).cuda().train()
    objective, optimizer = Objective(learner, train), Optimizer(learner, train)
    losses = []
    for item in batches:
        moved = item.to("cuda")
        with torch.autocast("cuda", precision, enabled=precision is not None):
            total, _ = objective(moved.source, moved.inputs, moved.labels.tokens)
        optimizer.zero_grad()
        (total / len(moved.labels.tokens)).backward()
        optimizer.set_learning_rate(1e-3)
        optimizer.step()
        losses.append(total.item())
    return losses


def test_captured_steps_equal_eager_steps() -> None:
    rng = np.random.default_rng(1)
    batches = [batch(rng, 20) for _ in range(4)] * 8
    learner = Learner()
    losses = [learner.update([item])[1] for item in batches]
    assert len(learner.captured.gradient_graphs.graphs) >= 1
    assert losses == pytest.approx(plain_losses(batches, torch.bfloat16), rel=3e-3)
    assert losses == pytest.approx(plain_losses(batches, None), rel=1e-2)
    assert losses[-1] < 0.95 * losses[3]  # the same batch, some steps later


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_captured_steps_of_other_models_equal_eager_steps(norm: str) -> None:
    other = replace(TINY, norm=norm, window=7, positions="learned", activation="gelu", tie_embeddings="none")
    rng = np.random.default_rng(2)
    batches = [batch(rng, 20)] * 6
    learner = Learner(other)
    losses = [learner.update([item])[1] for item in batches]
    assert losses == pytest.approx(plain_losses(batches, None, other), rel=1e-2)


def test_captured_steps_with_r_drop_equal_eager_steps_without_dropout() -> None:
    """Without dropout both passes are equal, so their divergence is zero."""
    rng = np.random.default_rng(5)
    batches = [batch(rng, 20)] * 6
    learner = Learner(r_drop=2.0)
    losses = [learner.update([item])[1] for item in batches]
    assert losses == pytest.approx(plain_losses(batches, None), rel=1e-2)


def test_r_drop_raises_the_loss_of_passes_that_disagree() -> None:
    rng = np.random.default_rng(6)
    item = batch(rng, 20)
    dropped = replace(TINY, dropout=0.3)
    for rounds in range(3):  # eager, then captured
        low, high = (
            Learner(dropped, r_drop=weight).update([item] * (rounds + 1))[1] for weight in (1e-9, 5.0)
        )
        assert high > 1.01 * low


def test_collecting_an_older_graph_does_not_invalidate_a_capture() -> None:
    row = torch.zeros(8, device="cuda")
    graph, _ = capture(lambda: row.add_(1))
    held = [[graph]]
    held[0].append(held[0])  # type: ignore[arg-type]  # so that only the garbage collector frees it
    del graph

    def add_to_row() -> Tensor:
        held.clear()
        lists: list[list[int]] = [[] for _ in range(100_000)]  # would trigger the garbage collector
        return row.add_(len(lists))

    graph, _ = capture(add_to_row)
    graph.replay()
    assert row.tolist() == [100_000] * 8


def test_the_static_shape_of_a_batch_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    item = batch(rng, 20)
    for rounds in range(3):  # eager, then captured
        norms = [Learner(full=full).update([item] * (rounds + 1))[0] for full in (700, 5000)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_micro_batches_sum_to_the_whole_batch() -> None:
    rng = np.random.default_rng(4)
    whole, parted = Learner(), Learner(full=200)
    for _ in range(4):
        item = batch(rng, 24)
        parts = list(item.split_micro_batches(200))
        assert len(parts) > 2
        a, b = whole.update([item]), parted.update(parts)
        assert a == pytest.approx(b, rel=2e-2)


def test_dropout_follows_the_seed_in_a_graph() -> None:
    rng = np.random.default_rng(5)
    item, model = batch(rng, 20), replace(TINY, dropout=0.3)
    losses = []
    for seeds in ((1, 2, 3, 3), (1, 2, 3, 4)):
        learner = Learner(model)
        losses.append([learner.update([item], seed)[1] for seed in seeds])
    assert losses[0][:3] == losses[1][:3]
    assert losses[0][3] != losses[1][3]


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    item, learner = batch(rng, 20), Learner()
    for _ in range(3):
        learner.update([item])
    before = weights(learner)
    learner.captured.zero_grad()
    learner.captured.accumulate(item, float("nan"), 0)
    norm, _, _ = learner.captured.apply_update(1e-3).read()
    assert norm != norm
    assert all(torch.equal(a, b) for a, b in zip(before, weights(learner), strict=True))
    learner.update([item])
    after = weights(learner)
    assert all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def weights(learner: Learner) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in learner.model.parameters()]


@pytest.mark.parametrize("config", [mh.DecodingConfig(beam=1), mh.DecodingConfig(beam=4, nbest=3, alpha=0.6)])
@pytest.mark.parametrize("window", [None, 9])
def test_graph_search_equals_eager_search(
    config: mh.DecodingConfig, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graph_search, "MIN_ROWS", 4)
    torch.manual_seed(7)
    model = mh.Transformer(replace(TINY, window=window)).eval()
    randomize_weights(model)
    generator = np.random.default_rng(7)
    lengths = generator.integers(0, 40, 150)
    sources = [[*generator.integers(3, 500, length).tolist(), 2] for length in lengths]
    constraints = [
        DecodingConstraints(len(source) + 20, min_length=int(generator.integers(0, 6))) for source in sources
    ]
    assert supports_search(model, config)
    assert all(map(is_plain, constraints))
    eager = run_eager_search(model, sources, constraints, config)
    size = SearchSize.for_requests(make_requests(sources, constraints), config, 2048)
    search = CudaGraphSearch(model.cuda(), replace(size, slots=32), torch.float32, torch.device("cuda"))
    results = run_graph_search(search, sources, constraints)
    assert len(search.steps) > 1  # the last few in fewer slots
    assert all(step.graph is not None for step in search.steps.values())
    same = 0
    for expected, hypotheses in zip(eager, results, strict=True):
        same += [a.tokens for a in expected] == [a.tokens for a in hypotheses]
        assert [a.score for a in expected] == pytest.approx([a.score for a in hypotheses], abs=1e-3)
    assert same >= 0.98 * len(sources)  # two within rounding may change order
    assert len({len(hypotheses[0].tokens) for hypotheses in results}) > 5


def test_a_prefill_graph_stores_what_the_encoder_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_search, "PREFILL_TOKENS", 256)
    monkeypatch.setattr(prefill, "EAGER_BATCHES", 1)
    torch.manual_seed(8)
    exact = mh.Transformer(TINY).eval()
    randomize_weights(exact)
    model = to_bfloat16(exact).cuda()
    generator = np.random.default_rng(8)
    lengths = generator.integers(0, 40, 60)
    sources = [[*generator.integers(3, 500, length).tolist(), 2] for length in lengths]
    sources += [[5] * 300 + [2], [6, 2]]  # one is longer than a batch
    requests = make_requests(sources, [DecodingConstraints(9)] * len(sources))
    size = SearchSize.for_requests(requests, mh.DecodingConfig(beam=1), 64)
    search = CudaGraphSearch(model, size, torch.bfloat16, torch.device("cuda"))
    total, stored = sum(map(len, sources)), []
    with torch.inference_mode():
        for pads_batches in (False, True):
            search.prefill.pads_batches = pads_batches
            queue = PrefillQueue(search.prefill, ListQueue(requests), size.source_capacity)
            queue.fill(len(sources))
            starts = [start for _, start in queue.take(len(sources))]
            assert starts == np.cumsum([0, *map(len, sources)])[:-1].tolist()
            cache = search.cache
            stored.append(torch.stack((cache.source_keys, cache.source_values))[:, :, :total].float())
            cache.source_keys.zero_()
            cache.source_values.zero_()
    assert search.prefill.num_graphs
    eager, captured = stored
    assert eager.abs().mean() > 0.1
    difference = (captured - eager).abs()
    assert difference.max() < 0.25  # of numbers around 1: another order of sums is rounded differently
    assert difference.mean() < 0.01


def test_captured_searches_follow_weights_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_search, "PREFILL_TOKENS", 64)
    monkeypatch.setattr(prefill, "EAGER_BATCHES", 1)
    torch.manual_seed(9)
    model = mh.Transformer(TINY)
    randomize_weights(model)
    generator = np.random.default_rng(9)
    lengths = generator.integers(5, 30, 40)
    sources = [[*generator.integers(3, 500, length).tolist(), 2] for length in lengths]
    constraints, config = [DecodingConstraints(12, min_length=12)] * len(sources), mh.DecodingConfig(beam=2)
    engine = TorchEngine(model, "cuda", "bfloat16")
    before = [hypotheses[0].tokens for hypotheses in decode_all(engine, sources, constraints, config)]
    randomize_weights(engine.model)
    engine.refresh_weights()
    after = decode_all(engine, sources, constraints, config, scores="tokens")
    assert all(search.prefill.num_graphs for search in engine.graph_searches.values())
    fresh = decode_all(TorchEngine(engine.model, "cuda", "bfloat16"), sources, constraints, config)
    pairs = [(a[0], b[0]) for a, b in zip(after, fresh, strict=True)]
    same = [(a, b) for a, b in pairs if a.tokens == b.tokens]
    assert len(same) >= 0.9 * len(sources)  # two within rounding may change order
    assert sum(a[0].tokens == b for a, b in zip(after, before, strict=True)) < 0.1 * len(sources)
    for with_scores, without in same:
        assert (len(with_scores.token_scores), without.token_scores) == (13, [])
        assert with_scores.log_probability == pytest.approx(without.log_probability, rel=1e-2)


def test_a_stream_on_a_gpu_gives_what_a_list_gives() -> None:
    """More sentences than the window holds; requests that need the eager search are among them."""
    torch.manual_seed(10)
    model = mh.Transformer(TINY).double()
    randomize_weights(model)
    generator = np.random.default_rng(10)
    lengths = generator.integers(1, 40, 300)
    sources = [[*generator.integers(3, 500, length).tolist(), 2] for length in lengths]
    constraints = [
        DecodingConstraints(len(source) + 5, prefix=(7,) if number % 50 == 3 else ())
        for number, source in enumerate(sources)
    ]
    engine, config = TorchEngine(model, "cuda", "float32"), mh.DecodingConfig(beam=3)
    expected = decode_all(engine, sources, constraints, config)
    results = dict(engine.decode(iter(make_requests(sources, constraints)), config, window=32))
    assert sorted(results) == list(range(len(sources)))
    for index, hypotheses in results.items():
        assert hypotheses[0].tokens == expected[index][0].tokens
