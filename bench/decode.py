"""Translating, output tokens a second on a CPU: ours in torch and through CTranslate2, against CTranslate2
called directly and Hugging Face's generate.

    python bench/decode.py                  base size, some minutes on two cores
    python bench/decode.py --json result.json

The sentences are the benchmark workload's, the weights random, and every output has the length of the
workload's translation: random weights know no end. CTranslate2 and Hugging Face force one length a call, so
they get the sentences in calls of one target length, in which they waste no work on outputs that are over.
Ours in torch gets all of them at once, for it knows a length of each; and Hugging Face a second time in
batches by source length, as people have them, each of which goes on until its longest output ends. Only the
tokens that were asked for count. In a call sentences are sorted and batched by the same rule. All systems
take turns in one run, so that a noisy machine is noisy for all; medians over repetitions.
A beam's hypotheses are not counted: a sentence of n tokens is n tokens. Our torch engine takes one step more
than the others, for the end token and its score.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import BEGIN, END, SearchConfig, SubwordConfig
from manyheads.engines.ctranslate2 import BATCH_TOKENS, CTranslate2Engine, beam_options, read_pieces
from manyheads.engines.torch import TorchEngine
from manyheads.search import Wish
from manyheads.text.subwords import SubwordPair, Subwords
from workload import draw_pairs

BEAMS = (1, 4)
OURS, OURS_INT8, OURS_FLOAT = (
    "manyheads, torch",
    "manyheads, CTranslate2 int8",
    "manyheads, CTranslate2 float32",
)
DIRECT_INT8, DIRECT_FLOAT = "CTranslate2 int8, called directly", "CTranslate2 float32, called directly"
PEER = "Hugging Face generate, batches by source length"
PEER_AT_BEST = "Hugging Face generate, outputs of one length together"
SYSTEMS = (OURS, OURS_INT8, DIRECT_INT8, OURS_FLOAT, DIRECT_FLOAT, PEER, PEER_AT_BEST)


@dataclass(frozen=True)
class Call:
    """Sentences whose output has one length. Sources end with the end token."""

    sources: list[list[int]]
    length: int  # of each output, without the end token

    @property
    def tokens(self) -> int:
        return len(self.sources) * self.length


Decode = Callable[[list[Call], SearchConfig], list[list[list[int]]]]  # of each call, its sentences
DecodeCall = Callable[[Call, SearchConfig], list[list[int]]]


def one_by_one(decode: DecodeCall) -> Decode:
    return lambda calls, how: [decode(call, how) for call in calls]


@dataclass
class Result:
    """A row of the table."""

    system: str
    beam: int
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)  # of each repetition

    @property
    def speed(self) -> float:
        """Output tokens a second."""
        return self.tokens / statistics.median(self.seconds)


# ---- the systems


def ours_torch(model: mh.Transformer) -> Decode:
    engine = TorchEngine(model)

    def decode(calls: list[Call], how: SearchConfig) -> list[list[list[int]]]:
        sources = [source for call in calls for source in call.sources]
        wishes = [Wish(call.length, call.length) for call in calls for _ in call.sources]
        found = iter(engine.search(sources, wishes, how))
        return [[next(found)[0].tokens for _ in call.sources] for call in calls]

    return decode


def ours_ctranslate2(folder: Path, compute_type: str, threads: int) -> Decode:
    engine = CTranslate2Engine(folder, compute_type, threads)

    def decode(call: Call, how: SearchConfig) -> list[list[int]]:
        wishes = [Wish(call.length, call.length)] * len(call.sources)
        found = engine.search(call.sources, wishes, how, scores="none")
        return [some[0].tokens for some in found]

    return one_by_one(decode)


def ctranslate2_directly(folder: Path, compute_type: str, threads: int) -> Decode:
    """The same options, from ids to ids as all others."""
    import ctranslate2

    place = folder.with_name(f"{folder.name}.ctranslate2")
    translator = ctranslate2.Translator(str(place), compute_type=compute_type, intra_threads=threads)
    pieces = read_pieces(place, "source")
    ids = {piece: one for one, piece in enumerate(pieces)}

    def decode(call: Call, how: SearchConfig) -> list[list[int]]:
        results = translator.translate_batch(
            [[pieces[one] for one in source] for source in call.sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=call.length,
            max_decoding_length=call.length,
            return_scores=how.beam > 1,
            **beam_options(how),
        )
        return [[ids[piece] for piece in one.hypotheses[0]] for one in results]

    return one_by_one(decode)


def hugging_face(config: mh.ModelConfig, by_source: bool) -> Decode:
    """MarianMTModel of the same size, random weights of its own."""
    import transformers

    transformers.logging.set_verbosity_error()
    pad = config.vocabulary
    marian = transformers.MarianMTModel(marian_config(config, pad)).eval()

    @torch.inference_mode()
    def decode(call: Call, how: SearchConfig) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in call.sources]
        for numbers in padded_batches(call.sources):
            longest = max(len(call.sources[n]) for n in numbers)
            rows = [call.sources[n] + [pad] * (longest - len(call.sources[n])) for n in numbers]
            ids = torch.tensor(rows)
            out = marian.generate(
                input_ids=ids,
                attention_mask=(ids != pad).long(),
                num_beams=how.beam,
                do_sample=False,
                min_new_tokens=call.length,
                max_new_tokens=call.length,
                length_penalty=how.alpha,
                early_stopping=False,
            )
            for number, row in zip(numbers, out.tolist(), strict=True):
                found[number] = row[1 : call.length + 1]
        return found

    def decode_mixed(calls: list[Call], how: SearchConfig) -> list[list[list[int]]]:
        """Every batch as long as its longest output; what is beyond a sentence's own length is cut off."""
        sentences = [(source, call.length) for call in calls for source in call.sources]
        found: dict[int, list[int]] = {}
        for numbers in padded_batches([source for source, _ in sentences]):
            longest = max(sentences[n][1] for n in numbers)
            rows = decode(Call([sentences[n][0] for n in numbers], longest), how)
            found |= {n: row[: sentences[n][1]] for n, row in zip(numbers, rows, strict=True)}
        results = iter(found[n] for n in range(len(sentences)))
        return [[next(results) for _ in call.sources] for call in calls]

    return decode_mixed if by_source else one_by_one(decode)


