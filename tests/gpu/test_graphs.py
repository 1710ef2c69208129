"""Captured graphs do what the plain steps do: updates of training, and steps of search."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.cuda.graphs import capture
from manyheads.data.batches import Batch
from manyheads.inference import cuda_graph_search as slots_module
from manyheads.inference import prefill as reading_module
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, supports
from manyheads.inference.torch_engine import TorchEngine, to_bfloat16
from manyheads.search.beam import DecodingConstraints
from manyheads.train.captured_step import CapturedStep
from manyheads.train.distributed import DistributedContext
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from support.strategies import randomize_weights

pytestmark = pytest.mark.gpu

TINY = mh.TransformerConfig(vocab_size=500, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)


def batch(chance: np.random.Generator, sentences: int, longest: int = 60) -> Batch:
    def text(lengths: list[int], first: int | None, last: int | None) -> mh.Packed:
        ids = [chance.integers(3, 500, length).tolist() for length in lengths]
        return mh.Packed.of([[*([first] if first else []), *one, *([last] if last else [])] for one in ids])

    lengths = [chance.integers(0, longest, sentences).tolist() for _ in range(2)]
    labels = text(lengths[1], None, 2)
    inputs = mh.Packed(labels.tokens.roll(1), labels.offsets, labels.max_length)
    return Batch(text(lengths[0], None, 2), inputs, labels, np.zeros(0, np.int64), 0, 0)


class Learner:
    """A model, and its updates as graphs."""

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
    """The same updates without graphs and without filling up."""
    torch.manual_seed(3)
    train = mh.TrainConfig()
    learner = mh.Transformer(model).cuda().train()
    objective, optimizer = Objective(learner, train), Optimizer(learner, train)
    found = []
    for one in batches:
        moved = one.to("cuda")
        with torch.autocast("cuda", precision, enabled=precision is not None):
            total, _ = objective(moved.source, moved.inputs, moved.labels.tokens)
        optimizer.zero_grad()
        (total / len(moved.labels.tokens)).backward()
        optimizer.set_learning_rate(1e-3)
        optimizer.step()
        found.append(total.item())
    return found


def test_captured_updates_are_the_plain_ones() -> None:
    chance = np.random.default_rng(1)
    batches = [batch(chance, 20) for _ in range(4)] * 8
    learner = Learner()
    found = [learner.update([one])[1] for one in batches]
    assert len(learner.captured.gradient_graphs.graphs) >= 1
    assert found == pytest.approx(plain_losses(batches, torch.bfloat16), rel=3e-3)
    assert found == pytest.approx(plain_losses(batches, None), rel=1e-2)
    assert found[-1] < 0.95 * found[3]  # the same batch, some updates later


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_so_are_those_of_other_models(norm: str) -> None:
    other = replace(TINY, norm=norm, window=7, positions="learned", activation="gelu", tie_embeddings="none")
    chance = np.random.default_rng(2)
    batches = [batch(chance, 20)] * 6
    learner = Learner(other)
    found = [learner.update([one])[1] for one in batches]
    assert found == pytest.approx(plain_losses(batches, None, other), rel=1e-2)


def test_so_are_those_that_read_a_batch_twice() -> None:
    """Without dropout both readings are one, and all that agreement asks for is there."""
    chance = np.random.default_rng(5)
    batches = [batch(chance, 20)] * 6
    learner = Learner(r_drop=2.0)
    found = [learner.update([one])[1] for one in batches]
    assert found == pytest.approx(plain_losses(batches, None), rel=1e-2)


def test_readings_that_disagree_cost_more() -> None:
    chance = np.random.default_rng(6)
    one = batch(chance, 20)
    dropped = replace(TINY, dropout=0.3)
    for rounds in range(3):  # as it is, then captured
        low, high = (
            Learner(dropped, r_drop=weight).update([one] * (rounds + 1))[1] for weight in (1e-9, 5.0)
        )
        assert high > 1.01 * low


def test_an_older_graph_among_the_garbage_does_not_spoil_a_recording() -> None:
    row = torch.zeros(8, device="cuda")
    graph, _ = capture(lambda: row.add_(1))
    held = [[graph]]
    held[0].append(held[0])  # type: ignore[arg-type]  # which therefore only the collector ends
    del graph

    def work() -> Tensor:
        held.clear()
        lists: list[list[int]] = [[] for _ in range(100_000)]  # for which the collector would come by
        return row.add_(len(lists))

    graph, _ = capture(work)
    graph.replay()
    assert row.tolist() == [100_000] * 8


def test_the_size_that_a_batch_is_filled_up_to_changes_nothing() -> None:
    chance = np.random.default_rng(3)
    one = batch(chance, 20)
    for rounds in range(3):  # as it is, then captured
        norms = [Learner(full=full).update([one] * (rounds + 1))[0] for full in (700, 5000)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_parts_sum_up_to_the_whole() -> None:
    chance = np.random.default_rng(4)
    whole, parted = Learner(), Learner(full=200)
    for _ in range(4):
        one = batch(chance, 24)
        parts = list(one.split_micro_batches(200))
        assert len(parts) > 2
        a, b = whole.update([one]), parted.update(parts)
        assert a == pytest.approx(b, rel=2e-2)


def test_dropout_follows_the_seed_in_a_graph_too() -> None:
    chance = np.random.default_rng(5)
    one, model = batch(chance, 20), replace(TINY, dropout=0.3)
    losses = []
    for seeds in ((1, 2, 3, 3), (1, 2, 3, 4)):
        learner = Learner(model)
        losses.append([learner.update([one], seed)[1] for seed in seeds])
    assert losses[0][:3] == losses[1][:3]
    assert losses[0][3] != losses[1][3]


def test_an_update_that_is_not_finite_changes_nothing_and_the_next_one_does() -> None:
    chance = np.random.default_rng(6)
    one, learner = batch(chance, 20), Learner()
    for _ in range(3):
        learner.update([one])
    before = weights(learner)
    learner.captured.zero_grad()
    learner.captured.accumulate(one, float("nan"), 0)
    norm, _, _ = learner.captured.apply_update(1e-3).read()
    assert norm != norm
    assert all(torch.equal(a, b) for a, b in zip(before, weights(learner), strict=True))
    learner.update([one])
    after = weights(learner)
    assert all(one.isfinite().all() for one in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def weights(learner: Learner) -> list[Tensor]:
    return [one.detach().clone() for one in learner.model.parameters()]


@pytest.mark.parametrize("how", [mh.DecodingConfig(beam=1), mh.DecodingConfig(beam=4, nbest=3, alpha=0.6)])
@pytest.mark.parametrize("window", [None, 9])
def test_searching_in_slots_is_searching(
    how: mh.DecodingConfig, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "FEWEST_ROWS", 4)
    torch.manual_seed(7)
    model = mh.Transformer(replace(TINY, window=window)).eval()
    randomize_weights(model)
    chance = np.random.default_rng(7)
    sources = [[*chance.integers(3, 500, length).tolist(), 2] for length in chance.integers(0, 40, 150)]
    wishes = [
        DecodingConstraints(len(source) + 20, min_length=int(chance.integers(0, 6))) for source in sources
    ]
    assert supports(model, wishes, how)
    general = TorchEngine(model, "cpu")._search(sources, wishes, how)
    size = replace(SearchSize.for_requests(sources, wishes, how, 2048), slots=32)
    slots = CudaGraphSearch(model.cuda(), size, torch.float32, torch.device("cuda"))
    with torch.inference_mode():
        found = slots.run(sources, wishes)
    assert len(slots.steps) > 1  # the last few in fewer places
    assert all(steps.graph is not None for steps in slots.steps.values())
    same = 0
    for one, other in zip(general, found, strict=True):
        same += [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in other]
        assert [x.score for x in one] == pytest.approx([x.score for x in other], abs=1e-3)
    assert same >= 0.98 * len(sources)  # two within rounding may change places
    lengths = [len(results[0].tokens) for results in found]
    assert len(set(lengths)) > 5


def test_a_graph_reads_sources_as_they_are_read_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "READ_TOKENS", 256)
    monkeypatch.setattr(reading_module, "CAPTURE_AFTER", 1)
    torch.manual_seed(8)
    exact = mh.Transformer(TINY).eval()
    randomize_weights(exact)
    model = to_bfloat16(exact).cuda()
    chance = np.random.default_rng(8)
    sources = [[*chance.integers(3, 500, length).tolist(), 2] for length in chance.integers(0, 40, 60)]
    sources += [[5] * 300 + [2], [6, 2]]  # one that is longer than what is read at once
    size = SearchSize.for_requests(
        sources, [DecodingConstraints(9)] * len(sources), mh.DecodingConfig(beam=1), 64
    )
    slots = CudaGraphSearch(model, size, torch.bfloat16, torch.device("cuda"))
    total, read = sum(map(len, sources)), []
    with torch.inference_mode():
        for fills in (False, True):
            slots.prefill.pads_batches = fills
            firsts = slots._encode(sources)
            assert firsts == np.cumsum([0, *map(len, sources)])[:-1].tolist()
            state = slots.state
            read.append(torch.stack((state.source_keys, state.source_values))[:, :, :total].float())
            state.source_keys.zero_()
            state.source_values.zero_()
    assert slots.prefill.graph is not None
    as_it_is, in_a_graph = read
    assert as_it_is.abs().mean() > 0.1
    apart = (in_a_graph - as_it_is).abs()
    assert apart.max() < 0.25  # of numbers around 1: what rounding makes of another order of sums
    assert apart.mean() < 0.01


def test_captured_searches_follow_weights_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "READ_TOKENS", 64)
    monkeypatch.setattr(reading_module, "CAPTURE_AFTER", 1)
    torch.manual_seed(9)
    model = mh.Transformer(TINY)
    randomize_weights(model)
    chance = np.random.default_rng(9)
    sources = [[*chance.integers(3, 500, length).tolist(), 2] for length in chance.integers(5, 30, 40)]
    wishes, how = [DecodingConstraints(12, min_length=12)] * len(sources), mh.DecodingConfig(beam=2)
    engine = TorchEngine(model, "cuda", "bfloat16")
    before = [one[0].tokens for one in engine.search(sources, wishes, how)]
    randomize_weights(engine.model)
    engine.refresh_weights()
    after = engine.search(sources, wishes, how, scores="tokens")
    assert all(slots.prefill.graph is not None for slots in engine.graph_searches.values())
    fresh = TorchEngine(engine.model, "cuda", "bfloat16").search(sources, wishes, how)
    pairs = [(a[0], b[0]) for a, b in zip(after, fresh, strict=True)]
    same = [(a, b) for a, b in pairs if a.tokens == b.tokens]
    assert len(same) >= 0.9 * len(sources)  # two within rounding may change places
    assert sum(a[0].tokens == b for a, b in zip(after, before, strict=True)) < 0.1 * len(sources)
    for with_scores, without in same:
        assert (len(with_scores.token_scores), without.token_scores) == (13, [])
        assert with_scores.log_probability == pytest.approx(without.log_probability, rel=1e-2)
