"""Pack whole documents with the vectors of all their parts into rows, for the way from an embedder to the writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from chroma_eddy import Document
from eddy_embed import LongDocument, Passage, Span
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.integrations import check_kind
from ray_eddy.arrow_tables import to_matrix, vector_array, vector_type

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
_DOCUMENT_COLUMNS = ("id", "text", "metadata", "page_starts", "error")


def to_tables(documents: Sequence[Document], size: int) -> list[pa.Table]:
    """Convert documents to tables of `size` rows."""
    return [_to_table(documents[at : at + size]) for at in range(0, len(documents), size)]


def _to_table(documents: Sequence[Document]) -> pa.Table:
    for each in documents:
        # Arrow cannot hold these; `FilterUnchanged` refuses blank texts and the like one by one.
        check_kind("the id of a document", each.id, str, "a string")
        check_kind(f"the text of document {each.id!r:.80}", each.text, str, "a string")
    rows = [{"id": each.id, "text": each.text, **metadata_columns(each)} for each in documents]
    try:
        return pa.Table.from_pylist(rows, DOCUMENTS)
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"{error.object!r:.80} has half of a surrogate pair; read it with its real encoding"
        ) from None


def metadata_columns(document: Document) -> dict[str, Any]:
    """Give the columns of a document's metadata and pages."""
    try:
        return {"metadata": json.dumps(dict(document.metadata)), "page_starts": list(document.page_starts)}
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"document {document.id!r:.80}: its metadata cannot be stored: {error}") from None


def to_document(row: Mapping[str, Any]) -> Document:
    """Build a document from a row: columns beside `id`, `text` and `page_starts` become metadata."""
    others = {name: value for name, value in row.items() if name not in _DOCUMENT_COLUMNS and value is not None}
    value = row.get("metadata")
    try:
        metadata = json.loads(value) if isinstance(value, str) else value or {}
    except ValueError as error:
        raise InvalidParameter(f"the column metadata must hold JSON objects: {error}") from None
    if not isinstance(metadata, Mapping):
        raise InvalidParameter(f"the column metadata must hold JSON objects, not {value!r:.60}")
    id_ = row.get("id")
    return Document(
        id_ if isinstance(id_, str) or id_ is None else str(id_),  # type: ignore[arg-type]
        row.get("text"),  # type: ignore[arg-type]
        {**metadata, **others},
        tuple(row.get("page_starts") or ()),
    )


def pack(table: pa.Table, results: Sequence[LongDocument | None], width: int) -> pa.Table:
    """Add columns for the vectors of documents; a document without a result gets an empty list."""
    parts = [[] if each is None else [*each.passages, *each.sentences] for each in results]
    vectors = [
        vector
        for each, spans in zip(results, parts, strict=True)
        if each is not None
        for vector in (each.vector, *(span.vector for span in spans))
    ]
    sizes = [0 if each is None else 1 + len(spans) for each, spans in zip(results, parts, strict=True)]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    rows = [[_span_row(span) for span in spans] for spans in parts]
    table = table.append_column("spans", pa.array(rows, pa.list_(_SPAN)))
    for name in _COUNTS:
        table = table.append_column(name, pa.array([each and getattr(each, name) for each in results], pa.int64()))
    array = pa.LargeListArray.from_arrays(offsets, vector_array(vectors, width), type=pa.large_list(vector_type(width)))
    return table.append_column("vectors", array)


def _span_row(span: Span) -> dict[str, Any]:
    row: dict[str, Any] = {"start": span.start, "end": span.end, "n_tokens": span.n_tokens}
    if isinstance(span, Passage):
        row |= {"first_sentence": span.first_sentence, "last_sentence": span.last_sentence}
        row["headings"] = list(span.headings)
    return row


def unpack(table: pa.Table) -> list[LongDocument | None]:
    """Give back the results that `pack` was given."""
    column = table.column("vectors")
    sizes = [len(each) for each in column]
    vectors: Any = [] if not sum(sizes) else to_matrix(pa.chunked_array([chunk.flatten() for chunk in column.chunks]))
    results: list[LongDocument | None] = []
    start = 0
    for size, row in zip(sizes, table.select(["text", "spans", *_COUNTS]).to_pylist(), strict=True):
        results.append(_to_long_document(row, vectors[start : start + size]) if size else None)
        start += size
    return results


def _to_long_document(row: Mapping[str, Any], vectors: Any) -> LongDocument:
    passages, sentences = list[Passage](), list[Span]()
    for span, vector in zip(row["spans"], vectors[1:], strict=True):
        values = (span["start"], span["end"], span["n_tokens"], vector)
        if span["first_sentence"] is None:
            sentences.append(Span(*values))
        else:
            passages.append(Passage(*values, span["first_sentence"], span["last_sentence"], tuple(span["headings"])))
    return LongDocument(row["text"], vectors[0], passages, sentences, *(row[name] for name in _COUNTS))
