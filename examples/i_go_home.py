"""A Transformer learns "I go home." -> "나는 집에 간다." on this machine, in a few seconds.

Everything of the paper's sections 3 and 5 is here, in order: pairs, batches without padding, the model, the
smoothed loss, the warm-up schedule, decoding one token at a time, and the attention of the heads.

    python examples/i_go_home.py
    python examples/i_go_home.py --picture heads.svg     also draws the heads
"""

import argparse
import random
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from xml.sax.saxutils import escape

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import manyheads as mh
from manyheads.config import BOS_ID, EOS_ID
from manyheads.evaluate.perplexity import perplexity
from manyheads.search.driver import greedy_search
from manyheads.train.loss import chunked_loss
from manyheads.train.schedule import learning_rate

SUBJECTS = {
    "I": "나는",
    "you": "너는",
    "we": "우리는",
    "they": "그들은",
    "Minsu": "민수는",
    "my sister": "우리 누나는",
}
DESTINATIONS = {
    "home": ("home", "집"),
    "school": ("to school", "학교"),
    "market": ("to the market", "시장"),
    "sea": ("to the sea", "바다"),
    "library": ("to the library", "도서관"),
    "station": ("to the station", "역"),
}
VERBS = {"go": ("goes", "went", "간다", "갔다"), "come": ("comes", "came", "온다", "왔다")}
DAYS = {"": "", "today": "오늘", "tomorrow": "내일", "every day": "매일"}
THIRD_PERSON = {"Minsu", "my sister"}

CONSOLE = Console()
MODEL = mh.TransformerConfig(layers=2, d_model=64, d_ff=128, heads=4, dropout=0.1, init_gain=1.0)
TRAIN = mh.TrainConfig(steps=400, warmup=80, learning_rate=3e-3)


def make_pairs() -> list[tuple[str, str]]:
    """Return all sentences of a very small grammar: the verb moves to the end, the day to the front."""
    sentences = []
    for subject, destination, verb, day, past in product(SUBJECTS, DESTINATIONS, VERBS, DAYS, (False, True)):
        if past and day in ("tomorrow", "every day"):
            continue
        third, before, present_ko, past_ko = VERBS[verb]
        form = before if past else third if subject in THIRD_PERSON else verb
        to_destination, destination_ko = DESTINATIONS[destination]
        english = " ".join(filter(None, [subject, form, to_destination, day]))
        korean = [SUBJECTS[subject], DAYS[day], f"{destination_ko}에", past_ko if past else present_ko]
        sentences.append((f"{english[0].upper()}{english[1:]} .", f"{' '.join(filter(None, korean))} ."))
    return sentences


class Words:
    """One vocabulary for both languages, as in the paper; here of whole words."""

    def __init__(self, texts: list[str]):
        self.words = ["<unk>", "<s>", "</s>", *sorted({word for text in texts for word in text.split()})]
        self.ids = {word: number for number, word in enumerate(self.words)}

    def encode(self, text: str) -> list[int]:
        return [self.ids[word] for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.words[number] for number in ids)


