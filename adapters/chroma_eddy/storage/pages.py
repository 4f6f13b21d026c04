"""Rows of a collection, read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.storage.failures import translated_errors

if TYPE_CHECKING:
    from pathlib import Path

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


def read_pages(
    collection: Collection,
    place: Path | str | None,
    ids: Sequence[str] | None,
    where: Any,
    fields: Mapping[str, bool],
) -> Iterator[Rows]:
    """Read rows page by page, as `Store.get` says; `place` is for error messages."""
    include: Any = [name for name, wanted in fields.items() if wanted]
    for start in count(0, PAGE_SIZE) if ids is None else range(0, len(ids), PAGE_SIZE):
        with translated_errors(place):
            if ids is not None:
                got = collection.get(ids=list(ids[start : start + PAGE_SIZE]), where=where, include=include)
            else:
                got = collection.get(where=where, limit=PAGE_SIZE, offset=start, include=include)
        if got["ids"]:
            yield _parse_rows(got)
        if ids is None and len(got["ids"]) < PAGE_SIZE:
            return


def _parse_rows(got: Any) -> Rows:
    vectors = got["embeddings"]
    return Rows(
        got["ids"],
        [dict(row or {}) for row in got["metadatas"] or []],
        list(got["documents"] or []),
        np.zeros((0, 0), np.float32) if vectors is None else np.asarray(vectors, np.float32),
    )
