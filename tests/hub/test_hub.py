"""Models on a server with the Hub's API. No test leaves the loopback interface."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint, cli
from manyheads.checkpoint.manifest import MEMORY
from manyheads.errors import CheckpointError, DataError, RequestError
from manyheads.hub.card import format_readme, parse_readme
from manyheads.hub.pull import pull_model
from manyheads.hub.push import push_model
from manyheads.hub.repository import Repository, open_client, parse_repository
from support.hub_server import TOKEN, Exchange, HubServer
from support.random_adapter import save_random_adapter
from support.untrained_model import save_untrained_model

pytest.importorskip("huggingface_hub", reason="needs the extra hub")

# huggingface_hub 2.4 passes files to its HTTP client in a way that the client deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
NAME = "ann/en-ko"
CARD = "# Translation from en to ko\n\n## Scores\n\n- BLEU 12.3\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which a benchmark sets in this process
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the local server stores files by LFS
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("no_proxy", "*")
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = save_untrained_model(tmp_path / "run" / "model")
    (folder / checkpoint.MODEL_CARD).write_text(CARD, encoding="utf-8")
    return folder


def push(hub: HubServer, model: Path, **options: Any) -> Any:
    return push_model(model, parse_repository(NAME), endpoint=hub.endpoint, **options)


def pull(hub: HubServer, out: Path, name: str = NAME, **options: Any) -> Any:
    return pull_model(parse_repository(name), out, endpoint=hub.endpoint, **options)


def replace_file(hub: HubServer, name: str, content: bytes) -> None:
    hub.commit(NAME, {**hub.files(NAME), name: content})


# ---- push and pull


def test_a_pulled_model_is_the_one_that_was_pushed(hub: HubServer, model: Path, tmp_path: Path) -> None:
    save_random_adapter(model, "captions")
    pushed = push(hub, model, license="apache-2.0")
    pulled = pull(hub, tmp_path / "models" / "en-ko")
    assert pulled.commit == pushed.commit
    assert pulled.adapters == ["captions"]
    copy = tmp_path / "models" / "en-ko"
    names = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert names == {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
    for name in names:
        assert (copy / name).read_bytes() == (model / name).read_bytes()
    sentences = ["I go home today."]
    assert [t.text for t in mh.load(copy).translate(sentences)] == [
        t.text for t in mh.load(model).translate(sentences)
    ]


def test_a_repository_has_the_layout_of_the_hub(hub: HubServer, model: Path) -> None:
    push(hub, model, license="apache-2.0")
    files = hub.files(NAME)
    assert {"README.md", "manyheads.json", "weights.safetensors", "subwords.model"} <= files.keys()
    assert checkpoint.MODEL_CARD not in files
    readme = files["README.md"].decode()
    yaml = pytest.importorskip("yaml")
    front_matter = yaml.safe_load(readme.split("---")[1])
    assert front_matter["license"] == "apache-2.0"
    assert front_matter["language"] == ["en", "ko"]
    assert front_matter["pipeline_tag"] == "translation"
    assert f"manyheads pull {NAME}" in readme


def test_a_repository_is_private_unless_the_user_says_otherwise(hub: HubServer, model: Path) -> None:
    push(hub, model)
    assert hub.private[NAME]
    push_model(model, Repository("ann", "open"), endpoint=hub.endpoint, is_public=True)
    assert not hub.private["ann/open"]


def test_a_second_push_removes_files_that_the_model_no_longer_has(hub: HubServer, model: Path) -> None:
    save_random_adapter(model, "captions")
    push(hub, model)
    replace_file(hub, "notes.txt", b"of a person")
    (model / "adapters" / "captions.safetensors").unlink()
    push(hub, model)
    assert "adapters/captions.safetensors" not in hub.files(NAME)
    assert hub.files(NAME)["notes.txt"] == b"of a person"


def test_all_files_are_of_one_commit(hub: HubServer, model: Path, tmp_path: Path) -> None:
    first = push(hub, model)
    replace_file(hub, "weights.safetensors", b"another model")
    pulled = pull(hub, tmp_path / "copy", f"{NAME}@{first.commit}")
    assert pulled.commit == first.commit
    resolved = [path for _, path in hub.requests if "/resolve/" in path]
    assert resolved
    assert all(f"/resolve/{first.commit}/" in path for path in resolved)


def test_files_that_no_manifest_lists_are_not_fetched(hub: HubServer, model: Path, tmp_path: Path) -> None:
    push(hub, model)
    replace_file(hub, "pytorch_model.bin", b"a pickle")
    pull(hub, tmp_path / "copy")
    assert not [path for _, path in hub.requests if path.endswith(".bin")]
    assert not (tmp_path / "copy" / "pytorch_model.bin").exists()


# ---- refusals


def change_manifest(hub: HubServer, **values: Any) -> None:
    """Change a manifest as an attacker would, with a new checksum."""
    from manyheads.atomic_io import compute_checksum

    manifest = {**json.loads(hub.files(NAME)["manyheads.json"]), **values}
    manifest["sha256"] = compute_checksum(manifest)
    replace_file(hub, "manyheads.json", json.dumps(manifest).encode())


def test_damaged_weights_are_refused_and_nothing_stays(hub: HubServer, model: Path, tmp_path: Path) -> None:
    push(hub, model)
    weights = bytearray(hub.files(NAME)["weights.safetensors"])
    weights[-1] ^= 1
    replace_file(hub, "weights.safetensors", bytes(weights))
    with pytest.raises(CheckpointError, match="SHA-256"):
        pull(hub, tmp_path / "models" / "copy")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("name", ["../victim", "/etc/victim", ".hidden", "a/b.safetensors"])
def test_a_manifest_cannot_name_files_elsewhere(
    hub: HubServer, model: Path, tmp_path: Path, name: str
) -> None:
    push(hub, model)
    files = json.loads(hub.files(NAME)["manyheads.json"])["files"]
    change_manifest(hub, files={**files, name: {"bytes": 1, "sha256": "0" * 64}})
    with pytest.raises(CheckpointError, match="not a file of a model"):
        pull(hub, tmp_path / "copy")


def test_a_file_larger_than_its_manifest_says_is_not_fetched(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    push(hub, model)
    replace_file(hub, "weights.safetensors", hub.files(NAME)["weights.safetensors"] + b"more")
    with pytest.raises(CheckpointError, match="at most"):
        pull(hub, tmp_path / "copy")
    assert not [
        path for _, path in hub.requests if path.endswith("weights.safetensors") and "resolve" in path
    ]


def test_an_adapter_larger_than_the_model_is_not_fetched(hub: HubServer, model: Path, tmp_path: Path) -> None:
    push(hub, model)
    hub.commit(NAME, {**hub.files(NAME), "adapters/huge.safetensors": b"x" * 10**6})
    with pytest.raises(CheckpointError, match=r"huge.safetensors has 1,000,000 bytes, but at most"):
        pull(hub, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_a_file_whose_size_the_hub_does_not_state_is_not_fetched(
    hub: HubServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(hub, model)
    monkeypatch.setattr(hub, "states_sizes", False)
    with pytest.raises(CheckpointError, match=r"does not state the size of manyheads.json"):
        pull(hub, tmp_path / "pulled")


def test_a_card_that_is_a_link_is_not_published(hub: HubServer, model: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private key", encoding="utf-8")
    (model / checkpoint.MODEL_CARD).unlink()
    (model / checkpoint.MODEL_CARD).symlink_to(tmp_path / "secret")
    with pytest.raises(RequestError, match=r"is a link, which is not pushed"):
        push(hub, model)


def test_an_adapter_of_other_weights_is_refused(hub: HubServer, model: Path, tmp_path: Path) -> None:
    save_random_adapter(model, "captions")
    push(hub, model)
    adapter = bytearray(hub.files(NAME)["adapters/captions.safetensors"])
    adapter[-1] ^= 1
    replace_file(hub, "adapters/captions.safetensors", bytes(adapter))
    with pytest.raises(CheckpointError, match=r"captions\.safetensors: damaged"):
        pull(hub, tmp_path / "copy")


def test_a_repository_of_something_else_is_neither_overwritten_nor_pulled(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    hub.create(NAME, private=False)
    replace_file(hub, "pytorch_model.bin", b"of somebody")
    with pytest.raises(RequestError, match="not overwritten"):
        push(hub, model)
    with pytest.raises(CheckpointError, match=r"no manyheads\.json"):
        pull(hub, tmp_path / "copy")
    assert set(hub.files(NAME)) == {".gitattributes", "pytorch_model.bin"}


def test_a_checkpoint_with_its_optimizer_is_not_pushed(hub: HubServer, model: Path) -> None:
    (model / checkpoint.OPTIMIZER).write_bytes(b"")
    with pytest.raises(RequestError, match="optimizer"):
        push(hub, model)
    assert hub.requests == []


def test_an_existing_folder_is_replaced_only_with_force(hub: HubServer, model: Path, tmp_path: Path) -> None:
    push(hub, model)
    pull(hub, tmp_path / "copy")
    with pytest.raises(RequestError, match="--force"):
        pull(hub, tmp_path / "copy")
    pull(hub, tmp_path / "copy", replace=True)
    (tmp_path / "copy" / "mine.txt").write_text("of a person")
    with pytest.raises(RequestError, match=r"mine\.txt"):
        pull(hub, tmp_path / "copy", replace=True)


def test_force_never_deletes_adapters_or_corrections_of_the_user(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    push(hub, model)
    copy = tmp_path / "copy"
    pull(hub, copy)
    save_random_adapter(copy, "mine")
    with pytest.raises(RequestError, match="adapter mine"):
        pull(hub, copy, replace=True)
    assert checkpoint.list_adapters(copy) == ["mine"]
    checkpoint.adapter_path(copy, "mine").unlink()
    (copy / MEMORY).mkdir()
    with pytest.raises(RequestError, match="not ours to delete"):
        pull(hub, copy, replace=True)


@pytest.mark.parametrize("text", ["en-ko", "a/b/c", "../x", "a/..", "ann/en ko", "@main", "a/b@", "/a", "a/"])
def test_a_name_that_is_no_repository_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="owner/name"):
        parse_repository(text)


def test_a_name_has_an_owner_and_may_have_a_revision() -> None:
    assert parse_repository("ann/en-ko") == Repository("ann", "en-ko")
    assert parse_repository("ann/en-ko@v1.0") == Repository("ann", "en-ko", "v1.0")


# ---- what goes wrong between here and the server


def test_unknown_repositories_and_revisions_are_wrong_calls(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="no such repository"):
        pull(hub, tmp_path / "copy", "ann/nothing")
    push(hub, model)
    with pytest.raises(RequestError, match="no revision 'v9'"):
        pull(hub, tmp_path / "copy", f"{NAME}@v9")


def test_a_push_without_a_token_says_how_to_log_in(
    hub: HubServer, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(RequestError, match="hf auth login"):
        push(hub, model)


def test_a_server_that_fails_or_is_gone_is_one_error(
    hub: HubServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # between the client's own attempts
    push(hub, model)
    hub.broken_paths.add("/api/models/")
    with pytest.raises(DataError, match="replies 500"):
        pull(hub, tmp_path / "copy")
    with pytest.raises(DataError, match="cannot be reached"):
        pull_model(parse_repository(NAME), tmp_path / "copy", endpoint="http://127.0.0.1:9")


def test_an_endpoint_must_be_a_url() -> None:
    with pytest.raises(RequestError, match="https://"):
        open_client("huggingface.co")


@pytest.mark.parametrize(
    "name", ["manyheads.json", "weights.safetensors", "README.md", "adapters/captions.safetensors"]
)
def test_a_download_ends_at_the_size_that_the_server_states(
    hub: HubServer, model: Path, tmp_path: Path, name: str
) -> None:
    save_random_adapter(model, "captions")
    push(hub, model)
    hub.endless_paths.add(f"/{name}")
    with pytest.raises(CheckpointError, match=r"sends more than the [\d,]+ bytes that it states"):
        pull(hub, tmp_path / "models" / "copy")
    assert list((tmp_path / "models").iterdir()) == []


LISTINGS: list[Any] = [
    [],
    None,
    5,
    {"id": NAME, "sha": "0" * 40, "siblings": "abc"},
    {"id": NAME, "sha": "0" * 40, "siblings": [5]},
    {"id": NAME, "sha": "0" * 40, "siblings": [{"rfilename": ["x"], "size": 1}]},
    *(
        {"id": NAME, "sha": "0" * 40, "siblings": [{"rfilename": "manyheads.json", "size": size}]}
        for size in ("5", [1], -1, 2.5, True)
    ),
    {"id": NAME, "sha": "0" * 40, "siblings": [], "lastModified": 5},
    *({"id": NAME, "sha": sha, "siblings": []} for sha in (None, "", "../x", "0" * 100_000, 5.5)),
]


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: str(listing)[-40:])
def test_a_listing_of_another_form_is_one_error(hub: HubServer, tmp_path: Path, listing: Any) -> None:
    hub.answers["/api/models/"] = listing
    with pytest.raises(DataError, match=r"not a response of the Hub"):
        pull(hub, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/api/repos/create", "/preupload/", "/info/lfs", "/commit/"])
@pytest.mark.parametrize("answer", [[], None, 5])
def test_an_answer_of_another_form_to_a_push_is_one_error(
    hub: HubServer, model: Path, path: str, answer: Any
) -> None:
    hub.answers[path] = answer
    with pytest.raises(DataError, match=r"not a response of the Hub"):
        push(hub, model)


@pytest.mark.parametrize("endpoint", ["http://\n", "http://x/\x1b[31m", "https://a b", "http:///x"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(RequestError, match="--endpoint is"):
        open_client(endpoint)


def test_a_file_of_another_size_is_one_error_of_ours(
    hub: HubServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(hub, model)
    send = Exchange.send

    def send_with_size(exchange: Exchange, status: int, answer: Any, headers: Any = None) -> None:
        extra = {"X-Linked-Size": "5"} if exchange.path.endswith("weights.safetensors") else {}
        send(exchange, status, answer, {**(headers or {}), **extra})

    monkeypatch.setattr(Exchange, "send", send_with_size)
    with pytest.raises(DataError, match="Consistency check failed"):
        pull(hub, tmp_path / "copy")


# ---- the card


def test_front_matter_and_usage_are_removed_and_nothing_else() -> None:
    readme = format_readme(CARD, {"source": "en", "target": "ko"}, NAME, None)
    assert parse_readme(readme, NAME) == CARD
    assert "license" not in readme.split("---")[1]
    for text in ("", "# Card\n---\n", "---\nnever closed\n"):
        assert parse_readme(text, NAME) == text


# ---- the command line


def test_a_pulled_model_is_translated_by_its_name(
    hub: HubServer,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MANYHEADS_MODELS", str(tmp_path / "models"))
    for arguments in (["push", str(model), NAME], ["pull", NAME]):
        monkeypatch.setattr(sys, "argv", ["manyheads", *arguments, "--endpoint", hub.endpoint])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code in (0, None)
    assert "manyheads translate en-ko" in capsys.readouterr().out
    from manyheads.named_models.resolution import resolve_model

    assert resolve_model("en-ko") == tmp_path / "models" / "en-ko"


def test_commands_do_not_import_the_client_unless_it_is_needed() -> None:
    code = "import sys, manyheads.cli, manyheads.loading; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
