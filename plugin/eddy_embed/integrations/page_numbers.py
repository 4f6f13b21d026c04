"""Pages of a file as one text, and the pages that a span of it stands on."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def files(metadatas: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[int]]]:
    """The file of each group of pages, and their numbers; a document that is no page has a group and no file.

    Args:
        metadatas: Of documents that are pages or not.

    Raises:
        InvalidParameter: A page does not say of which file it is.
    """
    found: dict[str | int, list[int]] = {}
    for number, metadata in enumerate(metadatas):
        file = next((str(metadata[key]) for key in _FILES if metadata.get(key)), "")
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


def joined(texts: Sequence[str], metadatas: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The text of a file, and what its pages say alike, with where each of them begins.

    Args:
        texts: Of its pages, in order.
        metadatas: Of its pages.
    """
    texts = [text.lstrip("\r\n\f").rstrip() for text in texts]
    starts = [0]
    for text in texts[:-1]:
        starts.append(starts[-1] + len(text) + len(_BETWEEN))
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
    """Where the pages of a joined document begin; none of a document that was not joined.

    Attributes:
        starts: The first character of each.
        labels: Its label.
    """

    starts: tuple[int, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Pages:
        """What a document's metadata say."""
        pages = json.loads(metadata.get(PAGES, "[]"))
        return cls(tuple(start for start, _ in pages), tuple(label for _, label in pages))

    def told(self, start: int, end: int) -> dict[str, str]:
        """Metadata of a span: the labels of the pages on which it begins and ends; nothing where there are none."""
        if not self.starts:
            return {}
        first, last = (bisect_right(self.starts, at) - 1 for at in (start, max(start, end - 1)))
        return {LABEL: self.labels[first], LAST_LABEL: self.labels[last]}
