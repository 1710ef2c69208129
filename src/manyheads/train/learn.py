"""`manyheads learn`: an adapter from the corrections of a model, refused if general quality falls.

Corrections are few, so that a minute on a CPU suffices. Each batch has corrections and general text (replay).
The adapter is then measured on held-out general text. If BLEU falls by more than `max_loss`, it is tried at
half and a quarter of its strength, and refused if that does not help.
"""

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.checkpoint.adapters import SPACE_KEY, Adapter, parse_adapter
from manyheads.config import CorpusConfig, InputConfig
from manyheads.data.pair_folder import write_pair_folder
from manyheads.data.store import Store
from manyheads.errors import DataError, ManyheadsError, RequestError
from manyheads.evaluate.bleu import Score, bleu
from manyheads.evaluate.report import exact_match, translate_texts
from manyheads.loading import load
from manyheads.memory.database import DEFAULT_SPACE
from manyheads.progress import ReportProgress
from manyheads.text.corpus import SentencePair, read_pairs
from manyheads.train.adapt import AdaptationOptions, create_config
from manyheads.train.contradictions import TextPair, WrongWord, find_wrong_words, list_words
from manyheads.train.final_model import ADAPTER_FILE
from manyheads.train.run import train
from manyheads.translator import Translator

MAX_LOSS = 0.2  # BLEU that general text may lose
DEFAULT_SECONDS = 45.0  # of training
HELD_OUT_SENTENCES = 500  # of general text
REPLAYED_PAIRS = 20_000  # of general text, at most
CORRECTION_TOKENS, REPLAY_SHARE = 400, 0.75  # in a batch: tokens of corrections, and the share of other text
STEPS, VALIDATIONS = 200, 4
STRENGTHS = (1.0, 0.5, 0.25)


class AdapterRefused(ManyheadsError):
    """What was learned from corrections costs too much elsewhere. Nothing was changed."""

    exit_code = 3


@dataclass(frozen=True)
class LearningOptions:
    """What is requested."""

    space: str = DEFAULT_SPACE
    adapter: str | None = None  # its name; None: by the space
    general: Sequence[Path] = ()  # a data folder, or files; empty: the data that the model was trained on
    seconds: float = DEFAULT_SECONDS
    sentences: int = HELD_OUT_SENTENCES
    max_loss: float = MAX_LOSS
    changes: Sequence[str] = ()  # of the configuration of the run

    @property
    def adapter_name(self) -> str:
        if self.adapter is not None:
            return self.adapter
        return "corrections" if self.space == DEFAULT_SPACE else f"corrections-{self.space}"


@dataclass(frozen=True)
class LearningReport:
    """What was learned, and what it costs."""

    model: str
    adapter: str  # its file
    space: str
    num_corrections: int
    reproduced_before: float  # share of the corrections that the model itself writes, without the memory
    reproduced_after: float
    num_held_out: int
    bleu_before: Score
    bleu_after: Score
    num_contradicted: int  # pairs of general text that have the corrected error, and are not replayed
    num_repaired: int  # of them, which were corrected and learned
    wrong_words: list[str]  # by which they are recognized
    strength: float
    step: int  # that the adapter was taken from
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def format(self) -> str:
        change = self.bleu_after.value - self.bleu_before.value
        lines = [
            f"{self.adapter}: learned from {self.num_corrections:,} corrections in {self.seconds:.0f} s, "
            f"{self.step} steps",
            f"corrections that the model itself writes: {self.reproduced_before:.0%} before, "
            f"{self.reproduced_after:.0%} after",
            f"general text, {self.num_held_out:,} held-out sentences: BLEU {self.bleu_before.value:.2f} "
            f"before, {self.bleu_after.value:.2f} after ({change:+.2f}; {self.bleu_after.signature})",
        ]
        if self.num_contradicted:
            lines.append(
                f"not replayed: {self.num_contradicted:,} general pairs that have the corrected errors, "
                f"{self.num_repaired:,} of them repaired and learned ({'; '.join(self.wrong_words)})"
            )
        if self.strength < 1:
            lines.append(f"strength {self.strength:g}: more of it would cost too much on general text")
        return "\n".join(lines)


@dataclass(frozen=True)
class GeneralText:
    """Text that the model must not forget: pairs to replay, and pairs to measure it with."""

    replayed: list[TextPair]
    held_out: list[TextPair]
    wrong_words: tuple[WrongWord, ...] = ()
    repaired: tuple[TextPair, ...] = ()
    num_contradicted: int = 0


