"""The peer in JAX: a Transformer on rows of packed sentences, its loss and its update in one program.

Run by jax_system.py in a process of its own, since JAX and torch would share neither memory nor CUDA
libraries. Each line of stdin is a request in JSON, answered by a line on stdout:

    {"load": FILE}    copy the steps of an .npz file to the device and run one, which compiles
    {"time": FILE}    run all of its steps, dispatched without waiting; answers their seconds

Products are bfloat16 on a GPU and attention is cuDNN's; weights, Adam's moments, norms and the loss are
float32. Names of weights are those of packed_transformer.py.

Shapes: R rows, S source and T target tokens of a row, D = d_model, H heads, V the vocabulary.
"""

import json
import math
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

Weights = dict[str, Array]
Batch = dict[str, Array]  # source, inputs, labels [R, L]; *_ids (0: padding) and *_positions of both sides
Sizes = dict[str, Any]  # layers, heads, dropout, smoothing, betas, epsilon, learning_rate
LAYER_NORM_EPSILON = 1e-5


# ---- the model


class Network:
    """The forward pass on weights in the type of the products. Dropout draws from a counter."""

    def __init__(self, weights: Weights, sizes: Sizes, seed: Array, dtype: Any) -> None:
        self.weights, self.sizes, self.dtype, self.draws = weights, sizes, dtype, 0
        self.seed = seed
        self.attention = "cudnn" if dtype == jnp.bfloat16 else "xla"

    def linear(self, name: str, x: Array) -> Array:
        weight, bias = (self.weights[f"{name}.{part}"].astype(self.dtype) for part in ("weight", "bias"))
        return x @ weight.T + bias

    def dropout(self, x: Array) -> Array:
        """Drop numbers by a hash of their index, which is computed where it is used, forward and backward."""
        rate = self.sizes["dropout"]
        if rate == 0:
            return x
        self.draws += 1
        bits = hash_indices(x.shape, self.seed + jnp.uint32(self.draws * 0x9E3779B9 % 2**32))
        return jnp.where(bits >= jnp.uint32(rate * 2**32), x / (1 - rate), 0)

    def add_norm(self, name: str, x: Array, h: Array) -> Array:
        summed = x.astype(jnp.float32) + self.dropout(h.astype(jnp.float32))
        centered = summed - summed.mean(-1, keepdims=True)
        scale = lax.rsqrt((centered**2).mean(-1, keepdims=True) + LAYER_NORM_EPSILON)
        normalized = centered * scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return normalized.astype(self.dtype)

    def attend(self, q: Array, k: Array, v: Array, mask: Array) -> Array:
        out = jax.nn.dot_product_attention(q, k, v, mask=mask[:, None], implementation=self.attention)
        return out.reshape(*out.shape[:2], -1)

    def self_attention(self, name: str, x: Array, mask: Array) -> Array:
        stacked = self.linear(f"{name}.qkv", x).reshape(*x.shape[:2], 3, self.sizes["heads"], -1)
        heads = self.attend(stacked[:, :, 0], stacked[:, :, 1], stacked[:, :, 2], mask)
        return self.linear(f"{name}.output", heads)

    def cross_attention(self, name: str, x: Array, k: Array, v: Array, mask: Array) -> Array:
        q = self.linear(f"{name}.query", x).reshape(*x.shape[:2], self.sizes["heads"], -1)
        return self.linear(f"{name}.output", self.attend(q, k, v, mask))

    def feed_forward(self, name: str, x: Array) -> Array:
        return self.linear(f"{name}.w_2", jax.nn.relu(self.linear(f"{name}.w_1", x)))

    def embed(self, tokens: Array, positions: Array) -> Array:
        """Look float32 weights up: their gradient is a sum over tokens."""
        table = self.weights["embedding"]
        encoding = jnp.asarray(encode_positions(tokens.shape[1], table.shape[1]))
        embedded = jnp.take(table, tokens, axis=0, mode="clip") * math.sqrt(table.shape[1])
        return self.dropout(embedded + encoding[positions]).astype(self.dtype)

    def hidden(self, batch: Batch) -> Array:
        """Return the decoder's output. [R, T, D]"""
        source_ids, target_ids = batch["source_ids"], batch["target_ids"]
        source_mask = source_ids[:, :, None] == source_ids[:, None]
        target_mask = jnp.tril(target_ids[:, :, None] == target_ids[:, None])
        cross_mask = target_ids[:, :, None] == source_ids[:, None]
        x = self.embed(batch["source"], batch["source_positions"])
        for number in range(self.sizes["encoder_layers"]):
            layer = f"encoder.{number}"
            x = self.add_norm(
                f"{layer}.norm_1", x, self.self_attention(f"{layer}.self_attention", x, source_mask)
            )
            x = self.add_norm(f"{layer}.norm_2", x, self.feed_forward(f"{layer}.feed_forward", x))
        depth, heads = self.sizes["decoder_layers"], self.sizes["heads"]
        memory = self.linear("keys_values", x).reshape(*x.shape[:2], depth, 2, heads, -1)
        y = self.embed(batch["inputs"], batch["target_positions"])
        for number in range(depth):
            layer, k, v = f"decoder.{number}", memory[:, :, number, 0], memory[:, :, number, 1]
            y = self.add_norm(
                f"{layer}.norm_1", y, self.self_attention(f"{layer}.self_attention", y, target_mask)
            )
            attended = self.cross_attention(f"{layer}.cross_attention", y, k, v, cross_mask)
            y = self.add_norm(f"{layer}.norm_2", y, attended)
            y = self.add_norm(f"{layer}.norm_3", y, self.feed_forward(f"{layer}.feed_forward", y))
        return y

    def loss(self, batch: Batch) -> Array:
        """Return the label-smoothed loss per real label."""
        y = self.hidden(batch)
        logits = (y @ self.weights["embedding"].astype(self.dtype).T).astype(jnp.float32)
        smoothing, vocab_size = self.sizes["smoothing"], logits.shape[-1]
        hits = lax.broadcasted_iota(jnp.int32, logits.shape, 2) == batch["labels"][..., None]
        expected = jnp.where(hits, 1 - smoothing + smoothing / vocab_size, smoothing / vocab_size)
        losses = jax.nn.logsumexp(logits, -1) - (expected * logits).sum(-1)
        is_real = batch["target_ids"] > 0
        return jnp.where(is_real, losses, 0).sum() / is_real.sum()


