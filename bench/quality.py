"""Translation quality after a short training: a recipe of runs/ trained for some seconds; ours and peers.

    python bench/quality.py multi30k --data multi30k/data --seconds 60 --peer --json result.json
    python bench/quality.py multi30k --data multi30k/data --seconds 60 --only "PyTorch without padding" \
        --test multi30k/test_2017_flickr.en multi30k/test_2017_flickr.de
    python bench/quality.py koen --data koen/data --seconds 150 --set train.warmup=1000 --out koen-run

Ours is `manyheads train` and `manyheads evaluate`: the recipe with the given seconds, then the test set of
the data folder with a beam of 4. The peer is MarianMTModel of the same sizes trained from scratch in a plain
loop: the same batches, padded, with one forward pass whatever train.r_drop is, bfloat16 products and fused
Adam, the recipe's schedule, which ends with its time, and no validation. Its model is the mean of 5
checkpoints from the last fifth of its time or the last one, whichever has the lower loss on valid. It is
always post-norm; `--peer-set` overrides its settings. On a GPU it is measured eager and compiled (on a CPU by
`--only`). Seconds are those of training: ours include compiling kernels, the first subword segmentations,
validations and checkpoints; the peer is compiled and warmed up before. All three, 60 seconds each, take about
five minutes on an H200. "PyTorch without padding" has the whole recipe, R-Drop included, and a warm-up of the
same share of its own steps (bench/packed_training.py); it is run only if --only names it. With --test another
test set is measured too, and stands first: one that no setting was chosen on. Each recipe states how to
prepare its data; Marian needs `pip install '.[huggingface]'`.
"""

import argparse
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.data.store import Store
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.report import Evaluation, evaluate
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.run import train
from manyheads.train.train_state import read_progress
from packed_training import PACKED, PackedTraining
from peer_training import COMPILED, PEER, PeerTraining, TrainedSystem, compute_valid_loss

OURS = "manyheads"
RUNS = Path(__file__).parents[1] / "runs"
BEAM = 4
NUM_EXAMPLES = 5  # translations


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
    valid_loss: float | None  # per subword, unsmoothed
    evaluation: Evaluation  # of the test set of the data folder
    other: Evaluation | None = None  # of --test


# ---- ours


def train_ours(config: mh.Config, run: Path, device: str) -> TrainedSystem:
    start = time.perf_counter()
    if train(config, run, device=device) == "stopped":
        raise KeyboardInterrupt  # an interrupted run has no result
    wall = time.perf_counter() - start
    lines = read_log(run / LOG_FILE)
    batches = [line["tokens"] for line in lines if line["event"] == "train"]  # those that are logged
    end = next(line for line in lines if line["event"] == "end")
    progress = read_progress(checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]))
    return TrainedSystem(
        OURS,
        mh.load(run / "model", device=device),
        progress.seconds,
        wall,
        progress.step,
        round(progress.step * sum(batches) / len(batches)),
        end["model"],
    )


# ---- evaluation


Texts = tuple[list[str], list[str]]


def evaluate_system(trained: TrainedSystem, store: Store, other: Texts | None = None) -> Row:
    sources, references = store.read_text("test")
    report.log(f"{trained.system}: {trained.steps:,} steps in {trained.seconds:.1f} s; now translating")
    return Row(
        trained.system,
        trained.seconds,
        trained.wall_seconds,
        trained.steps,
        trained.tokens / trained.seconds,
        trained.model,
        trained.compiled,
        compute_valid_loss(trained.translator, store),
        evaluate_texts(trained.translator, sources, references),
        evaluate_texts(trained.translator, *other) if other else None,
    )


def evaluate_texts(translator: mh.Translator, sources: list[str], references: list[str]) -> Evaluation:
    return evaluate(translator, sources, [references], bootstrap_samples=1000, num_worst=0, beam=BEAM)


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


COLUMNS = (
    "system",
    "seconds",
    "steps",
    "tokens/s",
    "valid loss",
    "BLEU of --test",
    "BLEU",
    "chrF",
    "paper's BLEU",
    "model",
)


def format_row(row: Row) -> tuple[str, ...]:
    return (
        row.system,
        f"{row.seconds:.1f}",
        f"{row.steps:,}",
        f"{row.tokens_per_second:,.0f}",
        "" if row.valid_loss is None else f"{row.valid_loss:.3f}",
        format_bleu(row.other),
        format_bleu(row.evaluation),
        *(f"{score.value:.2f}" for score in row.evaluation.scores[1:]),
        row.model + (f"; {row.compiled} programs compiled during training" if row.compiled else ""),
    )


def format_bleu(evaluation: Evaluation | None) -> str:
    """Format BLEU with the margin of a bootstrap over sentences."""
    if evaluation is None:
        return ""
    score = evaluation.scores[0]
    return f"{score.value:.2f}" + ("" if score.margin_of_error is None else f" ± {score.margin_of_error:.2f}")


