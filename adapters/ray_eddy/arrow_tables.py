"""Arrow tables of vectors, flat: a row for each part of a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eddy_embed import LongDocument, Span
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import Floats, Part

NEW_COLUMNS = ("part", "index", "start", "end", "n_tokens", "n_windows", "n_truncated", "headings", "vector")
"""Columns that embedding adds to those of the documents."""


def to_table(batch: Any) -> pa.Table:
    """Convert a batch of Ray, a table, a dictionary of arrays or a data frame, to an Arrow table."""
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, dict):
        columns = {name: list(column) if np.ndim(column) > 1 else column for name, column in batch.items()}
        return pa.table(columns)
    if hasattr(batch, "to_dict") and hasattr(batch, "columns"):
        return pa.Table.from_pandas(batch, preserve_index=False)
    raise InvalidParameter(f"a batch of type {type(batch).__name__}; use batch_format='pyarrow', 'numpy' or 'pandas'")


def vector_array(vectors: Sequence[Floats | None], width: int) -> pa.FixedSizeListArray:
    """Build a column of lists of fixed size from vectors of shape (width,); None becomes null."""
    values = np.zeros((len(vectors), width), np.float32)
    for at, vector in enumerate(vectors):
        if vector is not None:
            values[at] = vector
    mask = pa.array([vector is None for vector in vectors], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=vector_type(width), mask=mask)


def vector_type(width: int) -> pa.DataType:
    """The Arrow type of a vector."""
    return pa.list_(pa.float32(), width)


def to_matrix(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float32]:
    """Convert a column of vectors without nulls to an array of shape (rows, width)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of none
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return np.asarray(array.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(-1, array.type.list_size)


def flat_table(
    table: pa.Table,
    results: Sequence[LongDocument | str],
    parts: Sequence[Part],
    width: int,
    text_column: str,
    *,
    errors: bool,
) -> pa.Table:
    """Build a table with a row for each part of each document, and with the document's other columns.

    The column of texts gets each part's own text. A string as a result is the reason for a document without vectors.
    """
    owners: list[int] = []
    rows: dict[str, list[Any]] = {name: [] for name in (*NEW_COLUMNS, "text", "error")}
    for owner, result in enumerate(results):
        if isinstance(result, str):
            owners.append(owner)
            _append(rows, part=next(iter(parts)), index=0, error=result, text=table.column(text_column)[owner].as_py())
            continue
        for part, index, span in _parts_of(result, parts):
            owners.append(owner)
            _append(rows, part=part, index=index, **_part_values(result, span))
    kept = [name for name in table.column_names if name not in (text_column, "error")]
    carried = table.select(kept).take(pa.array(owners, pa.int64()))
    types = {"part": pa.string(), "headings": pa.list_(pa.string()), "start": pa.int64(), "end": pa.int64()}
    columns = {name: carried.column(name) for name in kept}
    columns[text_column] = pa.array(rows["text"], pa.string())
    for name in NEW_COLUMNS[:-1]:  # all but the vector
        columns[name] = pa.array(rows[name], types.get(name, pa.int32()))
    columns["vector"] = vector_array(rows["vector"], width)
    if errors:
        columns["error"] = pa.array(rows["error"], pa.string())
    return pa.table(columns)


def _parts_of(result: LongDocument, parts: Iterable[Part]) -> list[tuple[Part, int, Span | None]]:
    wanted = set(parts)
    spans: list[tuple[Part, int, Span | None]] = [("document", 0, None)] if "document" in wanted else []
    if "passages" in wanted:
        spans += [("passages", at, span) for at, span in enumerate(result.passages)]
    if "sentences" in wanted:
        spans += [("sentences", at, span) for at, span in enumerate(result.sentences)]
    return spans


def _part_values(result: LongDocument, span: Span | None) -> dict[str, Any]:
    start, end = (0, len(result.text)) if span is None else (span.start, span.end)
    return {
        "start": start,
        "end": end,
        "n_tokens": result.n_tokens if span is None else span.n_tokens,
        "n_windows": result.n_windows,
        "n_truncated": result.n_truncated,
        "headings": list(getattr(span, "headings", ())),
        "vector": result.vector if span is None else span.vector,
        "text": result.text[start:end],
    }


def _append(rows: dict[str, list[Any]], **values: Any) -> None:
    for name, column in rows.items():
        column.append(values.get(name))
