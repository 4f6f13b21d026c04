"""Checks of values that come with data: choices, counts, Unicode."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

from eddy_embed.errors import InvalidParameter, InvalidText


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices with InvalidParameter."""
    known = list(choices)
    if value not in known:
        raise InvalidParameter(f"{name}={value!r:.80} is unknown; choose one of {', '.join(known)}")


def check_count(name: str, value: SupportsIndex | None, least: int = 1) -> None:
    """Refuse a number below the least with InvalidParameter; None stands for no number."""
    if value is not None and index(value) < least:
        raise InvalidParameter(f"{name}={value} must be at least {least}")


def raise_on_surrogates(text: str, name: str) -> None:
    """Refuse a string with a lone surrogate with InvalidText, which gives its name, the character and the offset."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"{name} holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, which is not "
            "valid Unicode; decode its source with errors='replace', or drop the character"
        ) from None
