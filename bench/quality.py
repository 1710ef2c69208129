"""Quality in little time: a recipe of runs/ trained for some seconds and scored; ours, and Marian for it.

    python bench/quality.py multi30k --data multi30k/data --seconds 60 --peer --json result.json
    python bench/quality.py koen --data koen/data --seconds 150 --set train.warmup=1000 --out koen-run

Ours is `manyheads train` and `manyheads evaluate`: the recipe with these seconds, then the data folder's test
set with a beam of 4. The peer is MarianMTModel of the same sizes from scratch, in a plain loop: the same
batches padded and read once, whatever train.r_drop says, bfloat16 products and fused Adam, the recipe's
schedule (what falls to an end falls to the end of its time), no validation on the way; the mean of 5
checkpoints from the last fifth of its time or the last one, whichever has the better loss on valid. It is
post-norm always; `--peer-set` gives it other settings. On a GPU it comes eager and compiled (on a CPU by
`--only`). Seconds are those of training: ours has the making of its kernels, the first splits of its words,
its validations and checkpoints in them, the peer is compiled and has seen batches before. All three, 60
seconds each, take some five minutes on an H200. How the data are made stands at the top of each recipe; the
peer needs `pip install '.[huggingface]'`.
"""

import argparse
import math
import tempfile
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.data.batches import Batch, Batches
from manyheads.data.store import Store
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.perplexity import reference_perplexity
from manyheads.evaluate.report import Evaluation, evaluate
from manyheads.packed import round_up
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.run import train
from manyheads.train.schedule import learning_rate
from peers import Marian, MarianEngine, uncompile

OURS, PEER, COMPILED = "manyheads", "Hugging Face Marian", "Hugging Face Marian, compiled"
RUNS = Path(__file__).parents[1] / "runs"
BEAM = 4
SHOWN = 5  # translations
CHECKPOINTS, AVERAGED = 25, 5  # of the peer's time, and the last of them
LOOK_EVERY = {"cpu": 1, "cuda": 10}  # steps at which the peer waits for the device, to know the time
SEEN_BEFORE = (2, 300)  # batches of each kind, of so many that are looked through
PEER_BATCH = {"cpu": 2**10, "cuda": 2**13}  # source tokens that it translates at once


@dataclass(frozen=True)
class Trained:
    """A system that has learned."""

    system: str
    translator: mh.Translator
    seconds: float
    wall_seconds: float  # with the start, compiling aside, and the choice of the model
    steps: int
    tokens: int  # source + target, real ones
    model: str  # which weights were taken
    compiled: int = 0  # programs that the compiler made in that time, though it had seen such batches


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    system: str
    seconds: float
    wall_seconds: float
    steps: int
    tokens_per_second: float
    model: str
    compiled: int
    valid_loss: float | None  # a subword, unsmoothed
    evaluation: Evaluation


# ---- ours


def train_ours(config: mh.Config, run: Path, device: str) -> Trained:
    began = time.perf_counter()
    if train(config, run, device=device) == "stopped":
        raise KeyboardInterrupt  # its folder is not kept, or may not be gone on with: there is no result
    wall = time.perf_counter() - began
    lines = read_log(run / LOG_FILE)
    batches = [line["tokens"] for line in lines if line["event"] == "train"]  # some of them
    end = next(line for line in lines if line["event"] == "end")
    place = checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]).training["progress"]
    return Trained(
        OURS,
        mh.load(run / "model", device=device),
        place["seconds"],
        wall,
        place["step"],
        round(place["step"] * sum(batches) / len(batches)),
        end["model"],
    )


# ---- the peer


