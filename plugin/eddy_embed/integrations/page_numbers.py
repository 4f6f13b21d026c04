"""Pages of a file as one text, and the pages that a span of it stands on."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from eddy_embed.errors import InvalidParameter

PAGES = "eddy_pages"
"""In the metadata of a joined document: its pages, each as its first character and its label, in JSON."""
LABEL, LAST_LABEL = "page_label", "last_page_label"
"""In the metadata of a page, what is printed on it or stands for that; of a passage, where it begins and ends."""

_FILES = ("file_path", "source", "url", "file_name")
_OF_A_PAGE = (LABEL, "page", PAGES)
_BETWEEN = "\n"
"""A line end and no more, and none at the end of a page, so that a sentence that goes on over its border is one."""


def page_name(metadata: Mapping[str, Any]) -> str:
    """The file and the page that metadata name, for messages; "" if they name no file."""
    file = _file_of(metadata)
    page = f", page {metadata[LABEL]}" if file and LABEL in metadata else ""
    return file + page


def _file_of(metadata: Mapping[str, Any]) -> str:
    return next((str(metadata[key]) for key in _FILES if metadata.get(key)), "")


def pages_by_file(metadatas: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """The file of each group of pages, and their numbers; a document that is no page has a group and no file."""
    found: dict[str | int, list[int]] = {}
    for number, metadata in enumerate(metadatas):
        file = _file_of(metadata)
        if LABEL not in metadata:
            found[number] = [number]
        elif file:
            found.setdefault(file, []).append(number)
        else:
            raise InvalidParameter(
                f"documents[{number}] is page {metadata[LABEL]!r} of no file; its metadata need one of "
                f"{', '.join(_FILES)}, by which pages are told to belong together"
            )
    return [(file if isinstance(file, str) else "", numbers) for file, numbers in found.items()]


def joined_pages(texts: Sequence[str], metadatas: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The text of a file, and the metadata that all its pages share, with where each of them begins."""
    texts = [text.lstrip("\r\n\f").rstrip() for text in texts]
    starts = accumulate((len(text) + len(_BETWEEN) for text in texts[:-1]), initial=0)
    first, *others = metadatas
    alike = {
        key: value
        for key, value in first.items()
        if key not in _OF_A_PAGE and all(key in other and other[key] == value for other in others)
    }
    labels = [str(metadata[LABEL]) for metadata in metadatas]
    return _BETWEEN.join(texts), {**alike, PAGES: json.dumps(list(zip(starts, labels, strict=True)))}


@dataclass(frozen=True)
class Pages:
    """First character and label of each page of a document; none of a document without pages."""

    starts: tuple[int, ...]
    page_labels: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Pages:
        """Page numbers in a document's metadata."""
        pages = json.loads(metadata.get(PAGES, "[]"))
        return cls(tuple(start for start, _ in pages), tuple(label for _, label in pages))

    def numbers(self, start: int, end: int) -> dict[str, int]:
        """Metadata of a span: the pages on which it begins and ends, counted from 1; empty where there are no pages."""
        if not self.starts:
            return {}
        return {"page": bisect_right(self.starts, start), "last_page": bisect_right(self.starts, max(start, end - 1))}

    def labels(self, start: int, end: int) -> dict[str, str]:
        """Metadata of a span: the labels of the pages on which it begins and ends; empty where there are no labels."""
        if not self.page_labels:
            return {}
        first, last = self.numbers(start, end).values()
        return {LABEL: self.page_labels[first - 1], LAST_LABEL: self.page_labels[last - 1]}
