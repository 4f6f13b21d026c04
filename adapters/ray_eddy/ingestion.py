"""Ingest documents into an index: many embedders, one writer, and backpressure between them."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import ray
import ray.data

from chroma_eddy import Document, DocumentRow, Index, WriteReport, open_index
from chroma_eddy.write.writer import FIT_PASSAGES, GROUP_CHARACTERS, GROUP_DOCUMENTS
from eddy_embed.errors import InvalidParameter
from ray_eddy.actors import REFUSED, RESTARTED, EmbedDocuments, FilterUnchanged
from ray_eddy.cluster import actor_pool, max_actors, unwrap_errors
from ray_eddy.embedding import load_embedder
from ray_eddy.row_codec import to_tables
from ray_eddy.writer import IndexInfo, IndexWriter, Receipt, ServerWriter

MAX_IN_FLIGHT = 2
"""Unacknowledged deliveries to the writer above which no more are taken from embedders."""
BATCH_DOCUMENTS = 32
"""Documents in a batch of an embedder."""


@dataclass
class IngestReport(WriteReport):
    """What an ingestion changed in the index, and what happened meanwhile.

    Attributes:
        refused: Id and reason of each document that could not be stored or embedded.
        embedders_restarted: Number of restarts of embedders.
        writer_restarted: Number of restarts of the writer.
        waited: Seconds for which the writer waited for the server.
    """

    refused: list[tuple[str, str]] = field(default_factory=list)
    embedders_restarted: int = 0
    writer_restarted: int = 0
    waited: float = 0.0

    @property
    def done(self) -> int:
        """Number of documents written, unchanged or refused."""
        return self.written + self.relabelled + self.unchanged + len(self.refused)


Progress = Callable[[IngestReport], None]
"""Called after each write, and when documents turn out to be unchanged or refused."""


@dataclass(frozen=True)
class EmbedOptions:
    """How to embed documents; see `ingest`."""

    model_name: str
    settings: Mapping[str, Any]  # other arguments of `Embedder`
    concurrency: int | tuple[int, int] | None = None
    actors: Mapping[str, Any] = field(default_factory=dict)  # options of each actor, as for `map_batches`
    batch_size: int = BATCH_DOCUMENTS
    progress: Progress | None = None


def ingest(
    documents: ray.data.Dataset | Iterable[Document],
    place: str | os.PathLike[str],
    name: str,
    *,
    model_name: str,
    method: str = "recommended",
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    concurrency: int | tuple[int, int] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int = BATCH_DOCUMENTS,
    ray_remote_args: Mapping[str, Any] | None = None,
    patience: float = 600.0,
    progress: Progress | None = None,
    **settings: Any,
) -> IngestReport:
    """Embed and write new and changed documents; a second call continues an interrupted one.

    The index is one of `chroma_eddy.open_index`, with the same rows as its own `upsert` writes. If an embedder, a
    machine, the writer or the server dies, its work is repeated; since ids follow from the documents, nothing is
    written twice.

    Args:
        documents: Documents, or a dataset with the columns `id` and `text`; its other columns are metadata.
        place: URL of a Chroma server, written to by an actor; or a folder of this machine, written to by this process.
        name: Name of the index.
        model_name: As for `Embedder`.
        method: As for `Embedder`.
        passage_size: As in `open_index`.
        late: As in `open_index`.
        sentence_vectors: As in `open_index`.
        concurrency: Number of embedders, or (minimum, maximum); None: as many as fit on the cluster.
        num_cpus: CPUs for each embedder.
        num_gpus: GPUs for each embedder.
        batch_size: Documents in a batch of an embedder.
        ray_remote_args: Further options of the embedders' actors.
        patience: Maximum time in seconds to wait for a server that does not answer.
        progress: Called as the ingestion proceeds.
        **settings: The other arguments of `Embedder`.

    Raises:
        FingerprintMismatch: The index has vectors of another embedder, or a machine has another model or library.
        InvalidParameter: An argument is wrong.
        StorageError: The database failed, or the server did not come back.
    """
    sizes: dict[str, Any] = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    settings = {**settings, "method": method}
    actors = {"num_cpus": num_cpus, "num_gpus": num_gpus, **(ray_remote_args or {})}
    options = EmbedOptions(model_name, settings, concurrency, actors, batch_size, progress)
    if not (isinstance(place, str) and "://" in place):
        with open_index(place, name, load_embedder(model_name, settings), **sizes) as index:
            return ingest_into(index, documents, options)
    # This process only hands on deliveries; any machine may run the writer, which needs no CPU of its own.
    remote: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    writer = ray.remote(**remote)(ServerWriter).remote(place, name, model_name, settings, sizes, patience)
    with unwrap_errors():
        info: IndexInfo = ray.get(writer.index_info.remote())
    filtered = _filter_unchanged(documents, batch_size, (place, name, None, patience))
    return _run(filtered, info, options, lambda table: writer.write.remote(table), ray.get)


def ingest_into(
    index: Index,
    documents: ray.data.Dataset | Iterable[Document],
    options: EmbedOptions,
    *,
    fit_least: int = 0,
    begin: Callable[[Index], None] | None = None,
) -> IngestReport:
    """As `ingest`, into an index that this process has opened."""
    with index.writing():
        known: dict[str, DocumentRow] = index.entries()
        writer = IndexWriter(index, fit_least=fit_least, begin=begin)
        filtered = _filter_unchanged(documents, options.batch_size, (None, index.name, known, 0.0))
        return _run(filtered, writer.index_info(), options, writer.write, lambda receipt: receipt)


def _filter_unchanged(
    documents: ray.data.Dataset | Iterable[Document], batch_size: int, arguments: tuple[Any, ...]
) -> ray.data.Dataset:
    # A block for each batch: the unit that embedders share, that Ray repeats, and that the writer gets.
    if isinstance(documents, ray.data.Dataset):
        dataset = documents.repartition(target_num_rows_per_block=batch_size)
    else:
        given = list(documents)
        if not all(isinstance(each, Document) for each in given) or not given:
            raise InvalidParameter("documents must be a dataset of Ray, or chroma_eddy.Document, at least one")
        dataset = ray.data.from_arrow(to_tables(given, batch_size))
    return dataset.map_batches(
        FilterUnchanged, fn_constructor_args=arguments, batch_format="pyarrow", compute=actor_pool(1), num_cpus=0
    )


def _run(
    filtered: ray.data.Dataset,
    info: IndexInfo,
    options: EmbedOptions,
    send: Callable[[pa.Table], Any],
    acknowledge: Callable[[Any], Receipt],
) -> IngestReport:
    actors = options.actors
    embedded = filtered.map_batches(
        EmbedDocuments,
        fn_constructor_args=(options.model_name, options.settings, info.sizes, info.parts, info.fingerprint),
        batch_format="pyarrow",
        batch_size=options.batch_size,
        compute=actor_pool(options.concurrency or max_actors(actors.get("num_cpus"), actors.get("num_gpus"))),
        **{name: value for name, value in actors.items() if value is not None},
    )
    if info.unfitted:  # so that post-processing is fitted on the same passages as without Ray
        embedded.context.execution_options.preserve_order = True
    counters = _Counters(options.progress)
    in_flight: deque[Any] = deque()
    with unwrap_errors():
        tables = embedded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        for table in _deliveries(counters, tables, info.unfitted):
            in_flight.append(send(table))
            while len(in_flight) >= MAX_IN_FLIGHT:
                counters.count_write(acknowledge(in_flight.popleft()))
        while in_flight:
            counters.count_write(acknowledge(in_flight.popleft()))
    return counters.report


def _deliveries(counters: _Counters, tables: Iterable[pa.Table], unfitted: bool) -> Iterator[pa.Table]:
    """Yield documents to write; if post-processing is to be fitted, the documents for that come in one table."""
    first: list[pa.Table] = []
    threshold = _FitThreshold() if unfitted else None
    for table in tables:
        rest = counters.filter(table)
        if not rest.num_rows:
            continue
        if threshold is None:
            yield rest
            continue
        first.append(rest)
        if threshold.reached(rest):
            yield pa.concat_tables(first)
            first, threshold = [], None
    if first:
        yield pa.concat_tables(first)


class _FitThreshold:
    """Counts up to the documents on which an index fits its post-processing, and one more group, which triggers it."""

    def __init__(self) -> None:
        self._passages, self._documents, self._characters = 0, 0, 0

    def reached(self, table: pa.Table) -> bool:
        for row in table.select(["text", "spans"]).to_pylist():
            if self._passages >= FIT_PASSAGES:
                self._documents += 1
                self._characters += len(row["text"])
            self._passages += sum(span["first_sentence"] is not None for span in row["spans"])
        return self._documents > GROUP_DOCUMENTS or self._characters > GROUP_CHARACTERS


class _Counters:
    """Fills in the report, and refuses repeated ids."""

    def __init__(self, progress: Progress | None) -> None:
        self.report = IngestReport()
        self._progress = progress or (lambda _: None)
        self._seen: set[bytes] = set()
        self._workers: set[str] = set()
        self._writers: set[int] = set()

    def filter(self, table: pa.Table) -> pa.Table:
        """Keep the documents that are to be written, and count the others."""
        report = self.report
        self._workers |= set(table.column("worker").unique().to_pylist())
        report.embedders_restarted = sum(worker.endswith(RESTARTED) for worker in self._workers)
        states, errors, ids, texts = (table.column(name).to_pylist() for name in ("state", "error", "id", "text"))
        kept = []
        for at, (state, error, id_) in enumerate(zip(states, errors, ids, strict=True)):
            if state == REFUSED:
                report.refused.append((str(id_), error))
            elif self._is_repeated(id_):
                report.refused.append((id_, f"two documents have the id {id_!r:.80}; give each its own"))
            elif texts[at] is None:
                report.unchanged += 1
            else:
                kept.append(at)
        if len(kept) < len(states):
            self._progress(report)
        return table.take(pa.array(kept, pa.int64()))

    def _is_repeated(self, id_: str) -> bool:
        # 96 bits: short, and no collision among millions of ids.
        key = hashlib.blake2b(id_.encode(), digest_size=12).digest()
        repeated = key in self._seen
        self._seen.add(key)
        return repeated

    def count_write(self, receipt: Receipt) -> None:
        """Add a write to the report."""
        report = self.report
        for each in fields(WriteReport):
            setattr(report, each.name, getattr(report, each.name) + getattr(receipt.report, each.name))
        self._writers.add(receipt.process)
        report.writer_restarted = max(len(self._writers) - 1, 0)
        report.waited += receipt.waited
        self._progress(report)