class PeerTraining:
    """Marian and its plain training loop."""

    def __init__(self, config: mh.Config, device: str, compiled: bool) -> None:
        self.config, self.device, self.compiled = config, device, compiled
        self.store = Store.open(config.data.folder)
        words = self.store.subwords
        self.pad = max(len(words.source), len(words.target))
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew, half a second, for each shape of a batch
        torch.manual_seed(config.train.seed)
        self.peer = Marian(
            checkpoint.fit_to_vocabulary(config.model, words),
            config.train,
            config.data,
            self.pad,
            round_up(self.pad + 1, 8),  # products of even sizes are faster on a GPU
        ).to(device)
        numbers = config.train
        self.adam = torch.optim.AdamW(
            self.peer.parameters(),
            betas=(numbers.beta1, numbers.beta2),
            eps=numbers.epsilon,
            weight_decay=numbers.weight_decay,
            fused=True,
        )
        data, seed = self.store.load_split("train"), numbers.seed
        self.batches = Batches(data, config.data, seed=seed, subwords=words)
        self.kept: deque[list[Tensor]] = deque(maxlen=AVERAGED)

    def train(self, seconds: float) -> Trained:
        self.peer.train()
        self.warm_up()
        numbers, programs = self.config.train, compiled_programs()
        began, tokens, step, elapsed = time.perf_counter(), 0, 0, 0.0
        with self.batches.stream(pin=self.device == "cuda") as stream:
            for batch in stream:
                if step % LOOK_EVERY[self.device] == 0:
                    elapsed = self.look(began, seconds)
                    if elapsed >= seconds:
                        break
                    if step:  # so many steps it will be
                        numbers = replace(numbers, steps=math.ceil(step * seconds / elapsed))
                step += 1
                self.step(batch, learning_rate(step, numbers, self.config.model.d_model))
                tokens += len(batch.source.tokens) + len(batch.labels.tokens)
        programs = compiled_programs() - programs
        uncompile(self.peer)  # translating meets too many shapes
        chosen = self.choose()
        wall = time.perf_counter() - began
        name = COMPILED if self.compiled else PEER
        return Trained(name, self.translator(), elapsed, wall, step, tokens, chosen, programs)

    def warm_up(self) -> None:
        """On batches of every kind, before the clock runs; nothing is learned of them.

        Where words are split anew, most are drawn here: the thread that draws them would hold the peer up.
        """
        if self.compiled:
            self.peer.compile_it()
        of_a_kind, looked_through = SEEN_BEFORE
        seen = Counter[tuple[bool, ...]]()
        for index in range(min(looked_through, self.batches.count_batches(0))):
            batch = self.batches.get_batch(0, index)
            seen[kind := self.kind_of(batch)] += 1
            if seen[kind] <= of_a_kind:
                self.loss(batch).backward()
        self.adam.zero_grad(set_to_none=True)
        report.synchronize(self.device)

    def kind_of(self, batch: Batch) -> tuple[bool, ...]:
        """What decides about a program beside the sizes: each kind has one of its own."""
        source, labels = rows(batch.source, self.pad), rows(batch.labels, self.pad)
        return len(source) == 1, bool((source == self.pad).any()), source.shape == labels.shape

    def look(self, began: float, seconds: float) -> float:
        """The time; and a checkpoint where one is due."""
        report.synchronize(self.device)
        elapsed = time.perf_counter() - began
        if elapsed >= seconds * (1 - AVERAGED / CHECKPOINTS) + len(self.kept) * seconds / CHECKPOINTS:
            self.kept.append([one.detach().clone() for one in self.peer.parameters()])
        return elapsed

    def step(self, batch: Batch, rate: float) -> None:
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        if self.config.train.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.peer.parameters(), self.config.train.clip_norm)
        self.adam.step()

    def loss(self, batch: Batch) -> Tensor:
        tensors = [rows(side, self.pad).to(self.device, non_blocking=True) for side in sides(batch)]
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            found: Tensor = self.peer(*tensors)
        return found

    def choose(self) -> str:
        """The mean of the checkpoints or the last weights, by the loss on valid."""
        last = [one.detach().clone() for one in self.peer.parameters()]
        candidates = {"last step": last}
        if self.kept:
            mean = [torch.stack(each).mean(0) for each in zip(*self.kept, strict=True)]
            candidates[f"mean of {len(self.kept)}"] = mean
        losses = {}
        for name, weights in candidates.items():
            self.put(weights)
            losses[name] = valid_loss(self.translator(), self.store) or math.inf
        chosen = min(losses, key=lambda name: losses[name])
        self.put(candidates[chosen])
        return chosen

    @torch.no_grad()
    def put(self, weights: list[Tensor]) -> None:
        for one, value in zip(self.peer.parameters(), weights, strict=True):
            one.copy_(value)

    def translator(self) -> mh.Translator:
        """Of the weights as they are; what is no word is never written."""
        marian = self.peer.marian
        marian.final_logits_bias[:, self.pad :] = -torch.inf
        engine = MarianEngine(marian, self.pad, self.device, PEER_BATCH[self.device])
        languages, how = self.store.manifest["languages"], self.config.decoding
        longest = self.config.data.max_length
        return mh.Translator(engine, self.store.subwords, languages, max_length=longest, decoding=how)


