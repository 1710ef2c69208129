"""Hugging Face Marian trained from scratch in a plain loop, for bench/quality.py."""

import math
import time
from collections import Counter, deque
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.data.batches import Batch, Batches
from manyheads.data.store import Store
from manyheads.evaluate.perplexity import reference_perplexity
from manyheads.packed import round_up
from manyheads.train.schedule import learning_rate
from peers import Marian, MarianEngine, remove_compiled_forward

PEER, COMPILED = "Hugging Face Marian", "Hugging Face Marian, compiled"
NUM_CHECKPOINTS, NUM_AVERAGED = 25, 5  # of the peer's time; the last ones are averaged
SYNCHRONIZE_EVERY = {"cpu": 1, "cuda": 10}  # steps after which the peer waits for the device to read the time
WARM_UP_BATCHES = (2, 300)  # of each kind, and batches searched for them
PEER_BATCH_TOKENS = {"cpu": 2**10, "cuda": 2**13}  # source tokens that it translates at once


@dataclass(frozen=True)
class TrainedSystem:
    """A trained system."""

    system: str
    translator: mh.Translator
    seconds: float
    wall_seconds: float  # including startup and model selection, without compiling
    steps: int
    tokens: int  # source + target, without padding
    model: str  # which weights were selected
    compiled: int = 0  # programs compiled during training, in spite of the warm-up


