"""From a model folder to a repository of the Hub, in one commit."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.checkpoint.manifest import ADAPTERS
from manyheads.errors import RequestError
from manyheads.hub.card import format_readme
from manyheads.hub.repository import DEFAULT_REVISION, Repository, open_client, report_hub_errors

README = "README.md"
CREATED_BY_THE_HUB = {".gitattributes", README}  # in a new repository


@dataclass(frozen=True)
class PushedModel:
    """A commit with all files of a model folder."""

    repository: str
    commit: str
    url: str
    num_files: int
    num_bytes: int


def push_model(
    folder: Path,
    repository: Repository,
    *,
    endpoint: str | None = None,
    is_public: bool = False,
    license: str | None = None,
    message: str | None = None,
) -> PushedModel:
    """Upload a model folder that can be loaded. A repository that does not exist is created."""
    _, _, info = checkpoint.load_model(folder)  # what cannot be loaded here cannot be loaded anywhere
    if (folder / checkpoint.OPTIMIZER).exists():
        raise RequestError(
            f"{folder}: is a checkpoint with the state of its optimizer; push the model of the run instead, "
            f"or the output of `manyheads average`"
        )
    client = open_client(endpoint)
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    card = folder / checkpoint.MODEL_CARD
    if card.is_symlink():  # it may lead to a file that is not to be published
        raise RequestError(f"{card}: is a link, which is not pushed; put the card itself there")
    text = card.read_text(encoding="utf-8") if card.exists() else None
    contents: dict[str, Path | bytes] = {path: folder / path for path in list_files(folder)}
    contents[README] = format_readme(text, info.languages, repository.id, license).encode()
    revision = repository.revision or DEFAULT_REVISION
    with report_hub_errors(repository, client.endpoint):
        client.create_repo(repository.id, private=not is_public, exist_ok=True)
        removed = find_stale_files(client, repository, revision, set(contents))
        operations = [CommitOperationAdd(path, content) for path, content in contents.items()]
        commit = client.create_commit(
            repository.id,
            [*operations, *(CommitOperationDelete(path) for path in removed)],
            commit_message=message or f"Upload {folder.resolve().name}, step {info.step:,}",
            revision=revision,
        )
    return PushedModel(
        repository.id,
        commit.oid,
        f"{client.endpoint}/{repository.id}",
        len(contents),
        sum(operation.upload_info.size for operation in operations),
    )


def list_files(folder: Path) -> Iterator[str]:
    """Yield the files of a model folder as paths in a repository; the card becomes README.md."""
    yield checkpoint.MANIFEST
    yield from checkpoint.read_model_manifest(folder)["files"]
    for name in checkpoint.list_adapters(folder):
        checkpoint.read_adapter(folder, name)
        yield f"{ADAPTERS}/{checkpoint.adapter_path(folder, name).name}"


def find_stale_files(client: Any, repository: Repository, revision: str, names: set[str]) -> list[str]:
    """Return files of an earlier model that the new one does not have.

    A repository that holds something else is refused.
    """
    siblings = client.model_info(repository.id, revision=revision).siblings or []
    existing = {sibling.rfilename for sibling in siblings} - CREATED_BY_THE_HUB
    if existing and checkpoint.MANIFEST not in existing:
        raise RequestError(
            f"{repository.id}: holds {sorted(existing)[0]}, but no model of manyheads, and is not "
            f"overwritten; choose another repository"
        )
    ours = {name for name in existing if name.startswith(f"{ADAPTERS}/") or "/" not in name}
    return sorted(name for name in ours - names if name.endswith((".safetensors", ".model")))
