"""The attention of one sentence over the snapshots or checkpoints of a training run."""

from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.errors import CheckpointError, RequestError
from manyheads.loading import load
from manyheads.look.attention_data import build_snapshot, combine_snapshots
from manyheads.look.example_sentences import find_data_folder, read_sentences
from manyheads.progress import ReportProgress

MAX_CHECKPOINTS = 20


def compare_checkpoints(
    run: Path,
    source: str | None,
    target: str | None = None,
    *,
    device: str | None = None,
    max_checkpoints: int = MAX_CHECKPOINTS,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Return the attention of every checkpoint for the same source and target.

    The target is by default the translation of the newest checkpoint. Each snapshot also holds the
    translation of its own checkpoint.
    """
    folders = list_models(run, max_checkpoints)
    if not folders:
        raise CheckpointError(f"{run}: has no checkpoints; give the folder of a training run")
    source = source or choose_sentence(run, folders[-1])
    snapshots = []
    for done, folder in enumerate(reversed(folders), 1):
        translator = load(folder, device=device, engine="torch:float32")
        translation = translator.translate(source, split=False, beam=1, corrections=False).text
        if target is None:
            target = translation
        attention = translator.attention(source, target)
        snapshots.append(
            build_snapshot(
                attention,
                name=folder.name,
                step=checkpoint.parse_step(folder),
                translation=translation,
                num_snapshots=len(folders),
            )
        )
        report_progress("checkpoints", done, len(folders))
    assert target is not None
    return combine_snapshots(attention, source, target, snapshots[::-1])


def list_models(run: Path, max_count: int) -> list[Path]:
    """Return the snapshots of a run and its newest checkpoint, or without snapshots its checkpoints."""
    checkpoints = checkpoint.list_checkpoints(run)
    snapshots = checkpoint.list_snapshots(run)
    if not snapshots:
        return select_evenly(checkpoints, max_count)
    newest = [path for path in checkpoints[-1:] if path.name > snapshots[-1].name]
    return [*snapshots[max(0, len(snapshots) + len(newest) - max_count) :], *newest]


def select_evenly(folders: list[Path], max_count: int) -> list[Path]:
    """Return at most max_count folders at even intervals, the first and the last among them."""
    if len(folders) <= max_count:
        return folders
    last = len(folders) - 1
    return [folders[round(index * last / (max_count - 1))] for index in range(max_count)]


def choose_sentence(run: Path, folder: Path) -> str:
    """Choose a sentence of medium length from the validation set of the run."""
    try:
        info = checkpoint.read_info(folder)
        data = find_data_folder(info.config.data.folder, folder)
        lines = read_sentences(data, info.languages["source"], ("valid",))
    except OSError as error:
        raise RequestError(
            f"{run}: its data are missing ({error.filename}: {error.strerror}): give a sentence"
        ) from None
    if not lines:
        raise RequestError(f"{run}: its validation set has no sentences: give a sentence")
    return sorted(lines, key=len)[len(lines) * 2 // 3]