class PeerTraining:
    """Marian and a plain training loop."""

    def __init__(self, config: mh.Config, device: str, compiled: bool) -> None:
        self.config, self.device, self.compiled = config, device, compiled
        self.store = Store.open(config.data.folder)
        subwords = self.store.subwords
        self.pad = max(len(subwords.source), len(subwords.target))
        torch.backends.cuda.enable_cudnn_sdp(False)  # it takes half a second to plan for each batch shape
        torch.manual_seed(config.train.seed)
        model = checkpoint.fit_to_vocabulary(config.model, subwords)
        assert isinstance(model, mh.TransformerConfig)
        self.peer = Marian(
            model,
            config.train,
            config.data,
            self.pad,
            round_up(self.pad + 1, 8),  # products of even sizes are faster on a GPU
        ).to(device)
        train = config.train
        self.adam = torch.optim.AdamW(
            self.peer.parameters(),
            betas=(train.beta1, train.beta2),
            eps=train.epsilon,
            weight_decay=train.weight_decay,
            fused=True,
        )
        data, seed = self.store.load_split("train"), train.seed
        self.batches = Batches(data, config.data, seed=seed, subwords=subwords)
        self.kept: deque[list[Tensor]] = deque(maxlen=NUM_AVERAGED)

    def train(self, seconds: float) -> TrainedSystem:
        self.peer.train()
        self.warm_up()
        train, num_programs = self.config.train, count_compiled_programs()
        start, tokens, step, elapsed = time.perf_counter(), 0, 0, 0.0
        with self.batches.stream(pin=self.device == "cuda") as stream:
            for batch in stream:
                if step % SYNCHRONIZE_EVERY[self.device] == 0:
                    elapsed = self.check_time(start, seconds)
                    if elapsed >= seconds:
                        break
                    if step:  # the expected total
                        train = replace(train, steps=math.ceil(step * seconds / elapsed))
                step += 1
                self.step(batch, learning_rate(step, train, self.config.model.d_model))
                tokens += len(batch.source.tokens) + len(batch.labels.tokens)
        num_programs = count_compiled_programs() - num_programs
        remove_compiled_forward(self.peer)  # decoding has too many shapes
        chosen = self.choose_weights()
        wall = time.perf_counter() - start
        name = COMPILED if self.compiled else PEER
        return TrainedSystem(name, self.make_translator(), elapsed, wall, step, tokens, chosen, num_programs)

    def warm_up(self) -> None:
        """Run batches of every kind without updates, before the measurement.

        With subword regularization most segmentations are sampled here, which would otherwise slow the peer.
        """
        if self.compiled:
            self.peer.compile_layers()
        num_each, num_batches = WARM_UP_BATCHES
        counts = Counter[tuple[bool, ...]]()
        for index in range(min(num_batches, self.batches.count_batches(0))):
            batch = self.batches.get_batch(0, index)
            counts[properties := self.classify_batch(batch)] += 1
            if counts[properties] <= num_each:
                self.compute_loss(batch).backward()
        self.adam.zero_grad(set_to_none=True)
        report.synchronize(self.device)

    def classify_batch(self, batch: Batch) -> tuple[bool, ...]:
        """Return the properties that need a program of their own, besides sizes."""
        source, labels = pad_packed(batch.source, self.pad), pad_packed(batch.labels, self.pad)
        return len(source) == 1, bool((source == self.pad).any()), source.shape == labels.shape

    def check_time(self, start: float, seconds: float) -> float:
        """Return the elapsed time, and keep a checkpoint if it is due."""
        report.synchronize(self.device)
        elapsed = time.perf_counter() - start
        if (
            elapsed
            >= seconds * (1 - NUM_AVERAGED / NUM_CHECKPOINTS) + len(self.kept) * seconds / NUM_CHECKPOINTS
        ):
            self.kept.append([parameter.detach().clone() for parameter in self.peer.parameters()])
        return elapsed

    def step(self, batch: Batch, rate: float) -> None:
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.zero_grad(set_to_none=True)
        self.compute_loss(batch).backward()
        if self.config.train.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.peer.parameters(), self.config.train.clip_norm)
        self.adam.step()

    def compute_loss(self, batch: Batch) -> Tensor:
        tensors = [
            pad_packed(side, self.pad).to(self.device, non_blocking=True) for side in list_sides(batch)
        ]
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            loss: Tensor = self.peer(*tensors)
        return loss

    def choose_weights(self) -> str:
        """Load the mean of the checkpoints or the last weights, whichever has the lower loss on valid."""
        last = [parameter.detach().clone() for parameter in self.peer.parameters()]
        candidates = {"last step": last}
        if self.kept:
            mean = [torch.stack(values).mean(0) for values in zip(*self.kept, strict=True)]
            candidates[f"mean of {len(self.kept)}"] = mean
        losses = {}
        for name, weights in candidates.items():
            self.load_weights(weights)
            losses[name] = compute_valid_loss(self.make_translator(), self.store) or math.inf
        chosen = min(losses, key=lambda name: losses[name])
        self.load_weights(candidates[chosen])
        return chosen

    @torch.no_grad()
    def load_weights(self, weights: list[Tensor]) -> None:
        for parameter, value in zip(self.peer.parameters(), weights, strict=True):
            parameter.copy_(value)

    def make_translator(self) -> mh.Translator:
        """Return a translator of the current weights that never outputs padding ids."""
        marian = self.peer.marian
        marian.final_logits_bias[:, self.pad :] = -torch.inf
        engine = MarianEngine(marian, self.pad, self.device, PEER_BATCH_TOKENS[self.device])
        languages, decoding = self.store.manifest["languages"], self.config.decoding
        max_length = self.config.data.max_length
        return mh.Translator(engine, self.store.subwords, languages, max_length=max_length, decoding=decoding)


def count_compiled_programs() -> int:
    """Return the number of programs made by torch.compile so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def list_sides(batch: Batch) -> list[mh.Packed]:
    return [batch.source, batch.inputs, batch.labels]


def pad_packed(packed: mh.Packed, pad: int) -> Tensor:
    """Return padded rows, to a multiple of 8. [B, L]"""
    lengths = packed.offsets.diff()
    is_real = torch.arange(round_up(packed.max_length, 8)) < lengths[:, None]
    return torch.full(is_real.shape, pad).masked_scatter_(is_real, packed.tokens)


def compute_valid_loss(translator: mh.Translator, store: Store) -> float | None:
    """Return the mean negative log-likelihood per subword of valid, or None if infinite or without valid."""
    if "valid" not in store.splits:
        return None
    perplexity, _ = reference_perplexity(translator, *store.read_text("valid"))
    return None if perplexity is None else math.log(perplexity)
