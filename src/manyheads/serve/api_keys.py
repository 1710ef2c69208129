"""API keys, and the name of the user that each belongs to."""

import hmac
from collections.abc import Mapping
from pathlib import Path

from manyheads.atomic_io import read_limited
from manyheads.errors import ConfigError
from manyheads.memory.database import DEFAULT_SPACE, SPACE_NAME

MAX_API_KEY_BYTES = 2**24
MISSING_KEY = (
    "corrections need an API key, as users store text: set one with --api-key or MANYHEADS_API_KEY, or "
    "several with --api-keys"
)


class ApiKeys:
    """The keys of a server. Without any, everybody is the user "default"."""

    def __init__(self, api_key: str | None, user_keys: Mapping[str, str]) -> None:
        if api_key is not None and DEFAULT_SPACE in user_keys:
            raise ConfigError(
                f"the user {DEFAULT_SPACE} has two API keys: the one of --api-key or MANYHEADS_API_KEY, "
                f"and one in --api-keys: give one of them"
            )
        keys = dict(user_keys) if api_key is None else {DEFAULT_SPACE: api_key, **user_keys}
        if len(set(keys.values())) < len(keys):
            raise ConfigError("two users have the same API key: give each a key of its own")
        self.keys = {user: key.encode() for user, key in keys.items()}

    @property
    def are_required(self) -> bool:
        return bool(self.keys)

    def find_user(self, received: bytes) -> str | None:
        """Return whose key it is. Every key is compared, in the same time wherever they differ."""
        users = [user for user, key in self.keys.items() if hmac.compare_digest(received, key)]
        return users[0] if users else None


def read_api_keys(path: Path) -> dict[str, str]:
    """Read a file of users: a name, white space and a key on each line. Lines with # are comments."""
    try:
        lines = read_limited(path, MAX_API_KEY_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, key = line.strip().partition(" ") if " " in line.strip() else line.strip().partition("\t")
        if not SPACE_NAME.fullmatch(name) or not key.strip() or len(key.split()) != 1:
            raise ConfigError(f"{path}: line {number} is not the name of a user, a space and an API key")
        if name in keys:
            raise ConfigError(f"{path}: line {number} is the second key of {name}: a user has one")
        keys[name] = key.strip()
    if not keys:
        raise ConfigError(f"{path}: holds no API keys")
    return keys
