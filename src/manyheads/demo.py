"""A demonstration of about three minutes on a CPU: corpus, training, translations, scores, attention."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from manyheads import playground
from manyheads.checkpoint import read_model_manifest
from manyheads.config import SPLITS, Config, DataConfig, Recipe, TrainConfig, TransformerConfig
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.errors import DataError, RequestError
from manyheads.evaluate.bleu import Score, greedy_bleu
from manyheads.evaluate.report import exact_match
from manyheads.loading import load
from manyheads.look.attention_data import build_attention_data
from manyheads.look.html import write_page
from manyheads.look.live_page import build_live_data, write_live_page
from manyheads.named_models.resolution import BOX, scan_folder
from manyheads.progress import Progress, ReportProgress
from manyheads.train.run import train
from manyheads.translation import Translation
from manyheads.translator import Translator

SPLIT_SIZES = {"train": 40_000, "valid": 300, "test": 500}
SHOWN_SENTENCES = 10
WORD = re.compile(r"[^\W\d_]+")
BOX_SENTENCE = "The animal didn't cross the street because it was too tired."
OUTSIDE_SENTENCE = "The government raised taxes on imported cars."

CONSTRUCTIONS = playground.CONSTRUCTIONS
VOCAB_SIZE = 2000
WORDS_PER_CLASS = 12  # a small vocabulary, in every construction of the grammar
MODEL = TransformerConfig(
    layers=2, d_model=128, d_ff=512, heads=4, dropout=0.0
)  # more sentences than it can learn by heart
TRAINING = TrainConfig(
    steps=950,
    schedule="linear",
    warmup=150,
    learning_rate=3e-3,
    log_every=50,
    validate_every=190,
    bleu_sentences=50,
    checkpoint_every=95,
    average_checkpoints=2,
    keep_checkpoints=2,
    snapshots=True,
)


@dataclass(frozen=True)
class DemoResult:
    """Translations of held-out sentences, and their scores."""

    model: Path
    rows: list[tuple[str, str, str]]  # source, reference, translation
    exact_match: float
    bleu: Score
    page: Path  # the model in a page, with the attention of every head
    num_words: int  # of the training sources
    outside: Translation  # of a sentence that the grammar does not make


@dataclass(frozen=True)
class BoxedTranslation:
    """A translation by a model that is installed with the package."""

    name: str
    source: str
    text: str
    page: Path  # its attention


def translate_with_box(folder: Path) -> BoxedTranslation | None:
    """Translate a sentence with the first model of the box from English; None if there is none.

    The attention page is written beside the folder of the demo, which must stay empty until it starts.
    """
    for model in scan_folder(BOX, "box"):
        if read_model_manifest(model.folder)["languages"]["source"] == "en":
            translator = load(model.folder, device="cpu", engine="torch")
            text = translator.translate(BOX_SENTENCE).text
            path = folder.with_name(f"{folder.name}-{model.name}.html")
            page = write_attention_page(translator, BOX_SENTENCE, text, path)
            return BoxedTranslation(model.name, BOX_SENTENCE, text, page)
    return None


def run_demo(
    folder: Path, language_pair: str, seconds: float, create_progress: Callable[[], Progress]
) -> DemoResult | None:
    """Prepare, train, and translate held-out sentences. A second call resumes. None: stopped by a signal."""
    with create_progress() as progress:
        store = prepare_data(folder, language_pair, progress)
        progress.message(
            f"{len(store.load_split('train')):,} training pairs, {len(store.load_split('test')):,} held out"
        )
    config = Config(
        model=MODEL,
        data=DataConfig(folder=str(folder / "data"), batch_tokens=2500),
        train=replace(TRAINING, seconds=seconds),
    )
    if train(config, folder / "run", change_config=True, device="cpu") == "stopped":
        return None
    return evaluate_model(store, folder / "run" / "model")


def prepare_data(folder: Path, language_pair: str, progress: Progress) -> Store:
    """Open the data, or prepare it."""
    if (folder / "data").exists():
        store = Store.open(folder / "data")
        if f"{store.source_language}-{store.target_language}" != language_pair:
            raise DataError(
                f"{folder}: holds other languages than {language_pair}; choose another folder with --out"
            )
        return store
    written = {f"{split}.{code}" for split in SPLITS for code in language_pair.split("-")}
    if folder.exists() and {path.name for path in folder.iterdir()} - written:
        raise RequestError(f"{folder}: exists already; choose another folder with --out")
    corpus = playground.generate_corpus(
        language_pair,
        train=SPLIT_SIZES["train"],
        valid=SPLIT_SIZES["valid"],
        test=SPLIT_SIZES["test"],
        seed=1,
        constructions=CONSTRUCTIONS,
        words=WORDS_PER_CLASS,
    )
    return prepare_corpus(folder, language_pair, corpus, VOCAB_SIZE, progress.update)


def prepare_corpus(
    folder: Path,
    language_pair: str,
    corpus: dict[str, list[tuple[str, str]]],
    vocab_size: int,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> Store:
    """Write a generated corpus as plain text, and prepare it into the data folder beside it."""
    write_corpus(folder, language_pair, corpus)
    recipe = make_recipe(folder, language_pair, vocab_size)
    return prepare(recipe, folder / "data", report_progress=report_progress)


def write_corpus(folder: Path, language_pair: str, corpus: dict[str, list[tuple[str, str]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in corpus.items():
        for side, language in enumerate(language_pair.split("-")):
            lines = "".join(f"{sentences[side]}\n" for sentences in pairs)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")


def make_recipe(folder: Path, language_pair: str, vocab_size: int) -> Recipe:
    """Return a recipe for the splits of write_corpus."""
    source, target = language_pair.split("-")
    inputs = {
        split: [{"files": [f"{folder}/{split}.{code}" for code in (source, target)]}] for split in SPLITS
    }
    return Recipe.from_mapping({**inputs, "subwords": {"vocab_size": vocab_size}})


def evaluate_model(store: Store, folder: Path) -> DemoResult:
    sources, references = store.read_text("test")
    translator = load(folder, device="cpu")
    score, translations = greedy_bleu(translator, sources, references)
    rows = list(zip(sources, references, translations, strict=True))
    page = write_live_page(build_live_data(folder), folder.parent.parent / "translator.html")
    training_text = folder.parent.parent / f"train.{store.source_language}"
    num_words = count_words(training_text.read_text(encoding="utf-8").splitlines())
    outside = translator.translate(OUTSIDE_SENTENCE)
    return DemoResult(folder, rows, exact_match(translations, references), score, page, num_words, outside)


def count_words(sentences: Sequence[str]) -> int:
    """Return the number of different words, without case and punctuation."""
    return len({word for sentence in sentences for word in WORD.findall(sentence.lower())})


def write_attention_page(translator: Translator, source: str, translation: str, path: Path) -> Path:
    attention = translator.attention(source, translation)
    return write_page(build_attention_data(attention, source=source, target=translation, name="demo"), path)