def learn(
    model: Path,
    options: LearningOptions | None = None,
    *,
    device: str | None = None,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> LearningReport:
    """Learn an adapter from the corrections of a space, and install it. Raises AdapterRefused."""
    options, start = options or LearningOptions(), time.monotonic()
    path = checkpoint.adapter_path(model, options.adapter_name)
    translator = load(model, device=device, engine="torch")
    max_length = checkpoint.read_info(model).config.data.max_length
    corrections = list_training_pairs(translator, options.space, max_length)
    outputs = translate_plain(translator, corrections, report_progress, "translating corrections")
    general = leave_out_contradicted(read_general(model, options), corrections, outputs)
    with tempfile.TemporaryDirectory(prefix="manyheads-learn-") as folder:
        adapter = train_adapter(model, Path(folder), translator, corrections, general, options, device)
    adapter = replace(adapter, name=options.adapter_name, info={**adapter.info, SPACE_KEY: options.space})
    strength, learned, scores = choose_strength(translator, adapter, general, options, report_progress)
    after = translate_plain(learned, corrections, report_progress, "translating corrections")
    checkpoint.write_adapter(path, scale_adapter(adapter, strength))
    checkpoint.read_adapter(model, options.adapter_name)
    targets = [target for _, target in corrections]
    return LearningReport(
        str(model), str(path), options.space, len(corrections), exact_match(outputs, targets),
        exact_match(after, targets), len(general.held_out), *scores, general.num_contradicted,
        len(general.repaired), [*map(str, general.wrong_words)], strength, adapter.info["step"],
        time.monotonic() - start,
    )  # fmt: skip


def list_training_pairs(translator: Translator, space: str, max_length: int) -> list[TextPair]:
    """Return the corrections in force that the model can be trained on, sentence by sentence."""
    memory = translator.memory
    index = memory.get_index(space) if memory is not None else None
    if index is None or memory is None:
        raise RequestError(f"there are no corrections in the space {space}: manyheads correct adds some")
    subwords = translator.subwords
    pairs = [
        (entry.source, entry.target)
        for entry in index.entries.values()
        if "\n" not in entry.source
        and len(subwords.source.encode(entry.source)) < max_length
        and len(subwords.target.encode(entry.target)) < max_length
    ]
    if not pairs:
        raise DataError(
            f"every correction of the space {space} is longer than the {max_length} tokens of the model's "
            f"sentences: correct sentences instead of texts"
        )
    return pairs


def translate_plain(
    translator: Translator, pairs: Sequence[TextPair], report_progress: ReportProgress, stage: str
) -> list[str]:
    """Return what the model itself makes of the sources."""
    results = translate_texts(translator, [source for source, _ in pairs], report_progress, stage, {})
    return [result.text for result in results]


# ---- general text


def read_general(model: Path, options: LearningOptions) -> GeneralText:
    """Read general text: of a data folder, of files, or of the data that the model was trained on."""
    info = checkpoint.read_info(model)
    if options.general and not (len(options.general) == 1 and options.general[0].is_dir()):
        return read_general_files(options, info.languages)
    folder = options.general[0] if options.general else Path(info.config.data.folder)
    try:
        store = Store.open(folder)
    except DataError:
        if options.general:
            raise
        raise RequestError(
            f"the data that the model was trained on is not at {folder}, and what it must not forget has to "
            f"be measured: give --general, a data folder, or twice a file of general text"
        ) from None
    split = next((name for name in ("test", "valid") if name in store.splits), None)
    if split is None:
        raise DataError(f"{folder}: has no test or validation set to measure general quality with")
    held_out = list(zip(*store.read_text(split), strict=True))[: options.sentences]
    return GeneralText(sample_pairs(store, REPLAYED_PAIRS), held_out)


def sample_pairs(store: Store, count: int) -> list[TextPair]:
    """Return the texts of some training pairs, always the same."""
    split, subwords = store.load_split("train"), store.subwords
    numbers = sorted(random.Random(0).sample(range(len(split)), min(count, len(split))))
    sides = [
        tokenizer.decode_sentences([side[number][:-1].tolist() for number in numbers])
        for side, tokenizer in ((split.source, subwords.source), (split.target, subwords.target))
    ]
    return list(zip(*sides, strict=True))


def read_general_files(options: LearningOptions, languages: dict[str, str]) -> GeneralText:
    """Read pairs of files. A part of them, at most half, is held out."""
    corpus = CorpusConfig(source=languages["source"], target=languages["target"])
    files = InputConfig(files=tuple(map(str, options.general)))
    pairs = [
        (pair.source, pair.target) for pair in read_pairs(files, corpus) if isinstance(pair, SentencePair)
    ]
    if len(pairs) < 2:
        raise DataError(f"{options.general[0]}: holds {len(pairs)} pairs, but general text needs more")
    random.Random(0).shuffle(pairs)
    num_held_out = min(options.sentences, len(pairs) // 2)
    return GeneralText(pairs[num_held_out:][:REPLAYED_PAIRS], pairs[:num_held_out])


def leave_out_contradicted(
    general: GeneralText, corrections: Sequence[TextPair], outputs: Sequence[str]
) -> GeneralText:
    """Leave pairs out that have the corrected errors, and repair those that certainly do."""
    wrong_words = find_wrong_words(corrections, outputs, general.replayed)
    certain = [word for word in wrong_words if word.is_certain]
    contradicted = [pair for pair in general.replayed if any(word.is_in(pair) for word in wrong_words)]
    repairs = [word.repair(pair) for pair in contradicted for word in certain if word.is_in(pair)]
    left_out = set(contradicted)
    replayed = [pair for pair in general.replayed if pair not in left_out]
    concerned = {word.source for word in certain}
    held_out = [pair for pair in general.held_out if not list_words(pair[0]) & concerned]
    if not replayed or not held_out:
        raise DataError("no general text is left beside that which has the corrected errors: give --general")
    repaired = tuple(pair for pair in repairs if pair is not None)
    return GeneralText(replayed, held_out, tuple(wrong_words), repaired, len(contradicted))


# ---- training


def train_adapter(
    model: Path,
    folder: Path,
    translator: Translator,
    corrections: list[TextPair],
    general: GeneralText,
    options: LearningOptions,
    device: str | None,
) -> Adapter:
    """Train an adapter in a folder that is deleted afterwards."""
    info = checkpoint.read_info(model)
    subwords = translator.subwords
    lengths = [len(ids) for ids in subwords.target.encode_sentences([target for _, target in corrections])]
    repeated = corrections * max(1, round(CORRECTION_TOKENS / sum(lengths)))
    new = {"train": [*repeated, *general.repaired[: len(repeated)]], "valid": corrections}
    write_pair_folder(folder / "corrections", subwords, info.languages, new, "corrections")
    other = {"train": general.replayed}
    write_pair_folder(folder / "general", subwords, info.languages, other, "general text")
    settings = AdaptationOptions(folder / "general", REPLAY_SHARE, options.adapter_name)
    batch_tokens = min(round(CORRECTION_TOKENS / (1 - REPLAY_SHARE)), info.config.data.batch_tokens)
    changes = {
        "data.batch_tokens": batch_tokens,
        "train.steps": STEPS,
        "train.schedule": "linear",
        "train.seconds": options.seconds,
        "train.validate_every": STEPS // VALIDATIONS,
        "train.checkpoint_every": STEPS,
        "train.patience": VALIDATIONS,
        "train.bleu_sentences": 0,
        "train.warmup": STEPS // 10,
        "train.calibrate": "false",
    }
    assignments = [*(f"{key}={value}" for key, value in changes.items()), *options.changes]
    config = create_config(info, Store.open(folder / "corrections"), settings, assignments)
    if train(config, folder / "run", device=device) == "stopped":
        raise RequestError("stopped: nothing was learned")
    adapter = parse_adapter(folder / "run" / ADAPTER_FILE, options.adapter_name)
    calibration = model / checkpoint.CONFIDENCE
    return replace(adapter, confidence=calibration.read_bytes() if calibration.exists() else None)


def choose_strength(
    translator: Translator,
    adapter: Adapter,
    general: GeneralText,
    options: LearningOptions,
    report_progress: ReportProgress,
) -> tuple[float, Translator, tuple[Score, Score]]:
    """Return the largest strength at which general text loses no more than it may, with its scores."""
    references = [target for _, target in general.held_out]

    def measure(model: Translator, stage: str) -> Score:
        return bleu(
            translate_plain(model, general.held_out, report_progress, stage),
            references,
            model.target_language,
        )

    engine: Any = translator.engine
    before = measure(translator, "translating general text")
    for strength in STRENGTHS:
        adapted = translator.with_engine(
            engine.with_adapter(scale_adapter(adapter, strength)), None, adapter.name
        )
        after = measure(adapted, f"translating general text, strength {strength:g}")
        if before.value - after.value <= options.max_loss:
            return strength, adapted, (before, after)
    raise AdapterRefused(
        f"the adapter is refused: BLEU on {len(references):,} held-out sentences of general text falls from "
        f"{before.value:.2f} to {after.value:.2f}, but at most {options.max_loss:g} may be lost. Correct "
        f"more sentences, or give more general text with --general"
    )


def scale_adapter(adapter: Adapter, strength: float) -> Adapter:
    if strength == 1:
        return adapter
    factors = {name: (a_rD, strength * b_Fr) for name, (a_rD, b_Fr) in adapter.factors.items()}
    return replace(adapter, factors=factors)