def train(model: mh.Transformer, train_pairs: list[tuple[str, str]], words: Words) -> None:
    adam = torch.optim.Adam(model.parameters(), betas=(TRAIN.beta1, TRAIN.beta2), eps=TRAIN.epsilon)
    generator = random.Random(1)
    columns = [TextColumn("training"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn()]
    with Progress(*columns, console=CONSOLE) as progress:
        task = progress.add_task("training", total=TRAIN.steps, state="")
        for step in range(1, TRAIN.steps + 1):
            batch = generator.sample(train_pairs, 64)
            source = mh.Packed.of([[*words.encode(english), EOS_ID] for english, _ in batch])
            target = mh.Packed.of([[BOS_ID, *words.encode(korean)] for _, korean in batch])
            labels = mh.Packed.of([[*words.encode(korean), EOS_ID] for _, korean in batch]).tokens
            loss = chunked_loss(model.hidden(source, target), model.output, labels, TRAIN)
            adam.param_groups[0]["lr"] = learning_rate(step, TRAIN, MODEL.d_model)
            adam.zero_grad()
            (loss.total / loss.tokens).backward()
            adam.step()
            value = perplexity(loss.nll.item() / loss.tokens)
            progress.update(task, advance=1, state=f"step {step}, perplexity {value:.2f}")


def translate(model: mh.Transformer, words: Words, sentences: list[str]) -> list[str]:
    """Translate greedily: each step reads the most likely word of the last one."""
    state = model.start(model.encode(mh.Packed.of([[*words.encode(text), EOS_ID] for text in sentences])))
    outputs = greedy_search(model.step, state, [10] * len(sentences), torch.device("cpu"))
    return [words.decode(ids) for ids in outputs]


def show_attention(
    model: mh.Transformer, words: Words, english: str, korean: str, picture: Path | None
) -> None:
    """Print what each Korean word attended to: the cross-attention of the last layer, averaged over heads."""
    trace = mh.Trace()
    source = mh.Packed.of([[*words.encode(english), EOS_ID]])
    model(source, mh.Packed.of([[BOS_ID, *words.encode(korean)]]), trace=trace)
    heads_HTS = trace.cross[-1][0]
    source_words, target_words = [*english.split(), "</s>"], [*korean.split(), "</s>"]
    if picture:
        picture.write_text(draw_heads(heads_HTS, source_words, target_words), encoding="utf-8")
    table = Table("", *source_words, title="attention of each word (percent)", title_style="")
    for word, shares in zip(target_words, heads_HTS.mean(0).tolist(), strict=True):
        table.add_row(word, *(f"{100 * share:.0f}" for share in shares))
    CONSOLE.print(table)


def draw_heads(heads_HTS: torch.Tensor, source: list[str], target: list[str]) -> str:
    """Return an SVG with a map per head: a row per target word, a column per source word."""
    cell, left, top, gap = 34, 70, 64, 24
    width, height = len(source) * cell + gap, len(target) * cell
    marks = []
    for head, map_TS in enumerate(heads_HTS.tolist()):
        x = left + head * width
        marks.append(f'<text x="{x}" y="18">head {head + 1}</text>')
        for column, word in enumerate(source):
            position = f"{x + column * cell + 12},{top - 8}"
            marks.append(f'<text transform="translate({position}) rotate(-35)">{escape(word)}</text>')
            for row, shares in enumerate(map_TS):
                box = f'x="{x + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}"'
                marks.append(f'<rect {box} fill="#3b5bdb" fill-opacity="{shares[column]:.3f}"/>')
    for row, word in enumerate(target):
        marks.append(f'<text x="{left - 8}" y="{top + row * cell + 22}" class="side">{escape(word)}</text>')
    size = f'viewBox="0 0 {left + len(heads_HTS) * width} {top + height + 8}"'
    style = "text{font:14px sans-serif;fill:#868e96}.side{text-anchor:end}rect{stroke:#adb5bd}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{"".join(marks)}</svg>\n'


def main() -> int:
    parser = argparse.ArgumentParser(
        description="A Transformer learns a little Korean and shows its attention."
    )
    parser.add_argument("--picture", type=Path, help="SVG file for the attention of the last layer")
    arguments = parser.parse_args()
    torch.manual_seed(4)
    all_pairs = make_pairs()
    random.Random(0).shuffle(all_pairs)
    held_out = [pair for pair in all_pairs if pair[0] == "I go home ."]
    held_out += [pair for pair in all_pairs if pair not in held_out][:40]
    train_pairs = [pair for pair in all_pairs if pair not in held_out]
    words = Words([text for pair in all_pairs for text in pair])
    CONSOLE.print(f"{len(train_pairs)} training pairs, {len(held_out)} held out, {len(words.words)} words")

    model = mh.Transformer(replace(MODEL, vocab_size=len(words.words)))
    train(model, train_pairs, words)
    model.eval()

    translations = translate(model, words, [english for english, _ in held_out])
    num_correct = sum(text == korean for text, (_, korean) in zip(translations, held_out, strict=True))
    CONSOLE.print(f"{num_correct} of {len(held_out)} held-out sentences translated exactly:")
    for text, (english, korean) in list(zip(translations, held_out, strict=True))[:6]:
        CONSOLE.print(f"  {english:38} {text}{'' if text == korean else f'   (expected: {korean})'}")
    show_attention(model, words, held_out[0][0], translations[0], arguments.picture)
    return 0 if num_correct >= 0.9 * len(held_out) else 1


if __name__ == "__main__":
    sys.exit(main())
