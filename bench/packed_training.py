"""PyTorch without padding trained on real data, for bench/quality.py: packed_transformer.py with R-Drop.

The recipe is ours: batches, dropout, subword regularization, R-Drop, schedule, label smoothing, averages. Its
weights are translated by our own search, so that a difference in BLEU is one of training.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.data.batches import Batch, Batches
from manyheads.data.store import Store
from manyheads.inference.torch_engine import TorchEngine
from manyheads.packed import Packed, round_up
from manyheads.train.schedule import learning_rate
from packed_transformer import BatchShape, PackedBatch, PackedSystem
from peer_training import (
    NUM_AVERAGED,
    NUM_CHECKPOINTS,
    SYNCHRONIZE_EVERY,
    TrainedSystem,
    compute_valid_loss,
)
from workload import WorkloadBatch

PACKED = "PyTorch without padding"
SHAPE_STEP = 1024  # tokens: batches of similar sizes share a program and a CUDA graph
SENTENCE_STEP = 512
NUM_SHAPE_BATCHES = 200  # whose largest sizes are the first shape


def map_weights(ours: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return our weights, or their gradients, by the names of the packed peer, which stacks some of them."""
    weights = {"embedding": ours["output.weight"]}
    for peer, own in list_names(layers):
        weights[peer] = torch.cat([ours[name] for name in own])
    return weights