def hash_indices(shape: tuple[int, ...], seed: Array) -> Array:
    """Return 32 pseudo-random bits for each element."""
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index += lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
        stride *= shape[axis]
    bits = (index ^ seed) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x9E3779B1)
    return bits ^ (bits >> 15)


def encode_positions(count: int, d_model: int) -> NDArray[np.float32]:
    """Return sines and cosines, interleaved. [count, D]"""
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(count, d_model).astype(np.float32)


# ---- the training step


def compute_loss(weights: Weights, batch: Batch, step: Array, sizes: Sizes, dtype: Any) -> Array:
    return Network(weights, sizes, step.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B), dtype).loss(batch)


def update(state: dict[str, Any], batch: Batch, sizes: Sizes, dtype: Any) -> tuple[dict[str, Any], Array]:
    """Return the state after a step of Adam, and the loss."""
    step = state["step"] + 1
    loss, gradients = jax.value_and_grad(compute_loss)(state["weights"], batch, step, sizes, dtype)
    beta1, beta2 = sizes["betas"]
    count = step.astype(jnp.float32)
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["first"], gradients)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["second"], gradients)
    rate = sizes["learning_rate"] / (1 - beta1**count)
    correction = lax.rsqrt(1 - beta2**count)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) * correction + sizes["epsilon"]),
        state["weights"],
        first,
        second,
    )
    return {"weights": weights, "first": first, "second": second, "step": step}, loss


def make_state(weights: dict[str, NDArray[np.float32]]) -> dict[str, Any]:
    arrays = {name: jnp.asarray(weight) for name, weight in weights.items()}
    first, second = ({name: jnp.zeros_like(array) for name, array in arrays.items()} for _ in range(2))
    return {"weights": arrays, "first": first, "second": second, "step": jnp.zeros((), jnp.int32)}


class Worker:
    """Answers the requests of jax_system.py."""

    def __init__(self, weights_file: str, sizes: Sizes) -> None:
        dtype = jnp.bfloat16 if jax.default_backend() == "gpu" else jnp.float32
        self.update = jax.jit(partial(update, sizes=sizes, dtype=dtype), donate_argnums=0)
        with np.load(weights_file) as weights:
            self.state = make_state({name: weights[name] for name in weights.files})
        self.batches: dict[str, list[Batch]] = {}

    def answer(self, request: dict[str, str]) -> dict[str, Any]:
        (action, file), *_ = request.items()
        return self.load(file) if action == "load" else self.time(file)

    def load(self, file: str) -> dict[str, Any]:
        with np.load(file) as arrays:
            stacked = {name: arrays[name] for name in arrays.files}
        steps = len(stacked["labels"])
        self.batches = {file: [{k: jnp.asarray(v[i]) for k, v in stacked.items()} for i in range(steps)]}
        self.state, loss = self.update(self.state, self.batches[file][0])
        device = jax.devices()[0]
        return {
            "loss": float(loss),
            "jax": jax.__version__,
            "device": device.device_kind,
            **self.get_memory(),
        }

    def time(self, file: str) -> dict[str, Any]:
        jax.block_until_ready(self.state)
        start = time.perf_counter()
        for batch in self.batches[file]:
            self.state, loss = self.update(self.state, batch)
        jax.block_until_ready((self.state, loss))
        return {"seconds": time.perf_counter() - start, "loss": float(loss), **self.get_memory()}

    def get_memory(self) -> dict[str, int]:
        statistics = jax.devices()[0].memory_stats() or {}
        return {"peak_bytes": int(statistics.get("peak_bytes_in_use", 0))}


def main() -> None:
    worker = Worker(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
