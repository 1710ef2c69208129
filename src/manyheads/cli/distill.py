"""The command `distill`."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.bulk import Gpus, Workers
from manyheads.cli.options import AsJson, Device, drop_unset
from manyheads.cli.text_io import configure_output
from manyheads.config import DistillConfig
from manyheads.errors import EXIT_PREEMPTED, RequestError
from manyheads.named_models.resolution import resolve_model

if TYPE_CHECKING:
    from manyheads.distill.plan import DistillationPlan, Stage

ASSIGNMENT = re.compile(r"[a-z]+\.[a-z0-9_]+=.*", re.DOTALL)

TeachersAndChanges = Annotated[
    list[str],
    typer.Argument(
        help="Model folders or names of models, several as an ensemble; and keys of the student's "
        "configuration to change, such as train.steps=2000.",
        metavar="TEACHER... [SECTION.KEY=VALUE...]",
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data", help="The data folder whose training sources the teacher translates.", metavar="DATA"
    ),
]
Out = Annotated[
    Path, typer.Option(help="The run's folder. The same command goes on with a run that was stopped.")
]
Preset = Annotated[
    str, typer.Option(help="The student: a preset, or a TOML file.", metavar="PRESET|FILE.TOML")
]
TeacherBeam = Annotated[int | None, typer.Option(help="Beam size of the teacher; 1 is greedy. Default: 4.")]
NumBest = Annotated[
    int | None,
    typer.Option(help="Hypotheses to choose from; by default one, or the beam with --choose chrf or bleu."),
]
Choose = Annotated[
    str | None,
    typer.Option(
        help="Choose the hypothesis by its score, or by its sentence chrF or BLEU to the reference.",
        metavar="score|chrf|bleu",
    ),
]
MinConfidence = Annotated[
    float | None, typer.Option(help="Drop pairs below this confidence; needs a calibrated teacher.")
]
MinScore = Annotated[
    float | None, typer.Option(help="Drop pairs below this log-probability per token, such as -2.")
]
Monolingual = Annotated[
    list[Path] | None,
    typer.Option(
        "--mono",
        help="Monolingual text of the source language to translate too, one sentence per line; can be "
        "repeated.",
        metavar="FILE",
    ),
]
OriginalShare = Annotated[
    float | None,
    typer.Option(
        help="Share of original pairs in what the student reads, from 0 to 1; monolingual text is not "
        "counted. Default: 0."
    ),
]
VocabSize = Annotated[
    int | None,
    typer.Option(help="Train own subwords of this many pieces; by default the data's are used."),
]
Subwords = Annotated[
    str | None,
    typer.Option(help="A data or model folder whose subwords the student has.", metavar="FOLDER"),
]
TeacherEngine = Annotated[
    str,
    typer.Option("--engine", help="The engine of the teacher, as of `translate`.", metavar="ENGINE"),
]
SpeedSeconds = Annotated[
    float | None, typer.Option(help="About how long each measurement of speed takes. Default: 2.", min=0.01)
]
Until = Annotated[
    str | None,
    typer.Option(
        help="End after this stage; the same command without it goes on, also on another machine.",
        metavar="text|translate|pairs|data|train|quantize",
    ),
]
MeasureAgain = Annotated[
    bool, typer.Option("--measure-again", help="Make the report of a complete run anew, on this machine.")
]


@app.command()
def distill(
    arguments: TeachersAndChanges,
    data: Data,
    out: Out,
    preset: Preset = "student",
    beam: TeacherBeam = None,
    nbest: NumBest = None,
    choose: Choose = None,
    min_confidence: MinConfidence = None,
    min_score: MinScore = None,
    mono: Monolingual = None,
    original_share: OriginalShare = None,
    vocab_size: VocabSize = None,
    subwords: Subwords = None,
    engine: TeacherEngine = "torch",
    device: Device = None,
    gpus: Gpus = None,
    workers: Workers = None,
    speed_seconds: SpeedSeconds = None,
    measure_again: MeasureAgain = False,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Train a small, fast student on the translations of a teacher, quantize it to int8, and measure both.

    Stages: decode the training sources, translate them, choose and filter, prepare the data, train, quantize,
    report. SIGTERM or Ctrl-C stops with exit code 75, and the same command goes on. OUT/model is the student,
    OUT/report.md compares it with the teacher.

    \b
    Example:
      manyheads distill run/model --data data --preset student --out student train.steps=20000
    """
    from manyheads.bulk.run import WorkerOptions
    from manyheads.distill.plan import SPEED_SECONDS, DistillationPlan, build_student_config
    from manyheads.distill.run import distill as run_distillation

    teachers, changes = split_arguments(arguments)
    config = DistillConfig(
        **drop_unset(
            beam=beam, nbest=nbest, choose=choose, min_confidence=min_confidence, min_score=min_score,
            original_share=original_share, vocab_size=vocab_size, subwords=subwords,
        )
    )  # fmt: skip
    configure_output()
    student = build_student_config(preset, teachers[0], out / "data", changes)
    command = describe_command(arguments, data, preset, out, config, mono or [])
    plan = DistillationPlan(
        teachers, data, out, config, student, tuple(mono or ()), engine, device, WorkerOptions(gpus, workers),
        speed_seconds or SPEED_SECONDS, measure_again, command, check_stage(until),
    )  # fmt: skip
    outcome = run_distillation(plan)
    if outcome == "stopped":
        exit_with_error(f"{out}: stopped; the same command goes on", EXIT_PREEMPTED)
    elif outcome == "until":
        print(f"{out}: complete up to the stage {until}; the same command without --until goes on")
    else:
        print_report(plan, as_json)


