"""API keys: where they are read, and how they are compared."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from eddy_embed.errors import InvalidParameter

VARIABLE = "EDDY_API_KEYS"
"""Environment variable with keys, separated by commas or white space."""


class Keys:
    """The keys that a server accepts; none: it asks for none."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Keep digests only.

        Args:
            keys: Each as clients send it.

        Raises:
            InvalidParameter: A key holds what the head of a request cannot.
        """
        given = list(dict.fromkeys(keys))
        for number, key in enumerate(given, start=1):
            if not (key.isascii() and key.isprintable()) or " " in key or not key:
                raise InvalidParameter(f"API key {number} holds blanks or characters outside ASCII; choose another")
        self._digests = [_digest(key.encode()) for key in given]

    def __bool__(self) -> bool:
        """Whether a key is asked for."""
        return bool(self._digests)

    def admit(self, key: bytes) -> bool:
        """Whether a key is one of them, in a time that tells nothing of any."""
        given = _digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, given)
        return found


def read_keys(variable: str | None, file: Path | None) -> Keys:
    """Keys out of a variable's value and the lines of a file.

    Args:
        variable: Keys separated by commas or white space.
        file: A key a line; blank lines and those that begin with # are none.

    Raises:
        InvalidParameter: The file holds no key, or the variable is there and empty.
        OSError: The file cannot be read.
    """
    keys: list[str] = []
    if variable is not None:
        keys = variable.replace(",", " ").split()
        if not keys:
            raise InvalidParameter(f"{VARIABLE} is set and holds no key; give it one, or unset it")
    if file is not None:
        lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise InvalidParameter(f"{file} holds no API key; write one a line")
        keys += found
    return Keys(keys)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
