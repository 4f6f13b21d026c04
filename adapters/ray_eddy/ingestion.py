"""`ingest`: a pool of embedders on the cluster, and the index's own writer in this process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import ray
import ray.data

from chroma_eddy import Document, WriteReport, check_document, open_index
from eddy_embed import LongDocument
from eddy_embed.errors import EddyError, FingerprintMismatch
from eddy_embed.integrations.documents import isolate_failures
from ray_eddy.embedding import EddyEmbed, reason


@dataclass
class IngestReport(WriteReport):
    """What an ingestion changed in the index; `refused` gives the id of each document that it left out, and why."""

    refused: list[tuple[str, str]] = field(default_factory=list)


def ingest(
    documents: ray.data.Dataset,
    place: str | os.PathLike[str],
    name: str,
    *,
    model_name: str,
    concurrency: int | None = None,
    num_gpus: float | None = None,
    batch_size: int = 32,
    progress: Callable[[float, int], None] | None = None,
    **settings: Any,
) -> IngestReport:
    """Embed new and changed documents on the cluster, and write them as `Index.upsert` does, in this process.

    After a kill of this process, call this again: documents that are stored whole are not embedded again.

    Args:
        documents: A dataset with the columns `id`, `text` and, for pages, `page_starts`; others are metadata.
        place: As for `open_index`.
        name: As for `open_index`.
        model_name: As for `Embedder`; every machine must have the model. A file for `fitted=` is read here alone.
        concurrency: Number of embedders; None: as many as Ray finds room for.
        num_gpus: GPUs for each embedder.
        batch_size: Documents that an embedder takes at a time, and embeds again if it is killed.
        progress: As for `Index.upsert`.
        **settings: `passage_size`, `late` and `sentence_vectors` of `open_index`, and other arguments of `Embedder`.

    Raises:
        FingerprintMismatch: The index has vectors of another embedder, or a machine has another model or library.
        StorageError: The database failed; complete documents are kept.
    """
    sizes = {size: settings.pop(size, None) for size in ("passage_size", "late", "sentence_vectors")}
    # This process embeds nothing, and leaves the GPUs to those that do.
    embedder = EddyEmbed(model_name, **{**settings, "device": "cpu"}).embedder
    with open_index(place, name, embedder, **sizes) as index, index.writing():
        embedder = index.embedder
        settings = {**settings, "method": str(embedder.method), "fitted": embedder.post, **index.encoding}
        known = {id_: row.text_digest for id_, row in index.entries().items() if row.digest}
        embedded = documents.repartition(target_num_rows_per_block=batch_size).map_batches(
            _EmbedNew,
            fn_constructor_kwargs={"known": known, "model_name": model_name, **settings},
            batch_format="pyarrow",
            batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=concurrency),
            num_gpus=num_gpus,
        )

        def encode(deliveries: Sequence[_Delivery]) -> list[LongDocument]:
            # One without vectors is new all the same if somebody else has changed the index meanwhile.
            return [item.result or embedder.encode_long(item.text, **index.encoding) for item in deliveries]

        refused = list[tuple[str, str]]()
        report = index.upsert(_deliveries(embedded, embedder.fingerprint, refused), progress, encode=encode)
        return IngestReport(**vars(report), refused=refused)


@dataclass(frozen=True)
class _Delivery(Document):
    """A document with its vectors, or why there are none; None: the index has its text."""

    result: Any = None
    made_by: str = ""


class _EmbedNew(EddyEmbed):
    """Embeds the documents whose texts the index lacks, and passes on all."""

    def __init__(self, known: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self._known, self._made_by = known, self.embedder.fingerprint

    def __call__(self, batch: Any) -> pa.Table:
        """Turn documents into pickled deliveries, one a row: Ray may cut a block between any two rows."""
        documents = [_to_document(row) for row in batch.to_pylist()]
        pairs = zip(documents, isolate_failures(self._embed, documents, EddyError), strict=True)
        rows = [pickle.dumps(_Delivery(**vars(sent), result=result, made_by=self._made_by)) for sent, result in pairs]
        return pa.table({"delivery": pa.array(rows, pa.large_binary())})

    def _embed(self, documents: list[Document]) -> list[LongDocument | None]:
        checked = [check_document(document, at) for at, document in enumerate(documents)]
        new = [self._known.get(document.id) != document.text_digest for document in checked]
        results = iter(self._encode([document.text for document, is_new in zip(checked, new, strict=True) if is_new]))
        return [next(results) if is_new else None for is_new in new]


def _deliveries(embedded: ray.data.Dataset, fingerprint: str, refused: list[tuple[str, str]]) -> Iterator[_Delivery]:
    """Yield documents as the cluster delivers them; list those that are left out in `refused`."""
    seen = set()
    for table in embedded.iter_batches(batch_size=None, batch_format="pyarrow"):
        for delivery in map(pickle.loads, table.column("delivery").to_pylist()):
            if delivery.made_by != fingerprint:
                raise FingerprintMismatch(
                    f"an embedder of the cluster has the fingerprint {delivery.made_by}, the one here {fingerprint}: "
                    "give their machines the same weights, and the same versions of this library and of spaCy"
                )
            if isinstance(delivery.result, EddyError):
                refused.append((str(delivery.id), reason(delivery.result)))
            elif delivery.id in seen:
                refused.append((delivery.id, "another document has the same id; give each its own"))
            else:
                seen.add(delivery.id)
                yield delivery


def _to_document(row: dict[str, Any]) -> Document:
    id_, text, pages = (row.pop(name, None) for name in ("id", "text", "page_starts"))
    metadata = {name: value for name, value in row.items() if value is not None}
    starts = () if pages is None else tuple(map(int, pages))
    return Document(id_ if id_ is None else str(id_), text, metadata, starts)  # type: ignore[arg-type]
