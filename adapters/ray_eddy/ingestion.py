"""Documents into an index: many embedders, one writer, and between them no more than the writer keeps up with."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
import ray.data

from chroma_eddy import Document, Index, WriteReport, open_index
from chroma_eddy.writing import FIT_PASSAGES, GROUP_CHARACTERS, GROUP_DOCUMENTS
from eddy_embed.errors import InvalidParameter
from ray_eddy.actors import AGAIN, UNREAD, EmbedDocuments, SortOut
from ray_eddy.cluster import own_errors, pool, room
from ray_eddy.embedding import load
from ray_eddy.row_codec import tables_of
from ray_eddy.writer import About, IndexWriter, Receipt, ServerWriter

if TYPE_CHECKING:
    from chroma_eddy import Entry

IN_FLIGHT = 2
"""Deliveries that the writer has and has not answered; while there are so many, no more are taken from embedders."""
BATCH = 32
"""Documents that an embedder takes at a time."""


@dataclass
class IngestReport(WriteReport):
    """What was done to an index, and what happened on the way.

    Attributes:
        refused: Documents that could not be stored or embedded: id and reason.
        embedders_restarted: How often an embedder was started again.
        writer_restarted: How often the writer was.
        waited: Seconds for which the writer waited for the server.
    """

    refused: list[tuple[str, str]] = field(default_factory=list)
    embedders_restarted: int = 0
    writer_restarted: int = 0
    waited: float = 0.0

    @property
    def done(self) -> int:
        """Documents that were dealt with."""
        return self.written + self.relabelled + self.unchanged + len(self.refused)


Progress = Callable[[IngestReport], None]
"""Called whenever documents were written, or were found to need nothing."""


def ingest(
    documents: ray.data.Dataset | Iterable[Document],
    place: str | os.PathLike[str],
    name: str,
    *,
    model_name: str,
    method: str,
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    concurrency: int | tuple[int, int] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int = BATCH,
    ray_remote_args: Mapping[str, Any] | None = None,
    patience: float = 600.0,
    progress: Progress | None = None,
    **settings: Any,
) -> IngestReport:
    """Embed and write what is new or has changed; started again, it goes on with what is left.

    The index is one of `chroma_eddy.open_index`, with the same rows as its own `upsert` writes. Whatever is killed
    meanwhile, an embedder, a machine, the writer, the server, does what it was at again; ids that follow from the
    documents make that harmless.

    Args:
        documents: With an id and a text each. Of a dataset, the columns `id` and `text`; further columns are metadata.
        place: A Chroma server's URL, to which an actor writes; or a folder of this machine, to which this process
            does.
        name: The index's.
        model_name: As for `Embedder`.
        method: Likewise.
        passage_size: As in `open_index`.
        late: Likewise.
        sentence_vectors: Likewise.
        concurrency: Embedders; (least, most) for a pool that grows; None: what there is room for.
        num_cpus: Processors for each.
        num_gpus: Graphics cards for each.
        batch_size: Documents that an embedder takes at a time.
        ray_remote_args: Further options of the embedders' actors.
        patience: Seconds to wait for a server that does not answer.
        progress: Told how far it is.
        **settings: The other arguments of `Embedder`.

    Raises:
        FingerprintMismatch: The index was made by another embedder, or a machine has another one.
        InvalidParameter: An argument is wrong.
        StorageError: The database failed, or the server did not come back.
    """
    sizes: dict[str, Any] = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    told = {**settings, "method": method}
    actors = {"num_cpus": num_cpus, "num_gpus": num_gpus, **(ray_remote_args or {})}
    work = Work(model_name, told, concurrency, actors, batch_size, progress)
    if not (isinstance(place, str) and "://" in place):
        with open_index(place, name, load(model_name, told), **sizes) as index:
            return into(index, documents, work)
    # Nothing is asked of this process's own machine but to hand deliveries on.
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    writer = ray.remote(**options)(ServerWriter).remote(place, name, model_name, told, sizes, patience)
    with own_errors():
        about: About = ray.get(writer.about.remote())
    found = _dataset(documents, batch_size).map_batches(
        SortOut,
        fn_constructor_args=(place, name, None, patience),
        batch_format="pyarrow",
        compute=pool(1),
        num_cpus=0,
    )
    return _run(found, about, work, lambda table: writer.write.remote(table), ray.get)


@dataclass(frozen=True)
class Work:
    """How documents are embedded.

    Attributes:
        model_name: As for `Embedder`.
        settings: Likewise.
        concurrency: Embedders; (least, most) for a pool that grows; None: what there is room for.
        actors: Options of each, as `map_batches` has them.
        batch_size: Documents that an embedder takes at a time.
        progress: Told how far it is.
    """

    model_name: str
    settings: Mapping[str, Any]
    concurrency: int | tuple[int, int] | None = None
    actors: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = BATCH
    progress: Progress | None = None


def into(
    index: Index,
    documents: ray.data.Dataset | Iterable[Document],
    work: Work,
    *,
    fit_least: int = 0,
    begin: Callable[[Index], None] | None = None,
) -> IngestReport:
    """As `ingest`, into an index that this process has opened, and writes to.

    Args:
        index: With an embedder of the same model and method.
        documents: As there.
        work: How they are embedded.
        fit_least: As in `Index.upsert`.
        begin: Likewise.
    """
    with index.writing():
        known: dict[str, Entry] = index.entries()
        writer = IndexWriter(index, fit_least=fit_least, begin=begin)
        found = _dataset(documents, work.batch_size).map_batches(
            SortOut,
            fn_constructor_args=(None, index.name, known, 0.0),
            batch_format="pyarrow",
            compute=pool(1),
            num_cpus=0,
        )
        return _run(found, writer.about(), work, writer.write, lambda receipt: receipt)


def _dataset(documents: ray.data.Dataset | Iterable[Document], size: int) -> ray.data.Dataset:
    if isinstance(documents, ray.data.Dataset):
        # Each batch by itself: what embedders share, what is done again, and what the writer gets at a time.
        return documents.repartition(target_num_rows_per_block=size)
    given = list(documents)
    if not all(isinstance(each, Document) for each in given) or not given:
        raise InvalidParameter("documents must be a dataset of Ray, or chroma_eddy.Document, at least one")
    return ray.data.from_arrow(tables_of(given, size))


def _run(
    sorted_out: ray.data.Dataset,
    about: About,
    work: Work,
    deliver: Callable[[pa.Table], Any],
    answer: Callable[[Any], Receipt],
) -> IngestReport:
    embedded = sorted_out.map_batches(
        EmbedDocuments,
        fn_constructor_args=(work.model_name, work.settings, about.sizes, about.parts, about.fingerprint),
        batch_format="pyarrow",
        batch_size=work.batch_size,
        compute=pool(work.concurrency or room(work.actors.get("num_cpus"), work.actors.get("num_gpus"))),
        **{name: value for name, value in work.actors.items() if value is not None},
    )
    if about.unfitted:  # on the first passages, which are then the same as without Ray
        embedded.context.execution_options.preserve_order = True
    tally = _Tally(work.progress)
    pending: deque[Any] = deque()
    with own_errors():
        tables = embedded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        for table in _deliveries(tally, tables, about.unfitted):
            pending.append(deliver(table))
            while len(pending) >= IN_FLIGHT:
                tally.add(answer(pending.popleft()))
        while pending:
            tally.add(answer(pending.popleft()))
    return tally.report


def _deliveries(tally: _Tally, tables: Iterable[pa.Table], unfitted: bool) -> Iterator[pa.Table]:
    """Documents to be written; the first ones together, if post-processing is to be fitted on them."""
    first: list[pa.Table] = []
    enough = _Enough() if unfitted else None
    for table in tables:
        left = tally.take(table)
        if not left.num_rows:
            continue
        if enough is None:
            yield left
            continue
        first.append(left)
        if enough.add(left):
            yield pa.concat_tables(first)
            first, enough = [], None
    if first:
        yield pa.concat_tables(first)


class _Enough:
    """Whether there are as many documents as an index fits its post-processing on, and a group more, which it ends."""

    def __init__(self) -> None:
        self._passages, self._documents, self._characters = 0, 0, 0

    def add(self, table: pa.Table) -> bool:
        for row in table.select(["text", "spans"]).to_pylist():
            if self._passages >= FIT_PASSAGES:
                self._documents += 1
                self._characters += len(row["text"])
            self._passages += sum(span["first_sentence"] is not None for span in row["spans"])
        return self._documents > GROUP_DOCUMENTS or self._characters > GROUP_CHARACTERS


class _Tally:
    """Counts what was done, and finds ids that came twice."""

    def __init__(self, progress: Progress | None) -> None:
        self.report = IngestReport()
        self._progress = progress or (lambda _: None)
        self._seen: set[bytes] = set()
        self._workers: set[str] = set()
        self._writers: set[int] = set()

    def take(self, table: pa.Table) -> pa.Table:
        """What is to be written, of documents that were sorted out and embedded."""
        report = self.report
        self._workers |= set(table.column("worker").unique().to_pylist())
        report.embedders_restarted = sum(worker.endswith(AGAIN) for worker in self._workers)
        states, errors, ids, texts = (table.column(name).to_pylist() for name in ("state", "error", "id", "text"))
        left = []
        for at, (state, error, id_) in enumerate(zip(states, errors, ids, strict=True)):
            if state == UNREAD:
                report.refused.append((str(id_), error))
            elif self._is_known(id_):
                report.refused.append((id_, f"two documents have the id {id_!r:.80}; give each its own"))
            elif texts[at] is None:
                report.unchanged += 1
            else:
                left.append(at)
        if len(left) < len(states):
            self._progress(report)
        return table.take(pa.array(left, pa.int64()))

    def _is_known(self, id_: str) -> bool:
        # Of millions of ids, these are the shortest that never meet.
        key = hashlib.blake2b(id_.encode(), digest_size=12).digest()
        known = key in self._seen
        self._seen.add(key)
        return known

    def add(self, receipt: Receipt) -> None:
        """Count what the writer did."""
        report = self.report
        for each in fields(WriteReport):
            setattr(report, each.name, getattr(report, each.name) + getattr(receipt.report, each.name))
        self._writers.add(receipt.process)
        report.writer_restarted = max(len(self._writers) - 1, 0)
        report.waited += receipt.waited
        self._progress(report)
