"""Ray actors on the way of documents into an index: filter unchanged ones, and embed new ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray

from chroma_eddy import DocumentRow, NoIndex, open_index
from chroma_eddy.types import check_document
from chroma_eddy.write.writer import classify
from eddy_embed import Embedder, LongDocument
from eddy_embed.errors import EddyError, FingerprintMismatch
from eddy_embed.integrations import Part
from ray_eddy.arrow_tables import to_table
from ray_eddy.embedding import encode_or_errors, load_embedder, read_errors, without_fitted_post
from ray_eddy.reading import ORDER_COLUMNS, SCHEMA
from ray_eddy.retry import retry_unreachable
from ray_eddy.row_codec import DOCUMENTS, metadata_columns, pack, to_document

RESTARTED = " again"
"""Suffix of the name of a restarted embedder."""
REFUSED = "refused"
"""State of a document that cannot be stored or embedded, with the reason in `error`; `classify` gives the others."""


class FilterUnchanged:
    """Compares documents with the index, or the server's if `known` is None; no unchanged one is embedded again."""

    def __init__(self, place: str | None, name: str, known: Mapping[str, DocumentRow] | None, patience: float) -> None:
        self._place, self._name, self._known, self._patience = place, name, known, patience

    def __call__(self, batch: Any) -> pa.Table:
        """Give documents their state in a table of `DOCUMENTS`; columns beside `id` and `text` are metadata."""
        table = to_table(batch)
        if table.column_names == SCHEMA.names:  # from `read_documents`; elsewhere such columns are metadata
            table = table.drop_columns(list(ORDER_COLUMNS))
        rows: list[dict[str, Any]] = []
        documents = {}
        for at, (row, error) in enumerate(zip(table.to_pylist(), read_errors(table), strict=True)):
            id_ = None if row.get("id") is None else str(row["id"])
            rows.append({"id": id_, "text": row.get("text"), "state": REFUSED, "error": error})
            if error is not None:
                continue
            try:
                documents[at] = check_document(to_document(row), at)
            except EddyError as refusal:
                rows[at]["error"] = str(refusal)
        known = self._entries([each.id for each in documents.values()])
        for at, document in documents.items():
            state = classify(document, known.get(document.id))
            complete = state == "unchanged" and not known[document.id].pending
            rows[at] |= {"state": state, "error": None}
            rows[at] |= {"text": None} if complete else metadata_columns(document)
        return pa.Table.from_pylist(rows, DOCUMENTS)

    def _entries(self, ids: Sequence[str]) -> Mapping[str, DocumentRow]:
        if self._known is not None or not ids:
            return self._known or {}
        return retry_unreachable(lambda: _known_entries(str(self._place), self._name, ids), self._patience)


def _known_entries(place: str, name: str, ids: Sequence[str]) -> Mapping[str, DocumentRow]:
    try:
        with open_index(place, name) as index:
            return index.entries(ids)
    except NoIndex:  # nothing was written yet
        return {}


class EmbedDocuments:
    """Embeds new documents and passes on the others; the fingerprint is the writer's, without post-processing."""

    def __init__(
        self,
        model_name: str,
        settings: Mapping[str, Any],
        sizes: Mapping[str, Any],
        parts: Sequence[Part],
        fingerprint: str,
    ) -> None:
        self.embedder: Embedder = without_fitted_post(load_embedder(model_name, settings))
        address = ray.util.get_node_ip_address()
        if self.embedder.fingerprint != fingerprint:
            raise FingerprintMismatch(
                f"`{model_name}` gives other vectors on {address} than on the writer's machine.\nFingerprint "
                f"{self.embedder.fingerprint}, the writer's {fingerprint}: the machines have different weights, or "
                "versions of this library or of spaCy; make them the same"
            )
        self._sizes, self._parts = dict(sizes), tuple(parts)
        self._worker = f"{os.getpid()}@{address}"
        if ray.is_initialized() and ray.get_runtime_context().was_current_actor_reconstructed:
            self._worker += RESTARTED

    def __call__(self, table: pa.Table) -> pa.Table:
        """Add the vectors of documents to rows of `FilterUnchanged`; refuse documents that cannot be embedded."""
        rows = table.to_pylist()
        new = [at for at, row in enumerate(rows) if row["state"] == "new"]
        results = list[Any]([None] * len(rows))
        embedded = encode_or_errors(self._encode, [rows[at]["text"] for at in new], [None] * len(new))
        for at, result in zip(new, embedded, strict=True):
            if isinstance(result, EddyError):
                rows[at] |= {"state": REFUSED, "error": str(result)}
            else:
                results[at] = result
        worker = pa.array([self._worker] * len(rows), pa.string())
        packed = pack(pa.Table.from_pylist(rows, DOCUMENTS), results, self.embedder.dimension)
        return packed.append_column("worker", worker)

    def _encode(self, texts: list[str]) -> list[LongDocument]:
        return self.embedder.encode_long(texts, parts=self._parts, **self._sizes)
