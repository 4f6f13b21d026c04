"""Hits made of rows."""

from __future__ import annotations

from typing import Any

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.rows.schema import user_metadata
from chroma_eddy.types import Hit
from eddy_embed.integrations import DOCUMENT, END, HEADINGS, START


def check_row(id_: str, row: Any) -> None:
    """Refuse a row that the index did not write."""
    if not row or DOCUMENT not in row:
        raise ForeignCollection(
            f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made its "
            "vector; delete it: index.collection.delete(ids=[...])"
        )


def make_hit(id_: str, row: Any, text: str, cosine: float) -> Hit:
    """A hit of a row with its text; it has no words yet."""
    start = row.get(START, 0)
    end = row.get(END, row.get("eddy_characters", start + len(text)))
    return Hit(
        *(id_, row[DOCUMENT], text, start, end, cosine, cosine, user_metadata(row)),
        headings=str(row.get(HEADINGS, "")),
        page=row.get("page"),
        last_page=row.get("last_page"),
        row=row,
    )
