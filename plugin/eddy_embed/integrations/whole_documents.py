"""Whole documents of a framework: those that hold text, in groups of limited size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from eddy_embed.text.tokenizer import raise_on_surrogates

T = TypeVar("T")

# Size of a call of the engine: enough to fill batches with short documents, with sentence vectors of some tens of
# megabytes at most.
BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 400_000


def with_text(
    documents: Iterable[T], text_of: Callable[[T], str], name_of: Callable[[T, int], str], made: str
) -> Iterator[T]:
    """Yield the documents that hold text, then name the others in one warning: they give no `made`.

    Raises:
        InvalidText: A document's text is not valid Unicode.
    """
    blank: list[str] = []
    index = -1
    for index, document in enumerate(documents):
        text = text_of(document)
        raise_on_surrogates(text, f"Document {name_of(document, index)}")
        if text.strip():
            yield document
        else:
            blank.append(name_of(document, index))
    warn_of_blank(blank, index + 1, made)


def warn_of_blank(names: Sequence[str], total: int, made: str, what: str = "documents") -> None:
    """Name the blank ones among `total` documents in one warning, if there are any: they give no `made`."""
    if names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        warnings.warn(f"{len(names)} of {total} {what} hold no text and give no {made}: {shown}", stacklevel=4)


def filled(texts: Iterable[str]) -> list[str]:
    """Texts for a framework that asks for a vector of each: a full stop in place of each that is blank.

    A blank text has no token that could be read, in a layout without a prompt not even one.
    """
    return [text if text.strip() else "." for text in texts]


def grouped_by_size(
    items: Iterable[T],
    size_of: Callable[[T], int],
    most_items: float = BATCH_DOCUMENTS,
    most_size: int = BATCH_CHARACTERS,
) -> Iterator[list[T]]:
    """Group items in order, by number and by size together; a larger item is a group by itself."""
    group: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if group and (len(group) == most_items or total + size > most_size):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group
