"""What Ray's actors do to batches of documents on their way into an index: sort them out, and embed what is new."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from chroma_eddy import NoIndex, open_index
from chroma_eddy.document import check_document
from chroma_eddy.writing import sort_of
from eddy_embed.errors import EddyError, FingerprintMismatch
from ray_eddy.arrow_tables import as_table
from ray_eddy.embedding import load, raw, told, unread
from ray_eddy.reading import KEY, SCHEMA
from ray_eddy.retry import patiently
from ray_eddy.row_codec import DOCUMENTS, document_of, packed, told_of

if TYPE_CHECKING:
    from chroma_eddy import Entry
    from eddy_embed import Embedder, LongDocument
    from eddy_embed.document import Part

AGAIN = " again"
"""Behind the name of an embedder that was started again."""
UNREAD = "refused"
"""The state of a document that cannot be stored or embedded, which `error` says why; others are `writing.Sort`."""


class SortOut:
    """Says of documents what there is to do for them, by what the index has, so that nothing is embedded twice."""

    def __init__(self, place: str | None, name: str, known: Mapping[str, Entry] | None, patience: float) -> None:
        """Look at nothing yet.

        Args:
            place: A server's URL.
            name: The index's.
            known: What is known of its documents; None: the server is asked.
            patience: Seconds to wait for a server that does not answer.
        """
        self._place, self._name, self._known, self._patience = place, name, known, patience

    def __call__(self, batch: Any) -> pa.Table:
        """The documents, in the columns that the following stages know.

        Args:
            batch: Documents in columns `id` and `text`; others are metadata.
        """
        table = as_table(batch)
        if table.column_names == SCHEMA.names:  # of `read_documents`; elsewhere such columns are metadata
            table = table.drop_columns(list(KEY))
        reasons = unread(table)
        rows = []
        documents = {}
        for at, (row, reason) in enumerate(zip(table.to_pylist(), reasons, strict=True)):
            found: dict[str, Any] = {"id": None if row.get("id") is None else str(row["id"]), "text": row.get("text")}
            found |= {"state": UNREAD, "error": reason}
            rows.append(found)
            if reason is not None:
                continue
            try:
                documents[at] = check_document(document_of(row), at)
            except EddyError as error:
                found["error"] = str(error)
        known = self._entries([each.id for each in documents.values()])
        for at, document in documents.items():
            state = sort_of(document, known.get(document.id))
            whole = state == "unchanged" and not known[document.id].other
            rows[at] |= {"state": state, "error": None}
            # Of what is there already nothing more is said than that.
            rows[at] |= {"text": None} if whole else told_of(document)
        return pa.Table.from_pylist(rows, DOCUMENTS)

    def _entries(self, ids: Sequence[str]) -> Mapping[str, Entry]:
        if self._known is not None or not ids:
            return self._known or {}
        return patiently(lambda: _asked(str(self._place), self._name, ids), self._patience)


def _asked(place: str, name: str, ids: Sequence[str]) -> Mapping[str, Entry]:
    try:
        with open_index(place, name) as index:
            return index.entries(ids)
    except NoIndex:  # nothing was written yet
        return {}


class EmbedDocuments:
    """Embeds what is new, and hands the rest on."""

    def __init__(
        self,
        model_name: str,
        settings: Mapping[str, Any],
        sizes: Mapping[str, Any],
        parts: Sequence[Part],
        fingerprint: str,
    ) -> None:
        """Load the model.

        Args:
            model_name: As for `Embedder`.
            settings: Likewise.
            sizes: `passage_size` and `late`.
            parts: Which vectors.
            fingerprint: Of the writer's own embedder, post-processing left out.

        Raises:
            FingerprintMismatch: This machine's model, or library, is another one.
        """
        self.embedder: Embedder = raw(load(model_name, settings))
        if self.embedder.fingerprint != fingerprint:
            raise FingerprintMismatch(
                f"{model_name} on {ray.util.get_node_ip_address()} makes vectors of fingerprint "
                f"{self.embedder.fingerprint}, and the writer's is {fingerprint}: the machines have different weights, "
                "or versions of this library or of spaCy; make them the same"
            )
        self._sizes, self._parts = dict(sizes), tuple(parts)
        self._worker = f"{os.getpid()}@{ray.util.get_node_ip_address()}"
        if ray.is_initialized() and ray.get_runtime_context().was_current_actor_reconstructed:
            self._worker += AGAIN

    def __call__(self, table: pa.Table) -> pa.Table:
        """The documents with their vectors; one that cannot be embedded is refused.

        Args:
            table: As `SortOut` gave it.
        """
        rows = table.to_pylist()
        new = [at for at, row in enumerate(rows) if row["state"] == "new"]
        results = list[Any]([None] * len(rows))
        made = told(self._encode, [rows[at]["text"] for at in new], [None] * len(new))
        for at, result in zip(new, made, strict=True):
            if isinstance(result, EddyError):
                rows[at] |= {"state": UNREAD, "error": str(result)}
            else:
                results[at] = result
        told_again = pa.Table.from_pylist(rows, DOCUMENTS)
        worker = pa.array([self._worker] * len(rows), pa.string())
        return packed(told_again, results, self.embedder.dimension).append_column("worker", worker)

    def _encode(self, texts: list[str]) -> list[LongDocument]:
        return self.embedder.encode_long(texts, parts=self._parts, **self._sizes)
