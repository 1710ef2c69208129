"""Translating, output tokens a second: ours against Hugging Face's generate, and on a CPU CTranslate2 too.

    python bench/decode.py                  base size; on a GPU some three minutes, on two cores more
    python bench/decode.py --json result.json
    python bench/decode.py --profile        where each millisecond of our search goes

The sentences are the benchmark workload's, the weights random, and every output has the length of the
workload's translation: random weights know no end. CTranslate2 and Hugging Face force one length a call, so
they get the sentences in calls of one target length, in which they waste no work on outputs that are over.
Ours in torch gets all of them at once, for it knows a length of each; and Hugging Face a second time in
batches by source length, as people have them, each of which goes on until its longest output ends. Only the
tokens that were asked for count. On a CPU sentences are batched by CTranslate2's rule; on a GPU Hugging Face
gets the size of batch that is fastest for it, tried out before. All systems take turns in one run, so that a
noisy machine is noisy for all; medians over repetitions, of which a row has no more once it took its time.
On a GPU all is done once before, unmeasured: kernels are found and graphs made for every shape.
A beam's hypotheses are not counted: a sentence of n tokens is n tokens. Our torch engine takes one step more
than the others, for the end token and its score.
"""

import argparse
import copy
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import kernels
import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.config import EOS_ID, UNK_ID, DecodingConfig, SubwordConfig
from manyheads.export.ctranslate2 import ensure_converted
from manyheads.inference.conversion import read_pieces
from manyheads.inference.ctranslate2_engine import BATCH_TOKENS, CTranslate2Engine, make_beam_options
from manyheads.inference.engine import Decoder, decode_all
from manyheads.inference.torch_engine import Precision, TorchEngine
from manyheads.search.options import DecodingConstraints
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from peers import MarianEngine, make_marian
from workload import draw_pairs

BEAMS = (1, 4)
OURS, OURS_HALF = "manyheads, torch float32", "manyheads, torch bfloat16"
OURS_INT8, OURS_FLOAT = "manyheads, CTranslate2 int8", "manyheads, CTranslate2 float32"
DIRECT_INT8, DIRECT_FLOAT = "CTranslate2 int8, called directly", "CTranslate2 float32, called directly"
PEER = "Hugging Face generate, batches by source length"
PEER_AT_BEST = "Hugging Face generate, outputs of one length together"
ON_CPU = (OURS, OURS_INT8, DIRECT_INT8, OURS_FLOAT, DIRECT_FLOAT, PEER, PEER_AT_BEST)
ON_GPU = (OURS_HALF, OURS, PEER, PEER_AT_BEST)
SENTENCES = {"cpu": 256, "cuda": 4096}
BATCHES_TRIED = (2**12, 2**13, 2**14)  # tokens of sources, on a GPU
TRIED_LENGTH = 12  # of the outputs, in a trial
MOST_REPETITIONS, SHORT_ROW = 40, 5.0  # the latter in seconds


@dataclass(frozen=True)
class Call:
    """Sentences whose output has one length. Sources end with the end token."""

    sources: list[list[int]]
    length: int  # of each output, without the end token

    @property
    def tokens(self) -> int:
        return len(self.sources) * self.length

    @property
    def wishes(self) -> list[DecodingConstraints]:
        return [DecodingConstraints(self.length, self.length)] * len(self.sources)


Found = list[list[list[int]]]  # of each call, its sentences


class System:
    """What a row measures."""

    def warm_up(self, calls: list[Call], how: DecodingConfig) -> str:
        """Whatever is done but once, unmeasured; and what there is to say about it."""
        self.decode(calls[:1], how)
        return ""

    def decode(self, calls: list[Call], how: DecodingConfig) -> Found:
        raise NotImplementedError


@dataclass
class Result:
    """A row of the table."""

    system: str
    beam: int
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)  # of each repetition
    note: str = ""

    @property
    def speed(self) -> float:
        """Output tokens a second."""
        return self.tokens / statistics.median(self.seconds)

    @property
    def search(self) -> str:
        return "greedy" if self.beam == 1 else f"beam {self.beam}"


# ---- the systems


class AllAtOnce(System):
    """An engine that takes every sentence with its own length."""

    def __init__(self, engine: Decoder) -> None:
        self.engine = engine

    def decode(self, calls: list[Call], how: DecodingConfig) -> Found:
        sources = [source for call in calls for source in call.sources]
        wishes = [wish for call in calls for wish in call.wishes]
        found = iter(decode_all(self.engine, sources, wishes, how, scores="none"))
        return [[next(found)[0].tokens for _ in call.sources] for call in calls]


