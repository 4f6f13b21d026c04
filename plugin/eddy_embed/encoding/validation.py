"""Checks of texts and of what is asked of them, at the public door."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any, get_args

from eddy_embed.encoding.document import Part
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.utils.checks import check_count as check_count
from eddy_embed.utils.checks import raise_on_surrogates

PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of a document that have vectors."""
PASSAGES: tuple[Part, ...] = ("passages",)
PASSAGE_SIZE = 256
"""Default of most tokens in a passage."""
CHUNK_CHARACTERS = 4_000_000
"""Characters of text planned at once: enough to sort by length, few enough for memory."""


def refuse_unknown(
    owner: str, given: Mapping[str, Any], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse names that a class does not know; `elsewhere` says what to do in place of those of other libraries."""
    names = sorted(known)
    for name, value in given.items():
        if name in names:
            continue
        near = difflib.get_close_matches(name, names, n=1)
        guess = f"did you mean {near[0]}=?" if near else f"known: {', '.join(names)}"
        raise InvalidParameter(
            f"{owner} has no parameter {name!r} (given: {value!r}); {(elsewhere or {}).get(name, guess)}"
        )


def torch_name(value: Any) -> Any:
    """Return the name of a torch device or dtype; everything else as it is."""
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def check_parts(parts: Collection[Part]) -> None:
    """Refuse what names no part of a document with InvalidParameter."""
    if not parts or isinstance(parts, str) or not set(PARTS).issuperset(parts):
        raise InvalidParameter(
            f"parts={parts!r} must hold one or more of {', '.join(PARTS)}, as in parts=('passages',)"
        )


def check_seconds(name: str, value: float | None) -> None:
    """Refuse what is no positive number of seconds, nor None, with InvalidParameter."""
    if value is not None and not 0 < value < float("inf"):
        raise InvalidParameter(f"{name}={value} must be a positive number of seconds, or None for no limit")


def check_kind(name: str, value: Any, kinds: Any, wanted: str) -> None:
    """Refuse a value of another kind with InvalidParameter."""
    if not isinstance(value, kinds):
        raise InvalidParameter(f"{name}={value!r:.80} must be {wanted}")


def check_one(text: Any) -> None:
    """Refuse what is not one string with InvalidText."""
    if not isinstance(text, str):
        raise InvalidText(f"expected one string, not a {type(text).__name__}: {text!r:.60}")


def checked_texts(texts: str | Iterable[str], *, blank: bool = False) -> list[str]:
    """Return one or several texts as a list.

    Raises:
        InvalidText: A text is no string, blank, or not valid Unicode; the message gives its index.
        TypeError: They are in a mapping, a set or a table, which would give its keys, another order, or its columns.
    """
    if isinstance(texts, Mapping | Set) or getattr(texts, "ndim", 1) != 1:
        raise TypeError(f"texts must be a string or a list of strings, not a {type(texts).__name__}")
    checked = [texts] if isinstance(texts, str) else list(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise InvalidText(f"text {index} is a {type(text).__name__}, not a string: {text!r:.60}")
        if not blank and not text.strip():
            raise InvalidText(f"text {index} is {'blank' if text else 'empty'} ({text!r:.40}); drop it first")
        if not text.isascii():
            raise_on_surrogates(text, f"text {index}")
    return checked


def checked_spans(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of a text's characters; InvalidParameter gives the index of one outside the text, or blank."""
    checked = [(int(start), int(end)) for start, end in spans]
    for index, (start, end) in enumerate(checked):
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            raise InvalidParameter(
                f"span {index}, ({start}, {end}), holds no word of a text of {len(text)} characters; it needs "
                "0 <= start < end, and an end within the text"
            )
    return checked


def checked_text_list(texts: Iterable[str], *, blank: bool = False) -> list[str]:
    """Return texts as `checked_texts`, but refuse one string, which would be taken for a list of its characters."""
    if isinstance(texts, str):
        raise InvalidText(f"expected a list of strings, not one string: {texts!r:.60}; put it in a list")
    return checked_texts(texts, blank=blank)


def chunks(texts: list[str], characters: int = CHUNK_CHARACTERS) -> Iterator[tuple[int, list[str]]]:
    """Yield runs of texts of at most so many characters together, at least one text, each with its first's index."""
    first, size = 0, 0
    for index, text in enumerate(texts):
        if index > first and size + len(text) > characters:
            yield first, texts[first:index]
            first, size = index, 0
        size += len(text)
    if texts:
        yield first, texts[first:]
