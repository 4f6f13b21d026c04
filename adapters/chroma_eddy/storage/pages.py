"""Rows of a collection, read in pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray

PAGE_SIZE = 1000
"""Rows in a page."""


@dataclass(frozen=True)
class Rows:
    """Rows of a collection; fields that were not requested are empty."""

    ids: list[str]
    metadatas: list[dict[str, Any]]
    texts: list[str]
    vectors: NDArray[np.float32]

    @classmethod
    def parse(cls, got: Any) -> Rows:
        """The rows that Chroma's `get` returned."""
        return cls(
            got["ids"],
            [dict(row or {}) for row in got["metadatas"] or []],
            list(got["documents"] or []),
            np.zeros((0, 0), np.float32) if got["embeddings"] is None else np.asarray(got["embeddings"], np.float32),
        )

    def take(self, numbers: Sequence[int]) -> Rows:
        """Some of the rows, by their numbers."""
        return Rows(
            [self.ids[at] for at in numbers],
            [self.metadatas[at] for at in numbers],
            [self.texts[at] for at in numbers] if self.texts else [],
            self.vectors[list(numbers)] if len(self.vectors) else self.vectors,
        )

    @classmethod
    def concatenate(cls, pages: Iterable[Rows]) -> Rows:
        """The rows of all pages."""
        pages = list(pages)
        vectors = [page.vectors for page in pages if len(page.vectors)]
        return cls(
            [id_ for page in pages for id_ in page.ids],
            [row for page in pages for row in page.metadatas],
            [text for page in pages for text in page.texts],
            np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32),
        )


def slices(count: int, limit: int) -> Iterator[slice]:
    """Slices of at most `limit` out of `count` rows."""
    return (slice(start, start + limit) for start in range(0, count, limit))


def pages(
    collection: Collection, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
) -> Iterator[Rows]:
    """Rows by id or condition, or all rows, page by page, with `fields` of `metadatas`, `documents`, `embeddings`."""
    include: Any = [name for name, wanted in fields.items() if wanted]
    for start in count(0, PAGE_SIZE) if ids is None else range(0, len(ids), PAGE_SIZE):
        page: dict[str, Any] = {"limit": PAGE_SIZE, "offset": start}
        if ids is not None:
            page = {"ids": list(ids[start : start + PAGE_SIZE])}
        got = collection.get(where=where, include=include, **page)
        if got["ids"]:
            yield Rows.parse(got)
        if ids is None and len(got["ids"]) < PAGE_SIZE:
            return