def unmap_weights(peer: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return the peer's weights by our names."""
    weights = {"output.weight": peer["embedding"]}
    for name, own in list_names(layers):
        weights |= dict(zip(own, peer[name].chunk(len(own)), strict=True))
    return weights


def list_names(layers: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each weight of the peer, except the embedding, and ours that it holds, in their order."""
    for part in ("weight", "bias"):
        for side, sublayers in (
            ("encoder", ("self_attention", "feed_forward")),
            ("decoder", ("self_attention", "cross_attention", "feed_forward")),
        ):
            for number in range(layers):
                layer = f"{side}.{number}."
                for index, sublayer in enumerate(sublayers, 1):
                    yield f"{layer}norm_{index}.{part}", [f"{layer}{sublayer}_residual.norm.{part}"]
                attention = f"{layer}self_attention."
                yield (
                    f"{attention}qkv.{part}",
                    [f"{attention}{name}.{part}" for name in ("w_q", "w_k", "w_v")],
                )
                yield f"{attention}output.{part}", [f"{attention}w_o.{part}"]
                for name in ("w_1", "w_2"):
                    yield f"{layer}feed_forward.{name}.{part}", [f"{layer}feed_forward.{name}.{part}"]
                if side == "decoder":
                    cross = f"{layer}cross_attention."
                    yield f"{cross}query.{part}", [f"{cross}w_q.{part}"]
                    yield f"{cross}output.{part}", [f"{cross}w_o.{part}"]
        yield (
            f"keys_values.{part}",
            [
                f"decoder.{number}.cross_attention.{name}.{part}"
                for number in range(layers)
                for name in ("w_k", "w_v")
            ],
        )


def to_sentences(packed: Packed) -> list[list[int]]:
    return [part.tolist() for part in packed.tokens.split(packed.offsets.diff().tolist())]


def to_workload(batch: Batch) -> WorkloadBatch:
    return WorkloadBatch(*(to_sentences(side) for side in (batch.source, batch.inputs, batch.labels)))


def merge_shapes(first: BatchShape, second: BatchShape) -> BatchShape:
    """Return a shape that holds both, in coarse steps, so that few shapes occur."""
    return BatchShape(
        round_up(max(first.source, second.source), SHAPE_STEP),
        round_up(max(first.target, second.target), SHAPE_STEP),
        round_up(max(first.sentences, second.sentences), SENTENCE_STEP),
    )


class PackedTraining:
    """The peer and its training loop."""

    def __init__(self, config: mh.Config, device: str) -> None:
        self.config, self.device = config, device
        self.store = Store.open(config.data.folder)
        model = checkpoint.fit_to_vocabulary(config.model, self.store.subwords)
        assert isinstance(model, mh.TransformerConfig)
        assert model.norm == "post"
        assert config.train.clip_norm is None
        self.model_config = model
        torch.manual_seed(config.train.seed)
        self.system = PackedSystem("flex", model, device, config.train)
        data, seed = self.store.load_split("train"), config.train.seed
        self.batches = Batches(data, config.data, seed=seed, subwords=self.store.subwords)
        self.kept: deque[dict[str, Tensor]] = deque(maxlen=NUM_AVERAGED)

    def train(self, seconds: float) -> TrainedSystem:
        """Train for some seconds. Compiling is not counted, as for the other peers."""
        self.warm_up()
        train, tokens, step, elapsed = self.config.train, 0, 0, 0.0
        start = time.perf_counter()
        with self.batches.stream() as stream:
            for batch in stream:
                if step % SYNCHRONIZE_EVERY[self.device] == 0:
                    elapsed = self.check_time(start, seconds)
                    if elapsed >= seconds:
                        break
                    if step:  # the expected total, and a warm-up in the proportion of the recipe
                        train = self.fit_schedule(math.ceil(step * seconds / elapsed))
                step += 1
                self.system.adam.param_groups[0]["lr"].fill_(
                    learning_rate(step, train, self.model_config.d_model)
                )
                self.system.step(self.prepare(batch))
                tokens += len(batch.source.tokens) + len(batch.labels.tokens)
        chosen, wall = self.choose_weights(), time.perf_counter() - start
        return TrainedSystem(PACKED, self.make_translator(), elapsed, wall, step, tokens, chosen)

    def fit_schedule(self, steps: int) -> mh.TrainConfig:
        """Return the schedule for so many steps: warm-up takes the same share of them as in the recipe."""
        recipe = self.config.train
        return replace(recipe, steps=steps, warmup=max(1, round(recipe.warmup * steps / recipe.steps)))

    def prepare(self, batch: Batch) -> PackedBatch:
        workload = to_workload(batch)
        shape = BatchShape.for_batches([workload])
        known = self.system.shape or shape
        if any(getattr(shape, name) > getattr(known, name) for name in ("source", "target", "sentences")):
            known = merge_shapes(known, shape)
        self.system.shape = known
        return self.system.prepare(workload)

    def warm_up(self) -> None:
        """Compile and capture with batches of the largest size, then start from the initial weights."""
        count = min(NUM_SHAPE_BATCHES, self.batches.count_batches(0))
        batches = [to_workload(self.batches.get_batch(0, index)) for index in range(count)]
        shape = BatchShape.for_batches(batches)
        self.system.shape = merge_shapes(shape, shape)
        before = {name: weight.clone() for name, weight in self.system.get_masters().items()}
        self.system.adam.param_groups[0]["lr"].fill_(0.0)
        for _ in range(2):
            self.system.step(self.system.prepare(batches[0]))
        for state in self.system.adam.state.values():
            for value in state.values():
                value.zero_()
        self.system.load_weights(before)
        report.synchronize(self.device)

    def check_time(self, start: float, seconds: float) -> float:
        """Return the elapsed time, and keep a checkpoint if it is due."""
        report.synchronize(self.device)
        elapsed = time.perf_counter() - start
        first = seconds * (1 - NUM_AVERAGED / NUM_CHECKPOINTS)
        if elapsed >= first + len(self.kept) * seconds / NUM_CHECKPOINTS:
            self.kept.append({name: weight.clone() for name, weight in self.system.get_masters().items()})
        return elapsed

    def choose_weights(self) -> str:
        """Load the mean of the checkpoints or the last weights, whichever has the lower loss on valid."""
        last = {name: weight.clone() for name, weight in self.system.get_masters().items()}
        candidates = {"last step": last}
        if self.kept:
            candidates[f"mean of {len(self.kept)}"] = {
                name: torch.stack([weights[name] for weights in self.kept]).mean(0) for name in last
            }
        losses = {}
        for name, weights in candidates.items():
            self.system.load_weights(weights)
            losses[name] = compute_valid_loss(self.make_translator(), self.store) or math.inf
        chosen = min(losses, key=lambda name: losses[name])
        self.system.load_weights(candidates[chosen])
        return chosen

    def make_translator(self) -> mh.Translator:
        """Return a translator of the current weights by our own search."""
        model = mh.Transformer(self.model_config)
        weights = unmap_weights(self.system.get_masters(), self.model_config.encoder_layers)
        missing, unexpected = model.load_state_dict(weights, strict=False)
        shared = {name for name, _ in model.named_parameters()} - set(weights)
        assert not unexpected, unexpected
        assert not shared - {"source_embedding.weight", "target_embedding.weight"}, (shared, missing)
        engine = TorchEngine(model, self.device)
        languages, decoding = self.store.manifest["languages"], self.config.decoding
        max_length = self.config.data.max_length
        return mh.Translator(engine, self.store.subwords, languages, max_length=max_length, decoding=decoding)
