"""From a repository of the Hub to a model folder, which is verified before it gets its name."""

import inspect
import re
import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.atomic_io import MAX_MANIFEST_BYTES, atomic_directory, report_disk_full
from manyheads.checkpoint.adapters import ADAPTER_NAME, SUFFIX
from manyheads.checkpoint.manifest import ADAPTERS
from manyheads.errors import CheckpointError, RequestError, install_command
from manyheads.hub.card import parse_readme
from manyheads.hub.push import README
from manyheads.hub.repository import Repository, open_client, report_hub_errors
from manyheads.progress import Progress

MAX_CARD_BYTES = 2**20
REPLACEABLE = (checkpoint.MODEL_CARD, ADAPTERS)  # beside listed files; corrections of users are not
COMMIT = re.compile(r"[0-9A-Za-z]{1,64}")
CLIENT_CACHE = ".cache"  # huggingface_hub's notes about a folder that it downloads to


@dataclass(frozen=True)
class PulledModel:
    """A model folder with the commit that it came from."""

    repository: str
    commit: str
    folder: str
    num_bytes: int
    adapters: list[str]


class RemoteModel:
    """The files of one commit of a repository."""

    def __init__(self, client: Any, repository: Repository) -> None:
        with report_hub_errors(repository, client.endpoint):
            info = client.model_info(repository.id, revision=repository.revision, files_metadata=True)
            if not COMMIT.fullmatch(info.sha or ""):
                raise ValueError(f"its commit is {info.sha!r:.80}")
            self.client, self.repository, self.commit = client, repository, str(info.sha)
            self.sizes = list_sizes(info.siblings or [])

    def download(self, name: str, folder: Path) -> Path:
        """Download a file of this commit, even if the branch has moved on, and no more than its size."""
        if "tqdm_class" not in inspect.signature(self.client.hf_hub_download).parameters:
            raise RequestError(f"huggingface_hub is too old to limit downloads: {install_command('hub')} -U")
        size = self.sizes[name]
        assert size is not None  # it was checked
        with report_hub_errors(self.repository, self.client.endpoint):
            path = self.client.hf_hub_download(
                self.repository.id,
                name,
                revision=self.commit,
                local_dir=str(folder),
                tqdm_class=limit_download(f"{self.repository.id}: {name}", size),
            )
        return Path(path)

    def check_size(self, name: str, max_bytes: int) -> None:
        size = self.sizes.get(name)
        if size is None:
            raise CheckpointError(f"{self.repository.id}: the Hub does not state the size of {name}")
        if size > max_bytes:
            raise CheckpointError(
                f"{self.repository.id}: {name} has {size:,} bytes, but at most {max_bytes:,} are read"
            )


def list_sizes(files: list[Any]) -> dict[str, int | None]:
    """Return the size of each file of a repository; None where it is not stated."""
    sizes: dict[str, int | None] = {}
    for file in files:
        name, size = file.rfilename, file.size
        if type(name) is not str or not (size is None or (type(size) is int and size >= 0)):
            raise ValueError(f"it lists {str(name)[:80]!r} with the size {str(size)[:80]!r}")
        sizes[name] = size
    return sizes


def limit_download(where: str, max_bytes: int) -> type:
    """Return a progress bar for the client, which ends a download of more bytes than stated."""
    bar: Any = import_module("tqdm").tqdm  # which the client needs too

    class DownloadLimit(bar):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self.num_bytes = 0
            options.pop("name", None)  # of the client's own bars
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self.num_bytes += int(n or 0)
            if self.num_bytes > max_bytes:
                raise CheckpointError(
                    f"{where}: the server sends more than the {max_bytes:,} bytes that it states"
                )
            return None

    return DownloadLimit


def pull_model(
    repository: Repository,
    out: Path,
    *,
    endpoint: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> PulledModel:
    """Download what the manifest lists, adapters and card; load the model; then rename the folder."""
    client = open_client(endpoint)
    with atomic_directory(out, checkpoint.MANIFEST, replace=replace, unlisted=REPLACEABLE) as temporary:
        remote = RemoteModel(client, repository)
        files = download_manifest(remote, temporary)
        adapters = list_remote_adapters(remote)
        if lost := set(checkpoint.list_adapters(out)) - set(adapters):
            raise RequestError(
                f"{out}: has the adapter {min(lost)}, which {repository.id} has not; move it away, or choose "
                f"another folder"
            )
        num_bytes = sum(files.values())
        adapter_files = [f"{ADAPTERS}/{name}{SUFFIX}" for name in adapters]
        for name in adapter_files:
            remote.check_size(name, num_bytes)  # an adapter is far smaller than its model
        names = [*files, *adapter_files]
        with report_disk_full(out, num_bytes, "Nothing was written"):
            for number, name in enumerate(names):
                (progress or Progress()).update(f"files of {repository.id}", number, len(names))
                remote.download(name, temporary)
            write_card(remote, temporary)
        shutil.rmtree(temporary / CLIENT_CACHE, ignore_errors=True)
        verify_model(temporary, adapters)
    return PulledModel(repository.id, remote.commit, str(out), num_bytes, adapters)


def download_manifest(remote: RemoteModel, folder: Path) -> dict[str, int]:
    """Return the files that the manifest lists with their sizes, those of the repository."""
    if checkpoint.MANIFEST not in remote.sizes:
        raise CheckpointError(
            f"{remote.repository.id}: has no {checkpoint.MANIFEST}, so it is not a model of manyheads; a "
            f"Marian model is downloaded by other means and read by `manyheads export --from huggingface`"
        )
    remote.check_size(checkpoint.MANIFEST, MAX_MANIFEST_BYTES)
    remote.download(checkpoint.MANIFEST, folder)
    listed = checkpoint.read_model_manifest(folder)["files"]
    for name, file in listed.items():
        if Path(name).name != name or name.startswith(".") or name == checkpoint.MODEL_CARD:
            raise CheckpointError(
                f"{remote.repository.id}: {checkpoint.MANIFEST} lists {name!r}, not a file of a model"
            )
        if name not in remote.sizes:
            raise CheckpointError(
                f"{remote.repository.id}: has no {name}, but {checkpoint.MANIFEST} lists it"
            )
        remote.check_size(name, file["bytes"])
    return {name: file["bytes"] for name, file in listed.items()}


def list_remote_adapters(remote: RemoteModel) -> list[str]:
    names = [Path(path).stem for path in remote.sizes if path.startswith(f"{ADAPTERS}/")]
    return sorted(
        name
        for name in names
        if ADAPTER_NAME.fullmatch(name) and f"{ADAPTERS}/{name}{SUFFIX}" in remote.sizes
    )


def write_card(remote: RemoteModel, folder: Path) -> None:
    """Write README.md as the card of the folder, if it has a usual size."""
    size = remote.sizes.get(README)
    if size is None or size > MAX_CARD_BYTES:
        return
    readme = remote.download(README, folder)
    text = readme.read_text(encoding="utf-8", errors="replace")
    readme.unlink()
    (folder / checkpoint.MODEL_CARD).write_text(parse_readme(text, remote.repository.id), encoding="utf-8")


def verify_model(folder: Path, adapters: list[str]) -> None:
    """Load a model as every command does: checksums, header, shapes and subwords; and read its adapters."""
    checkpoint.load_model(folder)
    for name in adapters:
        checkpoint.read_adapter(folder, name)