def check_stage(name: str | None) -> "Stage | None":
    from manyheads.distill.plan import Stage

    if name is None or name in get_args(Stage):
        return cast("Stage | None", name)
    raise RequestError(f"--until is {name!r}, but must be one of {', '.join(get_args(Stage))}")


def split_arguments(arguments: Sequence[str]) -> tuple[tuple[Path, ...], list[str]]:
    """Divide arguments into teachers and assignments of configuration keys."""
    changes = [text for text in arguments if ASSIGNMENT.fullmatch(text) and not Path(text).exists()]
    teachers = tuple(resolve_model(text) for text in arguments if text not in changes)
    if not teachers:
        raise RequestError("no teacher is given: manyheads distill TEACHER --data DATA --out RUN")
    return teachers, changes


def describe_command(
    arguments: Sequence[str], data: Path, preset: str, out: Path, config: DistillConfig, mono: Sequence[Path]
) -> str:
    """Return the command for reports. Of an absolute path the last two parts are enough."""
    paths = {"--data": data, "--preset": Path(preset), "--out": out}
    default = asdict(DistillConfig())
    words = ["manyheads", "distill", *(shorten_path(text) for text in arguments)]
    words += [word for option, path in paths.items() for word in (option, shorten_path(str(path)))]
    for key, value in asdict(config).items():
        if value != default[key]:
            words += [f"--{key.replace('_', '-')}", shorten_path(f"{value}")]
    words += [word for path in mono for word in ("--mono", shorten_path(str(path)))]
    return shlex.join(words)


def shorten_path(text: str) -> str:
    return "/".join(Path(text).parts[-2:]) if Path(text).is_absolute() else text


def print_report(plan: "DistillationPlan", as_json: bool) -> None:
    from manyheads.distill.report import REPORT_MARKDOWN
    from manyheads.train.distilled_card import REPORT_JSON

    if as_json:
        print((plan.run / REPORT_JSON).read_text(encoding="utf-8"), end="")
        return
    print((plan.run / REPORT_MARKDOWN).read_text(encoding="utf-8"))
    print(f"{plan.int8_model}: the student; its card is {plan.int8_model / 'model_card.md'}")