def compiled_programs() -> int:
    """By torch.compile, so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def sides(batch: Batch) -> list[mh.Packed]:
    return [batch.source, batch.inputs, batch.labels]


def rows(packed: mh.Packed, pad: int) -> Tensor:
    """Padded, to a multiple of 8. [B, L]"""
    lengths = packed.offsets.diff()
    is_real = torch.arange(round_up(packed.max_length, 8)) < lengths[:, None]
    return torch.full(is_real.shape, pad).masked_scatter_(is_real, packed.tokens)


# ---- judging


def valid_loss(translator: mh.Translator, store: Store) -> float | None:
    """The mean negative log-likelihood of a subword of valid, in float32; None: infinite, or no valid."""
    if "valid" not in store.splits:
        return None
    found, _ = reference_perplexity(translator, *store.read_text("valid"))
    return None if found is None else math.log(found)


def judged(trained: Trained, store: Store) -> Row:
    sources, references = store.read_text("test")
    report.say(f"{trained.system}: {trained.steps:,} steps in {trained.seconds:.1f} s; now its translations")
    return Row(
        trained.system,
        trained.seconds,
        trained.wall_seconds,
        trained.steps,
        trained.tokens / trained.seconds,
        trained.model,
        trained.compiled,
        valid_loss(trained.translator, store),
        evaluate(trained.translator, sources, [references], bootstrap_samples=0, num_worst=0, beam=BEAM),
    )


COLUMNS = ("system", "seconds", "steps", "tokens/s", "valid loss", "BLEU", "chrF", "paper's BLEU", "model")


def told(row: Row) -> tuple[str, ...]:
    return (
        row.system,
        f"{row.seconds:.1f}",
        f"{row.steps:,}",
        f"{row.tokens_per_second:,.0f}",
        "" if row.valid_loss is None else f"{row.valid_loss:.3f}",
        *(f"{score.value:.2f}" for score in row.evaluation.scores),
        row.model + (f"; {row.compiled} programs compiled on the way" if row.compiled else ""),
    )


def as_json(row: Row) -> dict[str, Any]:
    numbers = {key: value for key, value in asdict(row).items() if key != "evaluation"}
    found = row.evaluation
    scores = [asdict(score) for score in found.scores]
    return numbers | {
        "scores": scores,
        "test_perplexity": found.perplexity,
        "length_ratio": found.length_ratio,
        "engine": found.engine,
    }


def samples(done: list[Row], store: Store) -> list[dict[str, str]]:
    """The first sentences of test, with what each system made of them."""
    sources, references = store.read_text("test")
    return [
        {"source": sources[number], "reference": references[number]}
        | {row.system: row.evaluation.translations[number] for row in done}
        for number in range(min(SHOWN, len(sources)))
    ]


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser(__doc__)
    parser.add_argument("recipe", help="a name under runs/, or a TOML file")
    parser.add_argument("--data", type=Path, required=True, help="the folder that `manyheads prepare` made")
    parser.add_argument("--seconds", type=float, required=True, help="of training, each system")
    parser.add_argument("--peer", action="store_true", help="Hugging Face Marian as well")
    parser.add_argument(
        "--only", action="append", metavar="SYSTEM", help="those with this in their name; may repeat"
    )
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for both")
    parser.add_argument(
        "--peer-set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for the peer alone"
    )
    parser.add_argument("--out", type=Path, help="keep our run there: log, checkpoints, model")
    arguments = parser.parse_args()
    arguments.systems = chosen(arguments)
    if arguments.out and arguments.out.exists():
        parser.error(f"--out {arguments.out}: exists already, and a run would go on there")
    if arguments.out and OURS not in arguments.systems:
        parser.error(f"--out {arguments.out}: our run is kept there, and it is not asked for")
    if arguments.peer_set and arguments.systems == [OURS]:
        parser.error(f"--peer-set {' '.join(arguments.peer_set)}: no peer is asked for: --peer")
    return arguments


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The systems that are asked for; those that take long on a CPU only by name."""
    if not (arguments.peer or arguments.only):
        return [OURS]
    there = (OURS, PEER, COMPILED) if arguments.device == "cuda" or arguments.only else (OURS, PEER)
    wanted = report.only(there, arguments.only)
    if wanted != [OURS] and not report.version_of("transformers"):
        raise RequestError("the peer needs transformers, which is not here: pip install '.[huggingface]'")
    return wanted


