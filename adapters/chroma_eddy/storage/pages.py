"""Rows of a collection, and the size of the pages in which they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
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
