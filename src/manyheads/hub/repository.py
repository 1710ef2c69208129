"""Repositories of the Hub by name, the client that reaches them, and its errors as ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from manyheads import __version__
from manyheads.errors import CheckpointError, DataError, RequestError, install_command

NAME_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
REPOSITORY = re.compile(rf"({NAME_PART})/({NAME_PART})(?:@([A-Za-z0-9_./-]{{1,200}}))?")
DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class Repository:
    """A model repository of the Hub: owner, name, and the branch, tag or commit of it."""

    owner: str
    name: str
    revision: str | None = None

    @property
    def id(self) -> str:
        return f"{self.owner}/{self.name}"


def parse_repository(text: str) -> Repository:
    """Parse `owner/name` or `owner/name@revision`."""
    match = REPOSITORY.fullmatch(text)
    if not match or ".." in text:
        raise RequestError(
            f"{text[:120]!r} is not the name of a repository: write owner/name, or owner/name@revision"
        )
    return Repository(*match.groups())


def open_client(endpoint: str | None) -> Any:
    """Return huggingface_hub's client of an endpoint; by default that of HF_ENDPOINT, or huggingface.co."""
    if endpoint is not None and not re.fullmatch(r"https?://[!-.0-~][!-~]*", endpoint):
        raise RequestError(
            f"--endpoint is {endpoint!r}, but must be a URL that begins with https:// or http://"
        )
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise RequestError(f"huggingface_hub is not installed: {install_command('hub')}") from None
    utils: Any = import_module("huggingface_hub.utils")
    utils.disable_progress_bars()  # files are reported by us
    utils.logging.set_verbosity_error()
    return HfApi(endpoint=endpoint, library_name="manyheads", library_version=__version__)


@contextmanager
def report_hub_errors(repository: Repository, endpoint: str) -> Iterator[None]:
    """Raise what the client raises as one of our errors."""
    errors: Any = import_module("huggingface_hub.errors")
    http: Any = import_module(errors.HTTPError.__module__.partition(".")[0])  # the client's HTTP library
    where = f"{repository.id} on {endpoint}"
    access = "check the name; if it is private, log in (`hf auth login`) or set HF_TOKEN"
    try:
        yield
    except errors.RevisionNotFoundError:
        raise RequestError(f"{where}: has no revision {repository.revision!r}") from None
    except errors.RepositoryNotFoundError:
        raise RequestError(f"{where}: no such repository, or no access to it; {access}") from None
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):  # the client's word for an unreachable server
            raise DataError(f"{where}: cannot be reached: {get_first_line(error)}") from None
        raise CheckpointError(f"{where}: a file of the model is missing: {get_first_line(error)}") from None
    except errors.OfflineModeIsEnabled:
        raise RequestError(f"{where}: not requested, since HF_HUB_OFFLINE is set") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise RequestError(f"{where}: the server replies {status}; {access}") from None
        raise DataError(f"{where}: the server replies {status}: {get_first_line(error)}") from None
    except errors.HTTPError as error:
        raise DataError(f"{where}: cannot be reached: {get_first_line(error)}") from None
    except errors.HFValidationError as error:
        raise RequestError(f"{where}: {get_first_line(error)}") from None
    except RuntimeError as error:  # an upload of the client failed, and its cause says why
        raise DataError(
            f"{where}: {get_first_line(error)} {get_first_line(error.__cause__ or error)}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, http.InvalidURL) as error:
        raise DataError(f"{where}: not a response of the Hub: {get_first_line(error)}") from None
    except OSError as error:
        if error.errno is not None:  # of the disk
            raise
        raise DataError(f"{where}: {get_first_line(error)}") from None


def get_first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