def to_json(row: Row) -> dict[str, Any]:
    numbers = {key: value for key, value in asdict(row).items() if key not in ("evaluation", "other")}
    evaluation = row.evaluation
    scores = [asdict(score) for score in evaluation.scores]
    return numbers | {
        "scores": scores,
        "other_scores": [asdict(score) for score in row.other.scores] if row.other else None,
        "test_perplexity": evaluation.perplexity,
        "length_ratio": evaluation.length_ratio,
        "engine": evaluation.engine,
    }


def select_examples(rows: list[Row], store: Store) -> list[dict[str, str]]:
    """Return the first sentences of the test set with the translation of each system."""
    sources, references = store.read_text("test")
    return [
        {"source": sources[index], "reference": references[index]}
        | {row.system: row.evaluation.translations[index] for row in rows}
        for index in range(min(NUM_EXAMPLES, len(sources)))
    ]


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("recipe", help="a name under runs/, or a TOML file")
    parser.add_argument("--data", type=Path, required=True, help="a folder made by `manyheads prepare`")
    parser.add_argument("--seconds", type=float, required=True, help="training time of each system")
    parser.add_argument("--peer", action="store_true", help="Hugging Face Marian as well")
    report.add_only_argument(parser)
    for flag, systems in (("--set", "all systems"), ("--peer-set", "the peer only")):
        parser.add_argument(
            flag,
            action="append",
            default=[],
            metavar="SECTION.KEY=VALUE",
            help=f"override a key for {systems}",
        )
    parser.add_argument(
        "--test", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"), help="another test set, reported first"
    )
    parser.add_argument("--out", type=Path, help="keep our run in this folder")
    arguments = parser.parse_args()
    arguments.systems = select_systems(arguments)
    if arguments.out and arguments.out.exists():
        parser.error(f"--out {arguments.out}: already exists, and would be resumed: choose another folder")
    if arguments.out and OURS not in arguments.systems:
        parser.error(f"--out {arguments.out}: keeps our run, which is not selected: omit it")
    if arguments.peer_set and arguments.systems == [OURS]:
        parser.error(f"--peer-set {' '.join(arguments.peer_set)}: no peer is selected: add --peer")
    return arguments


def select_systems(arguments: argparse.Namespace) -> list[str]:
    """Return the selected systems; on a CPU the compiled peer only if --only names it."""
    if not (arguments.peer or arguments.only):
        return [OURS]
    available = [OURS, PEER, *([COMPILED] if arguments.device == "cuda" or arguments.only else [])]
    available += [PACKED] if arguments.only else []
    selected = report.select_systems(available, arguments.only)
    if {PEER, COMPILED} & {*selected} and not report.get_version("transformers"):
        raise RequestError("the peer needs transformers: pip install '.[huggingface]'")
    return selected


def load_recipe(arguments: argparse.Namespace) -> mh.Config:
    path = Path(arguments.recipe)
    if path.suffix != ".toml":
        path = RUNS / f"{arguments.recipe}.toml"
        if not path.exists():
            names = ", ".join(sorted(path.stem for path in RUNS.glob("*.toml")))
            raise ConfigError(f"{arguments.recipe}: not a recipe of runs/ ({names}), and not a TOML file")
    reserved = {"data.folder": "--data", "train.seconds": "--seconds"}
    for change in [*arguments.set, *arguments.peer_set]:
        if option := reserved.get(change.partition("=")[0].strip()):
            raise ConfigError(f"{change}: is set by {option}, for all systems")
    overrides = [f'data.folder="{arguments.data}"', f"train.seconds={arguments.seconds}"]
    return mh.Config.load(path).override([*overrides, *arguments.set])


def main() -> None:
    arguments = parse_arguments()
    config = load_recipe(arguments)
    peer_config = config.override(["model.norm=post", *arguments.peer_set])  # Marian supports no other
    store = Store.open(config.data.folder)
    other = (read_lines(arguments.test[0]), read_lines(arguments.test[1])) if arguments.test else None
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for system in arguments.systems:
            if system == OURS:
                trained = train_ours(config, arguments.out or Path(folder) / "run", arguments.device)
            elif system == PACKED:
                trained = PackedTraining(peer_config, arguments.device).train(arguments.seconds)
            else:
                peer = PeerTraining(peer_config, arguments.device, compiled=system == COMPILED)
                trained = peer.train(arguments.seconds)
            rows.append(evaluate_system(trained, store, other))
    environment, examples = report.measure_environment(arguments.device), select_examples(rows, store)
    title = (
        f"{arguments.recipe}, {store.source_language} to {store.target_language}, "
        f"{arguments.seconds:g} seconds of training; beam {BEAM} on "
        f"{len(store.load_split('test')):,} sentences"
    )
    signatures = "\n".join(f"  {score.name}: {score.signature}" for score in rows[0].evaluation.scores)
    report.print_table(f"{title}; {environment}\n{signatures}", COLUMNS, map(format_row, rows))
    for sample in examples:
        width = max(map(len, sample))
        print("\n".join(f"{name:>{width}}  {text}" for name, text in sample.items()), end="\n\n")
    settings = {"config": asdict(config), "peer_set": arguments.peer_set}
    json_rows = [to_json(row) for row in rows]
    report.write_json(arguments.json, title, environment, rows=json_rows, examples=examples, **settings)


if __name__ == "__main__":
    report.run_main(main)
