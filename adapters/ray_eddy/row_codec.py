"""Whole documents with the vectors of all their parts, one to a row, as they travel from an embedder to the writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from chroma_eddy import Document
from eddy_embed import LongDocument, Passage, Span
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.inputs import check_kind
from ray_eddy.arrow_tables import matrix, vector_array, vector_type

_SPAN = pa.struct(
    [
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("n_tokens", pa.int64()),
        ("first_sentence", pa.int64()),
        ("last_sentence", pa.int64()),
        ("headings", pa.list_(pa.string())),
    ]
)
_COUNTS = ("n_tokens", "n_windows", "n_truncated")
DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("metadata", pa.string()),
        ("page_starts", pa.list_(pa.int64())),
        ("state", pa.string()),
        ("error", pa.string()),
    ]
)
_OWN = ("id", "text", "metadata", "page_starts", "error")


def tables_of(documents: Sequence[Document], size: int) -> list[pa.Table]:
    """Documents as tables of so many rows."""
    return [_table_of(documents[at : at + size]) for at in range(0, len(documents), size)]


def _table_of(documents: Sequence[Document]) -> pa.Table:
    for each in documents:
        # Blank texts and the like are refused one by one on the way; these could not even be sent.
        check_kind("the id of a document", each.id, str, "a string")
        check_kind(f"the text of document {each.id!r:.80}", each.text, str, "a string")
    rows = [{"id": each.id, "text": each.text, **told_of(each)} for each in documents]
    try:
        return pa.Table.from_pylist(rows, DOCUMENTS)
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"{error.object!r:.80} has half of a surrogate pair; read it with its real encoding"
        ) from None


def told_of(document: Document) -> dict[str, Any]:
    """Metadata and pages of a document, as columns.

    Raises:
        InvalidParameter: Its metadata are no plain values.
    """
    try:
        return {"metadata": json.dumps(dict(document.metadata)), "page_starts": list(document.page_starts)}
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"document {document.id!r:.80}: its metadata cannot be stored: {error}") from None


def document_of(row: Mapping[str, Any]) -> Document:
    """The document of a row: `id`, `text`, `page_starts`; all other columns, and `metadata`, are its metadata.

    Args:
        row: Its values, by name of the column; null is absent.

    Raises:
        InvalidParameter: Its metadata are no JSON object.
    """
    others = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    told = row.get("metadata")
    try:
        own = json.loads(told) if isinstance(told, str) else told or {}
    except ValueError as error:
        raise InvalidParameter(f"the column metadata must hold JSON objects: {error}") from None
    if not isinstance(own, Mapping):
        raise InvalidParameter(f"the column metadata must hold JSON objects, not {told!r:.60}")
    id_ = row.get("id")
    return Document(
        id_ if isinstance(id_, str) or id_ is None else str(id_),  # type: ignore[arg-type]
        row.get("text"),  # type: ignore[arg-type]
        {**own, **others},
        tuple(row.get("page_starts") or ()),
    )


def packed(table: pa.Table, results: Sequence[LongDocument | None], width: int) -> pa.Table:
    """Documents with columns for their vectors; of none where there is no result.

    Args:
        table: The documents.
        results: Their vectors.
        width: Of the vectors.
    """
    spans = [[] if each is None else [_row(span) for span in (*each.passages, *each.sentences)] for each in results]
    vectors = [
        vector
        for each in results
        if each is not None
        for vector in (each.vector, *(span.vector for span in (*each.passages, *each.sentences)))
    ]
    sizes = [0 if each is None else 1 + len(own) for each, own in zip(results, spans, strict=True)]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    table = table.append_column("spans", pa.array(spans, pa.list_(_SPAN)))
    for name in _COUNTS:
        table = table.append_column(name, pa.array([each and getattr(each, name) for each in results], pa.int64()))
    array = pa.LargeListArray.from_arrays(offsets, vector_array(vectors, width), type=pa.large_list(vector_type(width)))
    return table.append_column("vectors", array)


def _row(span: Span) -> dict[str, Any]:
    row: dict[str, Any] = {"start": span.start, "end": span.end, "n_tokens": span.n_tokens}
    if isinstance(span, Passage):
        row |= {"first_sentence": span.first_sentence, "last_sentence": span.last_sentence}
        row["headings"] = list(span.headings)
    return row


def unpacked(table: pa.Table) -> list[LongDocument | None]:
    """What `packed` was given."""
    column = table.column("vectors")
    sizes = [len(each) for each in column]
    rows: Any = [] if not sum(sizes) else matrix(pa.chunked_array([chunk.flatten() for chunk in column.chunks]))
    found: list[LongDocument | None] = []
    at = 0
    about = table.select(["text", "spans", *_COUNTS]).to_pylist()
    for size, row in zip(sizes, about, strict=True):
        own = rows[at : at + size]
        at += size
        found.append(_document(row, own) if size else None)
    return found


def _document(row: Mapping[str, Any], vectors: Any) -> LongDocument:
    passages, sentences = list[Passage](), list[Span]()
    for span, vector in zip(row["spans"], vectors[1:], strict=True):
        place = (span["start"], span["end"], span["n_tokens"], vector)
        if span["first_sentence"] is None:
            sentences.append(Span(*place))
        else:
            inside = (span["first_sentence"], span["last_sentence"], tuple(span["headings"]))
            passages.append(Passage(*place, *inside))
    return LongDocument(row["text"], vectors[0], passages, sentences, *(row[name] for name in _COUNTS))
