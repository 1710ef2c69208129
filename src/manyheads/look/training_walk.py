"""One sentence through the checkpoints of a run: how the heads came to look where they look."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.errors import CheckpointError, RequestError
from manyheads.look.attention_data import build_snapshot, combine_snapshots
from manyheads.translator import load

MAX_CHECKPOINTS = 20  # checkpoints of a page, the first and the last among them


def compare_checkpoints(
    run: Path,
    source: str | None,
    target: str | None = None,
    *,
    device: str | None = None,
    max_checkpoints: int = MAX_CHECKPOINTS,
    report_progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> dict[str, Any]:
    """The sentence with the newest checkpoint's translation, or the given one, at every moment the same.

    What each checkpoint itself would have said stands beside its maps.
    """
    there = checkpoint.list_checkpoints(run)
    if not there:
        raise CheckpointError(f"{run}: no run with checkpoints; a run keeps them in its folder checkpoints")
    source = source or choose_sentence(run, there[-1])
    chosen = select_evenly(there, max_checkpoints)
    moments = []
    for done, folder in enumerate(reversed(chosen), 1):
        translator = load(folder, device=device)
        said = translator.translate(source, split=False, beam=1).text
        if target is None:
            target = said
        attention = translator.attention(source, target)
        step = checkpoint.parse_step(folder)
        moments.append(
            build_snapshot(
                attention, name=folder.name, step=step, translation=said, num_snapshots=len(chosen)
            )
        )
        report_progress("checkpoints", done, len(chosen))
    assert target is not None
    return combine_snapshots(attention, source, target, moments[::-1])


def select_evenly(folders: list[Path], max_count: int) -> list[Path]:
    """At most so many, evenly spread, the first and the last among them."""
    if len(folders) <= max_count:
        return folders
    last = len(folders) - 1
    return [folders[round(place * last / (max_count - 1))] for place in range(max_count)]


def choose_sentence(run: Path, folder: Path) -> str:
    """A sentence of middling length that the run was validated on, where none is given."""
    told = checkpoint.read_info(folder)
    path = Path(told.config.data.folder) / f"valid.{told.languages['source']}"
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line.strip() for line, _ in zip(file, range(100), strict=False) if line.strip()]
    except OSError as fault:
        raise RequestError(
            f"{run}: give a sentence, for its data are gone ({path}: {fault.strerror})"
        ) from None
    if not lines:
        raise RequestError(f"{run}: give a sentence, for {path} has none")
    return sorted(lines, key=len)[len(lines) * 2 // 3]