def recipe(arguments: argparse.Namespace) -> mh.Config:
    path = Path(arguments.recipe)
    if path.suffix != ".toml":
        path = RUNS / f"{arguments.recipe}.toml"
        if not path.exists():
            names = ", ".join(sorted(one.stem for one in RUNS.glob("*.toml")))
            raise ConfigError(f"{arguments.recipe}: no recipe of runs/ ({names}), and no TOML file")
    given = {"data.folder": "--data", "train.seconds": "--seconds"}
    for one in [*arguments.set, *arguments.peer_set]:
        if option := given.get(one.partition("=")[0].strip()):
            raise ConfigError(f"{one}: said by {option}, for all systems")
    where = [f'data.folder="{arguments.data}"', f"train.seconds={arguments.seconds}"]
    return mh.Config.load(path).override([*where, *arguments.set])


def main() -> None:
    arguments = parse_arguments()
    config = recipe(arguments)
    of_peer = config.override(["model.norm=post", *arguments.peer_set])  # Marian knows no other norm
    store = Store.open(config.data.folder)
    done: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for system in arguments.systems:
            if system == OURS:
                trained = train_ours(config, arguments.out or Path(folder) / "run", arguments.device)
            else:
                peer = PeerTraining(of_peer, arguments.device, compiled=system == COMPILED)
                trained = peer.train(arguments.seconds)
            done.append(judged(trained, store))
    about, shown = report.about(arguments.device), samples(done, store)
    title = (
        f"{arguments.recipe}, {store.source_language} to {store.target_language}, "
        f"{arguments.seconds:g} seconds of training; beam {BEAM} on {len(store.load_split('test')):,} sentences"
    )
    signatures = "\n".join(f"  {one.name}: {one.signature}" for one in done[0].evaluation.scores)
    report.print_table(f"{title}; {about}\n{signatures}", COLUMNS, map(told, done))
    for sample in shown:
        width = max(map(len, sample))
        print("\n".join(f"{name:>{width}}  {text}" for name, text in sample.items()), end="\n\n")
    settings = {"config": asdict(config), "peer_set": arguments.peer_set}
    told_rows = [as_json(row) for row in done]
    report.write_json(arguments.json, title, about, rows=told_rows, samples=shown, **settings)


if __name__ == "__main__":
    report.run(main)
