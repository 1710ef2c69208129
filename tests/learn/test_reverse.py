"""Everything of this floor at once: batches, model, loss, schedule and cached decoding learn a task."""

import random

import torch

import manyheads as mh
from manyheads.config import BEGIN, END, SPECIAL_TOKENS
from manyheads.train.loss import chunked_loss
from manyheads.train.schedule import learning_rate

WORDS = 13
MODEL = mh.ModelConfig(vocabulary=WORDS, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
TRAIN = mh.TrainConfig(steps=400, warmup=60, learning_rate=2e-3)


def sentences(chance: random.Random, count: int) -> list[list[int]]:
    return [
        [chance.randrange(SPECIAL_TOKENS, WORDS) for _ in range(chance.randint(1, 7))] for _ in range(count)
    ]


def greedy(model: mh.Transformer, texts: list[list[int]]) -> list[list[int]]:
    state = model.start(model.encode(mh.Packed.of([[*text, END] for text in texts])))
    tokens, written = torch.full((len(texts),), BEGIN), []
    for _ in range(10):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        written.append(tokens)
    rows = torch.stack(written, 1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def test_it_learns_to_reverse() -> None:
    chance = random.Random(0)
    model = mh.Transformer(MODEL)
    adam = torch.optim.Adam(model.parameters(), betas=(TRAIN.beta1, TRAIN.beta2), eps=TRAIN.epsilon)
    for step in range(1, TRAIN.steps + 1):
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, TRAIN, MODEL.d_model)
        texts = sentences(chance, 64)
        source = mh.Packed.of([[*text, END] for text in texts])
        target = mh.Packed.of([[BEGIN, *text[::-1]] for text in texts])
        labels = mh.Packed.of([[*text[::-1], END] for text in texts]).tokens
        loss = chunked_loss(model.hidden(source, target), model.output, labels, TRAIN)
        adam.zero_grad()
        (loss.total / loss.tokens).backward()
        adam.step()
    model.eval()
    unseen = sentences(chance, 200)
    right = sum(found == text[::-1] for found, text in zip(greedy(model, unseen), unseen, strict=True))
    assert right >= 196, f"{right} of 200"
