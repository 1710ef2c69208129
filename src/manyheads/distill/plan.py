"""What a distillation does: its inputs, its settings, and the folders of its stages."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from manyheads import checkpoint
from manyheads.bulk.model_files import hash_model, read_languages
from manyheads.bulk.run import WorkerOptions
from manyheads.config import Config, DistillConfig
from manyheads.data.augmentation import check_copy_symbols
from manyheads.data.store import Store
from manyheads.errors import DataError, RequestError
from manyheads.presets import get_preset
from manyheads.text.subwords import SubwordPair

Stage = Literal["text", "translate", "pairs", "data", "train", "quantize"]  # after which a call may end
SPEED_SECONDS = 2.0  # of each measurement of words per second
PAIR_SETTINGS = tuple(f"distill.{key}" for key in ("choose", "min_confidence", "min_score", "original_share"))


@dataclass(frozen=True)
class DistillationPlan:
    """Teachers, data and settings. What is in `settings` decides the result; the rest does not."""

    teachers: tuple[Path, ...]
    data: Path
    run: Path
    config: DistillConfig
    student: Config
    monolingual: tuple[Path, ...] = ()
    engine: str = "torch"  # of the teacher
    device: str | None = None
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    speed_seconds: float = SPEED_SECONDS
    measures_again: bool = False
    command: str = ""
    until: Stage | None = None  # the last stage of this call

    @property
    def text_folder(self) -> Path:
        """Shards of sources, and of references where they are needed."""
        return self.run / "text"

    @property
    def translation_folder(self) -> Path:
        """The n-best lists of every shard of sources."""
        return self.run / "translations"

    @property
    def pair_folder(self) -> Path:
        """What the student learns from, as text."""
        return self.run / "pairs"

    @property
    def data_folder(self) -> Path:
        return self.run / "data"

    @property
    def student_run(self) -> Path:
        return self.run / "student"

    @property
    def student_model(self) -> Path:
        """The student before it is quantized."""
        return self.student_run / "model"

    @property
    def int8_model(self) -> Path:
        return self.run / "model"

    @cached_property
    def store(self) -> Store:
        return Store.open(self.data)

    @property
    def subword_folder(self) -> Path:
        """Where the student's subwords are, unless it has new ones."""
        return Path(self.config.subwords or self.data)

    @property
    def needs_references(self) -> bool:
        return self.config.choose != "score" or self.config.original_share > 0

    def check(self) -> None:
        """Refuse what would fail in a later stage."""
        for teacher in self.teachers:
            checkpoint.read_model_manifest(teacher)  # a conversion to CTranslate2 has none
        pair = (self.store.source_language, self.store.target_language)
        for teacher in self.teachers:
            if read_languages(teacher) != pair:
                raise RequestError(
                    f"{teacher}: translates {' to '.join(read_languages(teacher))}, but the data is "
                    f"{' to '.join(pair)}"
                )
        is_calibrated = len(self.teachers) == 1 and (self.teachers[0] / checkpoint.CONFIDENCE).exists()
        if self.config.min_confidence is not None and not is_calibrated:
            raise RequestError(
                f"--min-confidence is {self.config.min_confidence:g}, but needs one calibrated teacher: run "
                f"manyheads calibrate, or filter by --min-score"
            )
        self.check_subwords()
        for path in self.monolingual:
            if not path.is_file():
                raise DataError(f"{path}: not a file, but --mono is a file of sentences, one per line")

    def check_subwords(self) -> None:
        """Refuse subwords without copy symbols if the student's augmentation needs them."""
        if self.config.vocab_size is not None:
            return
        subwords = SubwordPair.load(self.subword_folder)
        if self.student.augmentation.copied > 0:
            check_copy_symbols(subwords)

    def list_settings(self) -> dict[str, Any]:
        """Return what decides the result, by the names that the user knows.

        The folder of the student's data is none of it: a run may be moved, or called from another folder.
        """
        student = {
            f"{table}.{key}": value
            for table, keys in asdict(self.student).items()
            for key, value in keys.items()
        }
        return {
            "teachers": [hash_model(teacher) for teacher in self.teachers],
            "--data": self.store.sha256,
            "--mono": [[path.name, path.stat().st_size] for path in self.monolingual],
            "--engine": self.engine,
            "references needed": self.needs_references,
            "hypotheses per sentence": self.config.num_hypotheses,
            **{f"distill.{key}": value for key, value in asdict(self.config).items()},
            "distill.subwords": self.hash_subwords(),
            **{key: value for key, value in student.items() if key != "data.folder"},
        }

    def hash_subwords(self) -> list[str] | None:
        """Return what identifies the subwords of another folder, which may be moved."""
        if self.config.subwords is None:
            return None
        subwords = SubwordPair.load(self.subword_folder)
        return [part.sha256 for part in (*subwords.files.values(), subwords.casing) if part is not None]

    def is_fixed(self, key: str) -> bool:
        """Return whether a setting decided what is written already. Until then it may change.

        `train.micro_tokens`, which divides a step into parts that fit into memory, may change in training.
        """
        if key == "train.micro_tokens":
            return self.int8_model.exists()
        if key in PAIR_SETTINGS:
            return self.pair_folder.exists()
        if key in ("distill.vocab_size", "distill.subwords"):
            return self.data_folder.exists()
        if key.partition(".")[0] in vars(self.student):
            return bool(checkpoint.list_checkpoints(self.student_run))
        return True


def build_student_config(
    preset: str, teacher: Path, data_folder: Path, changes: Sequence[str] = ()
) -> Config:
    """Return the configuration of a student: a preset or a TOML file, with changes.

    If it has no augmentation, the student gets the teacher's: it must handle the same input. The model card
    is written when the model is quantized.
    """
    config = Config.load(preset) if preset.endswith(".toml") else get_preset(preset)
    if not config.augmentation.rates and (teacher / checkpoint.MANIFEST).exists():
        manifest = checkpoint.read_model_manifest(teacher)
        config = replace(config, augmentation=Config.from_mapping(manifest["config"]).augmentation)
    config = config.override(changes)
    data = replace(config.data, folder=str(data_folder))
    return replace(config, data=data, train=replace(config.train, card=False))
