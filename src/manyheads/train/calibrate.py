"""Calibration of a model's confidence on held-out pairs, and on corrupted and off-domain sources."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyheads import checkpoint
from manyheads.confidence.calibration import (
    CHRF_THRESHOLD,
    HELD_OUT,
    ConfidenceParameters,
    Examples,
    fit_calibration,
)
from manyheads.confidence.corruption import (
    CORRUPTIONS,
    corrupt_sources,
    list_foreign_sentences,
    make_letter_strings,
    make_piece_salad,
)
from manyheads.confidence.features import FeatureExtractor, PieceTable
from manyheads.confidence.ragged import Floats
from manyheads.confidence.source_model import SourceModel, sample_sentences
from manyheads.data.store import Store
from manyheads.errors import DataError
from manyheads.evaluate.bleu import sentence_chrf
from manyheads.loading import load
from manyheads.pipeline.jobs import SentenceJob
from manyheads.progress import ReportProgress
from manyheads.translator import Translator

MAX_PAIRS = 1000  # held-out pairs
CORRUPTED_SHARE = 0.125  # of the held-out pairs, of each corruption
NUM_RANDOM = 20  # sentences of random letters, and of random pieces
MIN_PAIRS = 30  # fewer are not enough to calibrate with
MAX_SOURCE_TOKENS = 2_000_000  # of the training sources, for the source model
SEED = 1
NOT_ADEQUATE = ("shuffled",)  # whatever comes of it: the source says nothing


@dataclass(frozen=True)
class LabeledSource:
    """A source to translate. Without a reference no translation of it is adequate."""

    text: str
    reference: str | None
    group: str


def calibrate(
    translator: Translator,
    store: Store,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> ConfidenceParameters:
    """Translate labeled sources with the model's own decoding, and fit the confidence."""
    sources = collect_sources(store, translator.max_length)
    sentences, outputs = translate_sentences(translator, [source.text for source in sources], report_progress)
    kept = [n for n, sentence in enumerate(sentences) if sentence is not None]
    sources, decoded = [sources[n] for n in kept], [sentence for sentence in sentences if sentence]
    labels = label_outputs(sources, [outputs[n] for n in kept])
    split = store.load_split("train")
    ratio = float(np.log(split.target.offsets[-1] / split.source.offsets[-1]))
    sample = sample_sentences(split.source.tokens, split.source.offsets, MAX_SOURCE_TOKENS)
    source_model = SourceModel.train(sample, len(store.subwords.source))
    extractor = FeatureExtractor(
        source_model,
        PieceTable.of(store.subwords.source, store.source_language),
        PieceTable.of(store.subwords.target, store.target_language),
        ratio,
    )
    features = extractor.compute(
        [sentence.request.source for sentence in decoded],
        [sentence.hypotheses[0].tokens for sentence in decoded],
        [sentence.hypotheses[0].log_probability for sentence in decoded],
    )
    examples = Examples(features, labels, np.array([source.group for source in sources]))
    return fit_calibration(examples, source_model, ratio)


def calibrate_model(
    folder: Path, data: Path, device: str | None, report_progress: ReportProgress
) -> dict[str, float]:
    """Calibrate a model folder with the data that it was trained on. Return the measures."""
    store = Store.open(data)
    store.verify_once()
    checkpoint.check_subwords(folder, store.subwords)
    calibration = calibrate(load(folder, device=device), store, report_progress)
    checkpoint.write_confidence(folder, calibration.to_bytes())
    return calibration.measures


def collect_sources(store: Store, max_length: int) -> list[LabeledSource]:
    """Return held-out sources, corrupted ones and off-domain ones."""
    if "valid" not in store.splits:
        raise DataError(f"{store.folder}: no split valid, which a model is calibrated on")
    sources, references = store.read_text("valid")
    lengths = store.load_split("valid").source.lengths
    usable = [n for n, length in enumerate(lengths.tolist()) if length <= max_length and sources[n].strip()]
    usable = [usable[n] for n in np.linspace(0, len(usable) - 1, min(MAX_PAIRS, len(usable))).astype(int)]
    if len(usable) < MIN_PAIRS:
        raise DataError(
            f"{store.folder}: {len(usable)} validation pairs with text of at most {max_length} tokens, but a "
            f"model is calibrated on {MIN_PAIRS} or more"
        )
    texts = [sources[n] for n in usable]
    labeled = [LabeledSource(sources[n], references[n], HELD_OUT) for n in usable]
    for corruption in CORRUPTIONS:
        for n, text in corrupt_sources(texts, corruption, int(CORRUPTED_SHARE * len(texts)), SEED):
            reference = None if corruption in NOT_ADEQUATE else references[usable[n]]
            labeled.append(LabeledSource(text, reference, corruption))
    off_domain = [
        *list_foreign_sentences(store.source_language),
        *make_letter_strings(NUM_RANDOM, SEED),
        *make_piece_salad(store.subwords.source.pieces, NUM_RANDOM, SEED),
    ]
    return labeled + [LabeledSource(text, None, "off-domain") for text in off_domain]


def translate_sentences(
    translator: Translator, texts: Sequence[str], report_progress: ReportProgress
) -> tuple[list[SentenceJob | None], list[str]]:
    """Return each text's decoded sentence and its translation; None for a text that is not one sentence.

    A sentence that was repaired is several.
    """
    options, preparer, assembler = translator.create_stages(split=False, scores="total", nbest=1)
    with warnings.catch_warnings():  # about long words, which corrupted sources have
        warnings.simplefilter("ignore")
        jobs = preparer.prepare(texts)
    sentences = [sentence for job in jobs for sentence in job.sentences]
    while sentences:
        requests = [sentence.request for sentence in sentences]
        decoded = translator.engine.decode(requests, options.config, scores=options.scores)
        for num_done, (index, hypotheses) in enumerate(decoded, 1):
            sentences[index].hypotheses = hypotheses
            report_progress("calibrating", num_done, len(sentences))
        sentences = assembler.detokenize(sentences)
    outputs = [assembler.assemble(job).text for job in jobs]
    whole = [job.sentences[0] if len(job.sentences) == 1 else None for job in jobs]
    return [sentence if sentence and sentence.repair is None else None for sentence in whole], outputs


def label_outputs(sources: Sequence[LabeledSource], outputs: Sequence[str]) -> Floats:
    """Return 1 for each translation that is adequate: chrF without case, which is not to be judged here."""
    labels = np.zeros(len(sources))
    for n, (source, output) in enumerate(zip(sources, outputs, strict=True)):
        if source.reference is not None:
            labels[n] = sentence_chrf(output.lower(), source.reference.lower()) >= CHRF_THRESHOLD
    return labels
