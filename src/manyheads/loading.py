"""Opening a model folder: its weights, its subwords, and the engine that runs it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.checkpoint.arrays import parse_arrays, read_arrays
from manyheads.checkpoint.manifest import parse_info
from manyheads.checkpoint.shortlist import read_shortlist
from manyheads.confidence.calibration import ConfidenceParameters
from manyheads.cuda.driver import count_gpus, start_context_creation
from manyheads.errors import CheckpointError, ConfigError, RequestError, ResourceError
from manyheads.export.ctranslate2 import UnwritableConversionError, check_convertible, ensure_converted
from manyheads.inference.conversion import CONVERSION_MANIFEST, read_conversion_info
from manyheads.inference.ctranslate2_engine import CTranslate2Engine
from manyheads.inference.engine import Engine
from manyheads.memory.translation_memory import TranslationMemory
from manyheads.named_models.resolution import has_name, resolve_model
from manyheads.text.subwords import SubwordPair
from manyheads.translator import Translator

Folder = str | os.PathLike[str]
MAX_ADAPTERS = 8  # of a translator that stay merged: each has its own linear layers
TORCH_PRECISIONS = ("", "auto", "float32", "bfloat16", "int8")


def load(
    folder: Folder,
    *others: Folder,
    device: str | None = None,
    engine: str | None = None,
    threads: int | None = None,
    adapter: str | None = None,
) -> Translator:
    """Return the translator of a model folder; of several folders, their ensemble.

    A folder is given by its path, or by the name of a model that `manyheads models` lists. `engine` is torch
    (on a GPU it searches in bfloat16; torch:float32 and torch:bfloat16 choose), ctranslate2 (float32; int8
    for an int8 folder), or ctranslate2:int8 and the like; by default that of `prepare_engine`. `threads` are
    those of ctranslate2, by default the number of cores; torch reads OMP_NUM_THREADS. `adapter` is the name
    of one in the model folder.
    """
    path, *rest = map(resolve_model, (folder, *others))
    translator = load_with_engine(path, rest, device, engine, threads, adapter)
    open_memory(translator, path)
    return translator


def open_memory(translator: Translator, folder: Path) -> None:
    """Give a translator the corrections of its model folder."""
    languages = translator.source_language, translator.target_language
    translator.memory = translator.base.memory = TranslationMemory.open(folder, languages)


def load_with_engine(
    folder: Folder,
    others: Sequence[Folder],
    device: str | None,
    engine: str | None,
    threads: int | None,
    adapter: str | None,
) -> Translator:
    """Return the translator of a model folder, or of an ensemble, without corrections."""
    if engine is None:
        folder, engine = prepare_engine(folder, others, device, adapter)
    name, _, arithmetic = engine.partition(":")
    if adapter is not None:
        check_adaptable(name, others, adapter)
    if name == "ctranslate2":
        return load_ctranslate2(folder, others, arithmetic, device, threads)
    if name != "torch" or arithmetic not in TORCH_PRECISIONS:
        raise ConfigError(
            f"the engine is {engine!r}, but must be torch, torch:float32, torch:bfloat16, torch:int8, "
            f"ctranslate2, ctranslate2:int8 or ctranslate2:int8_float32"
        )
    translator = load_torch(folder, others, arithmetic or "auto", device)
    return translator if adapter is None else use_adapter(translator, adapter)


def read_languages(folder: Folder) -> tuple[str, str]:
    """Return the languages of a model folder, or of a converted model."""
    path = resolve_model(folder)
    if (path / CONVERSION_MANIFEST).exists():
        languages = read_conversion_info(path).languages
    else:
        languages = checkpoint.read_model_manifest(path)["languages"]
    return languages["source"], languages["target"]


def list_adapters(folder: Path) -> list[str]:
    """Return the names of the adapters of a model folder."""
    return checkpoint.list_adapters(folder)


def get_adapter_version(folder: Path, name: str) -> tuple[int, int]:
    """Return what changes when an adapter is written again: the time and the size of its file."""
    try:
        status = checkpoint.adapter_path(folder, name).stat()
    except OSError:
        raise RequestError(f"{folder}: has no adapter {name!r}") from None
    return status.st_mtime_ns, status.st_size


def read_adapter_space(folder: Path, name: str) -> str | None:
    """Return the space of corrections that an adapter has learned from; None: no corrections."""
    return read_space_of_version(folder, name, get_adapter_version(folder, name))


@lru_cache(maxsize=256)
def read_space_of_version(folder: Path, name: str, version: tuple[int, int]) -> str | None:
    from manyheads.checkpoint.adapters import SPACE_KEY, read_metadata

    try:
        space = read_metadata(checkpoint.adapter_path(folder, name))["info"].get(SPACE_KEY)
    except (CheckpointError, KeyError, AttributeError):  # whoever merges it says so
        return None
    return space if isinstance(space, str) else None


def check_adaptable(engine: str, others: Sequence[Folder], adapter: str) -> None:
    """Refuse adapters where there are no weights to merge them with."""
    if engine != "torch":
        raise RequestError(
            f"the adapter {adapter!r} needs the torch engine: {engine} runs converted weights, which an "
            f"adapter cannot change. manyheads export MODEL --adapter {adapter} --to manyheads --out FOLDER "
            f"writes an adapted model, which can be converted"
        )
    if others:
        raise RequestError(f"the adapter {adapter!r} belongs to one model, not to an ensemble")


def use_adapter(translator: Translator, name: str) -> Translator:
    """Return a translator with an adapter of its model folder. The given one stays as it is.

    The last adapters stay merged: to use one of them again takes no time, unless its file has changed.
    """
    translator = translator.base
    if translator.folder is None or not hasattr(translator.engine, "with_adapter"):
        raise RequestError(f"the adapter {name!r} needs a model folder that the torch engine runs")
    path = checkpoint.adapter_path(translator.folder, name)
    version = get_adapter_version(translator.folder, name) if path.is_file() else None
    known = translator.adapted.pop(name, None)
    if known is None or known[0] != version:
        known = version, merge_adapter(translator, translator.folder, name)
    translator.adapted[name] = known
    while len(translator.adapted) > MAX_ADAPTERS:
        with suppress(KeyError):  # another thread has dropped it
            translator.adapted.popitem(last=False)
    return known[1]


def merge_adapter(translator: Translator, folder: Path, name: str) -> Translator:
    """Return a translator with an adapter, which is read and merged with the weights."""
    adapter = checkpoint.read_adapter(folder, name)
    calibration = None
    if adapter.confidence is not None:
        where = f"the adapter {name}"
        calibration = ConfidenceParameters.from_arrays(parse_arrays(adapter.confidence, where), where)
    engine: Any = translator.engine
    return translator.with_engine(engine.with_adapter(adapter), calibration, name)


def choose_engine(
    folder: Folder, others: Sequence[Folder] = (), device: str | None = None, adapter: str | None = None
) -> str:
    """Return the engine of a model if none is requested: torch, unless CTranslate2 is the better one.

    It is for an int8 model that has a name (of the box, or the user's own) where the CPU translates and
    CTranslate2 is installed: it starts without torch and is several times faster. Adapters need torch.
    """
    if others or adapter is not None or not has_name(folder) or find_spec("ctranslate2") is None:
        return "torch"
    if device not in (None, "cpu") or (device is None and count_gpus()):
        return "torch"
    manifest = checkpoint.read_model_manifest(Path(folder))
    if manifest.get("quantization") != "int8":
        return "torch"
    config = parse_info(Path(folder), manifest).config
    if config.decoding.temperature is not None:  # CTranslate2 does not sample
        return "torch"
    try:
        check_convertible(config.model)
    except RequestError:  # an architecture that only torch runs
        return "torch"
    return "ctranslate2:int8"


def prepare_engine(
    folder: Folder, others: Sequence[Folder] = (), device: str | None = None, adapter: str | None = None
) -> tuple[Folder, str]:
    """Return the folder to open and its engine: that of `choose_engine`, with the conversion that it needs.

    If the conversion cannot be written, the engine is torch.
    """
    engine = choose_engine(folder, others, device, adapter)
    if not engine.startswith("ctranslate2"):
        return folder, engine
    try:
        return ensure_converted(Path(folder)), engine
    except (UnwritableConversionError, ResourceError):  # a disk that is read-only or full
        return folder, "torch"


def load_torch(folder: Folder, others: Sequence[Folder], precision: Any, device: str | None) -> Translator:
    """Return the translator of a model folder, or of an ensemble. Only this engine imports torch.

    While torch is imported, other threads read and verify the files and create the context of a GPU.
    """
    opened = [checkpoint.open_model(path) for path in (folder, *others)]
    context = start_context_creation() if device != "cpu" else None
    from manyheads.cuda.device import resolve_device
    from manyheads.inference.ensemble import Ensemble
    from manyheads.inference.torch_engine import TorchEngine
    from manyheads.ops.int8 import has_int8_products

    if context:  # their first use would import them, when the GPU waits for it
        from manyheads.ops.preload import import_inference_kernels

        import_inference_kernels()
    models, subwords = zip(*map(checkpoint.build_opened_model, opened), strict=True)
    for other, own in zip(others, subwords[1:], strict=True):
        if not own.is_same_as(subwords[0]):
            raise RequestError(f"{other}: has other subwords than {folder}; an ensemble needs the same")
    if others:  # its scores are not those that a model was calibrated with
        engine = TorchEngine(Ensemble(models), resolve_device(device), precision)
        return create_translator(engine, subwords[0], opened[0].info)
    info = opened[0].info
    vocab_sizes = info.config.model.input_vocab_size, info.config.model.output_vocab_size
    shortlist = read_shortlist(info.folder, *vocab_sizes)
    resolved = resolve_device(device)
    if precision == "auto" and info.quantization and resolved == "cpu" and has_int8_products():
        precision = "int8"
    engine = TorchEngine(models[0], resolved, precision, shortlist)
    return create_translator(engine, subwords[0], info, read_calibration(info.folder))


def load_ctranslate2(
    folder: Folder,
    others: Sequence[Folder],
    compute_type: str,
    device: str | None,
    threads: int | None = None,
) -> Translator:
    """Return the translator of a model folder, which is converted first, or of a converted model.

    Without a compute type, that of the weights: int8 for an int8 folder, else float32.
    """
    if others:
        raise RequestError("several models together need the torch engine: --engine torch")
    if device not in (None, "cpu"):
        raise RequestError(f"the device is {device!r}, but the ctranslate2 engine runs on the cpu here")
    converted = ensure_converted(Path(folder))
    subwords, info = checkpoint.read_subwords(converted), read_conversion_info(converted)
    engine = CTranslate2Engine(converted, compute_type or info.quantization or "float32", threads)
    return create_translator(engine, subwords, info, read_calibration(converted))


def load_for_engine(folder: Path, engine: Engine) -> Translator:
    """Return the translator of a model folder with an engine that runs elsewhere. Weights are not read."""
    opened = folder
    if engine.name.startswith("ctranslate2"):
        opened = ensure_converted(folder)
        info = read_conversion_info(opened)
    else:
        info = parse_info(opened, checkpoint.read_model_manifest(opened))
    translator = create_translator(engine, checkpoint.read_subwords(opened), info, read_calibration(opened))
    open_memory(translator, folder)
    return translator


def read_calibration(folder: Path) -> ConfidenceParameters | None:
    """Read the calibration of a model folder or a conversion, if it has one."""
    path = folder / checkpoint.CONFIDENCE
    return ConfidenceParameters.from_arrays(read_arrays(path), str(path)) if path.exists() else None


def create_translator(
    engine: Engine,
    subwords: SubwordPair,
    info: checkpoint.CheckpointInfo,
    calibration: ConfidenceParameters | None = None,
) -> Translator:
    max_length = min(info.max_length, engine.capabilities.max_positions or info.max_length)
    return Translator(
        engine,
        subwords,
        info.languages,
        max_length=max_length,
        decoding=info.config.decoding,
        calibration=calibration,
        uses_copy_symbols=info.config.augmentation.copied > 0 and subwords.has_copy_symbols,
        uses_term_symbols=info.config.augmentation.terms > 0 and subwords.source.has_term_symbols,
        folder=info.folder,
    )
