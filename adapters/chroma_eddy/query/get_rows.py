"""Rows as Chroma's `get` gives them, without those that queries leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.options import conjunction
from chroma_eddy.rows.conditions import check_conditions
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN


def get_rows(
    index: IndexCore,
    ids: Sequence[str] | None = None,
    where: dict[str, Any] | None = None,
    where_document: dict[str, Any] | None = None,
    *,
    limit: int | None = None,
    offset: int | None = None,
    include: Sequence[str] = ("metadatas", "documents"),
) -> dict[str, Any]:
    """Read passages and pieces that queries find, as `Collection.get` of Chroma does; empty without an index.

    Raises:
        InvalidParameter: A condition is none of Chroma's.
    """
    check_conditions(where, where_document)
    if not index.exists:
        columns = ("embeddings", "documents", "uris", "data", "metadatas")
        return {"ids": [], "included": list(include), **{name: [] if name in include else None for name in columns}}

    def read() -> dict[str, Any]:
        hidden = sorted(index.hidden_versions())
        condition = conjunction([each for each in (where, hidden and {DIGEST: {"$nin": hidden}}) if each])
        with translated_errors(index.store.place):
            return dict(
                index.store.collection(MAIN).get(
                    ids=None if ids is None else list(ids),
                    where=condition,
                    where_document=where_document or None,  # type: ignore[arg-type]
                    limit=limit,
                    offset=offset,
                    include=list(include),  # type: ignore[arg-type]
                )
            )

    return index.read(read)
