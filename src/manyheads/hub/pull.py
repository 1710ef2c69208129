"""From a repository of the Hub to a model folder, which is verified before it gets its name."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.atomic_io import MAX_MANIFEST_BYTES, atomic_directory, report_disk_full
from manyheads.checkpoint.adapters import ADAPTER_NAME, SUFFIX
from manyheads.checkpoint.manifest import ADAPTERS
from manyheads.errors import CheckpointError, RequestError
from manyheads.hub.card import parse_readme
from manyheads.hub.push import README
from manyheads.hub.repository import Repository, open_client, report_hub_errors
from manyheads.progress import Progress

MAX_CARD_BYTES = 2**20
REPLACEABLE = (checkpoint.MODEL_CARD, ADAPTERS)  # beside listed files; corrections of users are not
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
        self.client, self.repository, self.commit = client, repository, str(info.sha)
        self.sizes: dict[str, int | None] = {file.rfilename: file.size for file in info.siblings or []}

    def download(self, name: str, folder: Path) -> Path:
        """Download a file of this commit, even if the branch has moved on."""
        with report_hub_errors(self.repository, self.client.endpoint):
            path = self.client.hf_hub_download(
                self.repository.id, name, revision=self.commit, local_dir=str(folder)
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
