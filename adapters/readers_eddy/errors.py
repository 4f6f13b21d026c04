"""Errors of reading. Each message names the problem, the offending value, and the remedy."""

from __future__ import annotations

from eddy_embed.errors import EddyError


class Unreadable(EddyError):
    """One file cannot be read; the message says why. Other files are still read."""


class NothingToRead(EddyError):
    """The given paths contain no document."""


def one_line(message: object, most: int = 200) -> str:
    """Shorten a message about a damaged file, which may quote the file, to one line."""
    text = " ".join(str(message).split())
    return text if len(text) <= most else f"{text[:most]} …"
