"""Decoding step by step against the full forward pass, for the tests of every architecture."""

from typing import Any

import torch
from hypothesis import strategies as st

import manyheads as mh
from support.strategies import VOCAB_SIZE

TOKEN = st.integers(0, VOCAB_SIZE - 1)
SOURCE = st.lists(TOKEN, max_size=6)


def full_forward(model: Any, sources: list[list[int]], read: list[list[int]]) -> torch.Tensor:
    """The logits after the last token of each row, computed without a cache."""
    target = mh.Packed.of(read)
    logits: torch.Tensor = model(mh.Packed.of(sources), target)
    return logits[target.offsets[1:].long() - 1]


def check_random_search(model: Any, data: st.DataObject) -> None:
    """Whatever a search does in between: reorder hypotheses, drop finished sentences, admit waiting ones."""
    beam = data.draw(st.integers(1, 3))
    sources = data.draw(st.lists(SOURCE, min_size=1, max_size=3))
    read: list[list[int]] = [[] for _ in sources for _ in range(beam)]
    state = model.start(model.encode(mh.Packed.of(sources)), beam=beam)

    actions = st.sampled_from(["step", "step", "reorder", "drop", "admit"])
    for action in data.draw(st.lists(actions, max_size=8)):
        if action == "step" and sources:
            tokens = data.draw(st.lists(TOKEN, min_size=len(read), max_size=len(read)))
            read = [[*row, token] for row, token in zip(read, tokens, strict=True)]
            logits, state = model.step(torch.tensor(tokens), state)
            row_sources = [source for source in sources for _ in range(beam)]
            torch.testing.assert_close(logits, full_forward(model, row_sources, read), atol=1e-9, rtol=1e-9)
        elif action == "reorder" and sources:
            rows = [
                sentence * beam + data.draw(st.integers(0, beam - 1))
                for sentence in range(len(sources))
                for _ in range(beam)
            ]
            read = [read[row] for row in rows]
            state = state.reorder(torch.tensor(rows))
        elif action == "drop" and sources:
            gone = data.draw(st.integers(0, len(sources) - 1))
            sources = sources[:gone] + sources[gone + 1 :]
            read = read[: gone * beam] + read[(gone + 1) * beam :]
            state = state.remove(torch.tensor([gone]))
        elif action == "admit":
            new = data.draw(st.lists(SOURCE, min_size=1, max_size=2))
            sources = sources + new
            read = read + [[] for _ in new for _ in range(beam)]
            state = state.append(model.encode(mh.Packed.of(new)))
        assert len(state) == len(sources)