class CallByCall(System):
    """An engine that takes sentences of one length of output at a time."""

    def __init__(self, engine: Decoder) -> None:
        self.engine = engine

    def decode(self, calls: list[Call], how: DecodingConfig) -> Found:
        found = [decode_all(self.engine, call.sources, call.wishes, how, scores="none") for call in calls]
        return [[one[0].tokens for one in results] for results in found]


class Ours(AllAtOnce):
    """Our own search in torch, its products in float32 or bfloat16."""

    def __init__(self, model: mh.Transformer, device: str, precision: Precision) -> None:
        super().__init__(TorchEngine(copy.deepcopy(model), device, precision))
        self.device = device

    def warm_up(self, calls: list[Call], how: DecodingConfig) -> str:
        """On a GPU everything once: what is captured or compiled for a shape is made now."""
        self.decode(calls if self.device == "cuda" else calls[:1], how)
        return ""


class HuggingFace(System):
    """Marian in batches of its best size, which two of these may share: the tokens of a batch, by beam."""

    def __init__(self, engine: MarianEngine, by_source: bool, batches: dict[int, int]) -> None:
        self.engine, self.batches = engine, batches
        self.decode_calls = (AllAtOnce if by_source else CallByCall)(engine).decode

    def warm_up(self, calls: list[Call], how: DecodingConfig) -> str:
        if self.engine.device == "cpu":
            return super().warm_up(calls, how)
        if how.beam not in self.batches:
            self.batches[how.beam] = self.best_batch(calls, how)
        self.decode(calls, how)  # every shape once, as ours
        return f"batches of {self.batches[how.beam]:,} source tokens"

    def decode(self, calls: list[Call], how: DecodingConfig) -> Found:
        self.engine.batch_tokens = self.batches.get(how.beam, BATCH_TOKENS)
        return self.decode_calls(calls, how)

    def best_batch(self, calls: list[Call], how: DecodingConfig) -> int:
        """Of those tried, which has most sentences a second; larger ones than memory holds are not tried."""
        speeds: dict[int, float] = {}
        for tokens in BATCHES_TRIED:
            try:
                speeds[tokens] = self.speed_with(tokens, calls, how)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                break
        return max(speeds, key=lambda tokens: speeds[tokens])

    def speed_with(self, tokens: int, calls: list[Call], how: DecodingConfig) -> float:
        """Sentences a second in one full batch of short outputs, of like sources."""
        sources = sorted((source for call in calls for source in call.sources), key=len)
        count = max(1, tokens // len(sources[len(sources) // 2]))
        first = max(0, len(sources) // 2 - count)
        batch = Call(sources[first : first + count], TRIED_LENGTH)
        self.engine.batch_tokens = tokens
        trial = CallByCall(self.engine)
        seconds = [
            report.seconds_of(lambda: trial.decode([batch], how), self.engine.device) for _ in range(2)
        ]
        return len(batch.sources) / min(seconds)


class CTranslate2Directly(System):
    """The same options, from ids to ids as all others."""

    def __init__(self, folder: Path, compute_type: str, threads: int) -> None:
        import ctranslate2

        place = ensure_converted(folder)
        self.translator = ctranslate2.Translator(str(place), compute_type=compute_type, intra_threads=threads)
        self.pieces = read_pieces(place, "source")
        self.ids = {piece: one for one, piece in enumerate(self.pieces)}

    def decode(self, calls: list[Call], how: DecodingConfig) -> Found:
        return [self.decode_call(call, how) for call in calls]

    def decode_call(self, call: Call, how: DecodingConfig) -> list[list[int]]:
        results = self.translator.translate_batch(
            [[self.pieces[one] for one in source] for source in call.sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=call.length,
            max_decoding_length=call.length,
            return_scores=how.beam > 1,
            **make_beam_options(how),
        )
        return [[self.ids[piece] for piece in one.hypotheses[0]] for one in results]


def marian_engine(config: mh.ModelConfig, device: str) -> MarianEngine:
    """Random weights of its own, bfloat16 on a GPU.

    What pads is a word that the workload does not hold: one word more would make an odd vocabulary.
    """
    marian = make_marian(mh.Config(model=config), UNK_ID, config.vocab_size)
    return MarianEngine(marian.to(torch.bfloat16) if device == "cuda" else marian, UNK_ID, device)


def there(device: str) -> list[str]:
    """Those systems that this machine has."""
    needs = {"CTranslate2": "ctranslate2", "Hugging Face": "transformers"}
    missing = [word for word, package in needs.items() if not report.version_of(package)]
    systems = ON_GPU if device == "cuda" else ON_CPU
    return [name for name in systems if not any(word in name for word in missing)]


def make_systems(folder: Path, config: mh.ModelConfig, arguments: argparse.Namespace) -> dict[str, System]:
    device, threads = arguments.device, arguments.threads
    model = save_model(folder, config, arguments.seed)
    marian, batches = cache(lambda: marian_engine(config, device)), {}
    makers: dict[str, Callable[[], System]] = {
        OURS: lambda: Ours(model, device, "float32"),
        OURS_HALF: lambda: Ours(model, device, "bfloat16"),
        OURS_INT8: lambda: CallByCall(CTranslate2Engine(ensure_converted(folder), "int8", threads)),
        DIRECT_INT8: lambda: CTranslate2Directly(folder, "int8", threads),
        OURS_FLOAT: lambda: CallByCall(CTranslate2Engine(ensure_converted(folder), "float32", threads)),
        DIRECT_FLOAT: lambda: CTranslate2Directly(folder, "float32", threads),
        PEER: lambda: HuggingFace(marian(), True, batches),
        PEER_AT_BEST: lambda: HuggingFace(marian(), False, batches),
    }
    if any("CTranslate2" in name for name in arguments.systems):
        ensure_converted(folder)  # once, for all of them
    return {name: makers[name]() for name in arguments.systems}


def save_model(folder: Path, config: mh.ModelConfig, seed: int) -> mh.Transformer:
    """Random weights as a model folder; its subwords are only there because a folder must have some."""
    torch.manual_seed(seed)
    model = mh.Transformer(config).eval()
    text = ["the benchmark has ids and no text"] * 4
    subwords = SubwordTokenizer.train(text, SubwordConfig(vocab_size=20, byte_fallback=False))
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        SubwordPair(subwords, subwords),
        mh.Config(model=config),
        step=0,
        languages={"source": "en", "target": "ko"},
    )
    return model


# ---- measuring


def make_calls(sentences: int, lengths: int, vocabulary: int, seed: int) -> list[Call]:
    """Sentences of so many target lengths, which lie evenly over the workload's and have equally many."""
    pool = draw_pairs(max(20_000, 50 * sentences), vocabulary, seed)
    pool.sort(key=lambda pair: len(pair.target))
    each, calls = -(-sentences // lengths), []
    for part in range(lengths):
        wanted = len(pool[(2 * part + 1) * len(pool) // (2 * lengths)].target)  # the middle one of each part
        alike = [[*pair.source, EOS_ID] for pair in pool if len(pair.target) == wanted]
        calls.append(Call(alike[:each], wanted))
    return calls


def measure(systems: dict[str, System], calls: list[Call], arguments: argparse.Namespace) -> list[Result]:
    """Every system on everything, in turns; the order turns around each time."""
    results = [Result(name, beam, sum(call.tokens for call in calls)) for beam in BEAMS for name in systems]
    for row in results:
        row.note = systems[row.system].warm_up(calls, DecodingConfig(beam=row.beam))
        report.say(f"{row.system}, {row.search}: ready {row.note}")
    report.settle_memory()
    for number in range(MOST_REPETITIONS):
        for row in results[:: 1 if number % 2 else -1]:
            if wants_more(row, arguments):
                row.seconds.append(run(systems[row.system], calls, row.beam, arguments.device))
                report.say(f"{row.system}, {row.search}: {row.tokens / row.seconds[-1]:,.0f} tokens/s")
    return results


def wants_more(row: Result, arguments: argparse.Namespace) -> bool:
    """Rows of parts of a second are repeated more often: a host that does other things too disturbs those."""
    spent = sum(row.seconds)
    few = len(row.seconds) < arguments.repetitions or spent < SHORT_ROW
    return few and spent < arguments.row_seconds


def run(system: System, calls: list[Call], beam: int, device: str) -> float:
    """Seconds; what was not of the length asked for is an error, for then the work was not the same."""
    found: Found = []
    seconds = report.seconds_of(lambda: found.extend(system.decode(calls, DecodingConfig(beam=beam))), device)
    for call, results in zip(calls, found, strict=True):
        lengths = {len(tokens) for tokens in results}
        if lengths != {call.length}:
            sys.exit(f"outputs of {sorted(lengths)} tokens, but {call.length} were forced")
    return seconds


# ---- telling


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


def ours_is_faster_by(results: list[Result], row: Result) -> float | None:
    """Our torch engine, in bfloat16 where that was measured, against the row."""
    ours = row_of(results, OURS_HALF, row.beam) or row_of(results, OURS, row.beam)
    return ours.speed / row.speed if ours else None


COLUMNS = ("system", "search", "output tokens/s", "spread", "speed", "ours is faster by")


def told(row: Result, results: list[Result]) -> tuple[str, ...]:
    faster = ours_is_faster_by(results, row)
    return (
        row.system,
        row.search,
        f"{row.speed:,.0f}",
        report.told_spread(row.seconds),
        against(results, row),
        "" if faster is None else f"{faster:.2f} x",
    )


def as_json(row: Result, results: list[Result]) -> dict[str, Any]:
    return {
        **asdict(row),
        "tokens_per_second": row.speed,
        "spread": report.spread(row.seconds),
        "against": against(results, row),
        "ours_is_faster_by": ours_is_faster_by(results, row),
    }


def show_profile(
    systems: dict[str, System], calls: list[Call], title: str, options: argparse.Namespace
) -> None:
    """Of the first system, greedy and with a beam, over everything."""
    name, system = next(iter(systems.items()))
    about, found = report.about(options.device), {}
    for beam in BEAMS:
        how = DecodingConfig(beam=beam)
        system.warm_up(calls, how)
        profile = kernels.profiled(lambda how=how: system.decode(calls, how), options.device)
        kernels.print_profile(profile, f"{name}, beam {beam}: {title}; {about}")
        found[f"beam {beam}"] = profile.to_dict()
    report.write_json(options.json, title, about, system=name, profile=found)


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser(__doc__)
    report.add_preset(parser, "base")
    parser.add_argument("--vocabulary", type=report.positive, default=mh.presets.BASE.vocab_size)
    parser.add_argument(
        "--sentences", type=report.positive, help="in all (default: 4096; on a CPU 256; profiled an eighth)"
    )
    parser.add_argument(
        "--lengths", type=report.positive, default=4, help="target lengths, a call each (default: 4)"
    )
    parser.add_argument(
        "--repetitions",
        type=report.positive,
        default=3,
        help=f"the median counts (default: 3, and more until a row took {SHORT_ROW:.0f} seconds)",
    )
    parser.add_argument(
        "--row-seconds", type=float, help="a row that took so long is not repeated (default: 10 on a GPU)"
    )
    parser.add_argument("--threads", type=report.positive, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", metavar="SYSTEM", help="those with this in their name; may repeat"
    )
    parser.add_argument(
        "--profile", action="store_true", help="instead: the first system's search, kernel by kernel"
    )
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    few = 8 if arguments.profile else 1  # a trace holds every kernel of every step
    arguments.sentences = arguments.sentences or SENTENCES[arguments.device] // few
    arguments.row_seconds = arguments.row_seconds or (10.0 if on_gpu else float("inf"))
    arguments.systems = report.only(there(arguments.device), arguments.only)
    if arguments.profile:
        arguments.systems = arguments.systems[:1]
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    config = replace(mh.presets.get_preset(arguments.preset).model, vocab_size=arguments.vocabulary)
    calls = make_calls(arguments.sentences, arguments.lengths, arguments.vocabulary, arguments.seed)
    outputs = ", ".join(f"{len(call.sources)} of {call.length}" for call in calls)
    title = f"{arguments.preset}, vocabulary {arguments.vocabulary:,}; outputs: {outputs} tokens"
    with tempfile.TemporaryDirectory() as folder:
        systems = make_systems(Path(folder) / "model", config, arguments)
        if arguments.profile:
            show_profile(systems, calls, title, arguments)
            return
        results = measure(systems, calls, arguments)
    about = report.about(arguments.device)
    report.print_table(f"{title}; {about}", COLUMNS, [told(row, results) for row in results])
    report.write_json(
        arguments.json,
        title,
        about,
        calls=[{"sentences": len(call.sources), "length": call.length} for call in calls],
        repetitions=arguments.repetitions,
        rows=[as_json(row, results) for row in results],
    )


if __name__ == "__main__":
    report.run(main)