def marian_config(config: mh.ModelConfig, pad: int) -> Any:
    import transformers

    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", config.layers),
            ("attention_heads", config.heads),
            ("ffn_dim", config.d_ff),
        )
    }
    return transformers.MarianConfig(
        vocab_size=config.vocabulary + 1,  # it needs one for padding
        d_model=config.d_model,
        **sides,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=pad,
        eos_token_id=END,
        bos_token_id=BEGIN,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        max_position_embeddings=512,
    )


def padded_batches(sources: list[list[int]]) -> list[list[int]]:
    """CTranslate2's rule: longest first, so many tokens a batch with padding counted."""
    batches: list[list[int]] = []
    for number in sorted(range(len(sources)), key=lambda n: -len(sources[n])):
        if not batches or (len(batches[-1]) + 1) * len(sources[batches[-1][0]]) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(number)
    return batches


# ---- the measurement


def make_calls(sentences: int, lengths: int, vocabulary: int, seed: int) -> list[Call]:
    """Sentences of so many target lengths, which lie evenly over the workload's and have equally many."""
    pool = draw_pairs(max(20_000, 50 * sentences), vocabulary, seed)
    pool.sort(key=lambda pair: len(pair.target))
    each, calls = -(-sentences // lengths), []
    for part in range(lengths):
        wanted = len(pool[(2 * part + 1) * len(pool) // (2 * lengths)].target)  # the middle one of each part
        alike = [[*pair.source, END] for pair in pool if len(pair.target) == wanted]
        calls.append(Call(alike[:each], wanted))
    return calls


def save_model(folder: Path, config: mh.ModelConfig, seed: int) -> mh.Transformer:
    """Random weights as a model folder; its subwords are only there because a folder must have some."""
    torch.manual_seed(seed)
    model = mh.Transformer(config).eval()
    text = ["the benchmark has ids and no text"] * 4
    subwords = Subwords.train(text, SubwordConfig(vocabulary=20, byte_fallback=False))
    checkpoint.save(
        folder,
        checkpoint.weights_of(model),
        SubwordPair(subwords, subwords),
        mh.Config(model=config),
        step=0,
        languages={"source": "en", "target": "ko"},
    )
    return model


def make_systems(folder: Path, config: mh.ModelConfig, arguments: argparse.Namespace) -> dict[str, Decode]:
    model, threads = save_model(folder, config, arguments.seed), arguments.threads
    makers: dict[str, Callable[[], Decode]] = {
        OURS: lambda: ours_torch(model),
        OURS_INT8: lambda: ours_ctranslate2(folder, "int8", threads),
        DIRECT_INT8: lambda: ctranslate2_directly(folder, "int8", threads),
        OURS_FLOAT: lambda: ours_ctranslate2(folder, "float32", threads),
        DIRECT_FLOAT: lambda: ctranslate2_directly(folder, "float32", threads),
        PEER: lambda: hugging_face(config, by_source=True),
        PEER_AT_BEST: lambda: hugging_face(config, by_source=False),
    }
    CTranslate2Engine(folder, threads=threads)  # the conversion, which all of them find
    return {name: makers[name]() for name in SYSTEMS if name not in (arguments.without or [])}


def measure(
    systems: dict[str, Decode], calls: list[Call], arguments: argparse.Namespace, progress: Progress
) -> list[Result]:
    """Every system on everything, in turns; the order turns around each time. A call before, unmeasured."""
    results = [Result(name, beam, sum(call.tokens for call in calls)) for beam in BEAMS for name in systems]
    rounds = range(arguments.repetitions)
    bar = progress.add_task("decoding", total=arguments.repetitions * len(results))
    for result in results:
        run(systems[result.system], calls[:1], result.beam)
    for number in rounds:
        for result in results[:: 1 if number % 2 else -1]:
            result.seconds.append(run(systems[result.system], calls, result.beam))
            progress.advance(bar)
    return results


def run(decode: Decode, calls: list[Call], beam: int) -> float:
    """Seconds; what was not of the length asked for is an error, for then the work was not the same."""
    how = SearchConfig(beam=beam)
    began = time.perf_counter()
    found = decode(calls, how)
    seconds = time.perf_counter() - began
    for call, results in zip(calls, found, strict=True):
        lengths = {len(tokens) for tokens in results}
        if lengths != {call.length}:
            sys.exit(f"outputs of {sorted(lengths)} tokens, but {call.length} were forced")
    return seconds


def row_of(results: list[Result], system: str, beam: int) -> Result | None:
    return next((one for one in results if (one.system, one.beam) == (system, beam)), None)


def against(results: list[Result], row: Result) -> str:
    """The row's speed as a share of what it is to be compared with."""
    direct = {OURS_INT8: DIRECT_INT8, OURS_FLOAT: DIRECT_FLOAT}.get(row.system)
    shares = []
    for name, words in ((direct, "of direct"), (PEER, "of Hugging Face"), (PEER_AT_BEST, "at its best")):
        other = row_of(results, name, row.beam) if name else None
        if other and other is not row:
            shares.append(f"{row.speed / other.speed:.3g} x {words}")
    return ", ".join(shares)


def print_table(results: list[Result], title: str) -> None:
    table = Table("system", "search", "output tokens/s", "spread", "speed", title=title)
    for row in results:
        spread = (max(row.seconds) - min(row.seconds)) / statistics.median(row.seconds)
        search = "greedy" if row.beam == 1 else f"beam {row.beam}"
        table.add_row(row.system, search, f"{row.speed:,.0f}", f"{spread:.0%}", against(results, row))
    Console(width=130).print(table)


def machine(threads: int) -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{(names or [platform.processor()])[0]}, {threads} threads"


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, but must be at least 1")
    return number


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base", choices=["base", "big", "small", "tiny"])
    parser.add_argument("--vocabulary", type=positive, default=mh.presets.BASE.vocabulary)
    parser.add_argument("--sentences", type=positive, default=256, help="in all (default: 256)")
    parser.add_argument(
        "--lengths", type=positive, default=4, help="target lengths, a call each (default: 4)"
    )
    parser.add_argument("--repetitions", type=positive, default=3, help="the median counts (default: 3)")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="append", choices=SYSTEMS, help="leave a system out")
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    return parser.parse_args()


def write_json(results: list[Result], told: dict[str, Any], path: Path) -> None:
    rows = [
        {**asdict(row), "tokens_per_second": row.speed, "against": against(results, row)} for row in results
    ]
    path.write_text(json.dumps({**told, "rows": rows}, indent=1, allow_nan=False) + "\n")


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    config = replace(mh.presets.preset(arguments.preset).model, vocabulary=arguments.vocabulary)
    calls = make_calls(arguments.sentences, arguments.lengths, arguments.vocabulary, arguments.seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        systems = make_systems(Path(folder) / "model", config, arguments)
        results = measure(systems, calls, arguments, progress)
    versions = {name: version(name) for name in ("torch", "ctranslate2", "transformers")}
    told = {
        "title": f"{arguments.preset}, vocabulary {arguments.vocabulary:,}, float32 weights",
        "machine": machine(arguments.threads),
        "versions": versions,
        "date": date.today().isoformat(),
        "calls": [{"sentences": len(call.sources), "length": call.length} for call in calls],
        "repetitions": arguments.repetitions,
    }
    outputs = ", ".join(f"{len(call.sources)} of {call.length}" for call in calls)
    print_table(
        results,
        f"{told['title']}; outputs: {outputs} tokens; {told['machine']}; "
        f"{', '.join(f'{name} {number}' for name, number in versions.items())}; {told['date']}",
    )
    if arguments.json:
        write_json(results, told, arguments.json)


if __name__ == "__main__":
    main()
