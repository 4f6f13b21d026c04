"""`Index`: an index of documents in Chroma that knows what made its vectors, and loses none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from chroma_eddy.collection import OF_FRAMEWORKS, Collection, check_rows, check_vectors
from chroma_eddy.database import Place, connect
from chroma_eddy.rows import RowBatch, StoredDocument, fields, new_rows, relabelled, share_vectors
from chroma_eddy.search import Query, Unit, read_sentences, reranker_of, search
from chroma_eddy.storage import DOCUMENTS, MAIN, NEXT, Storage, check_index_name
from chroma_eddy.types import DIGEST, PREFIX, VECTOR, Document, Hit, LostVectors, Status, WriteReport, check_document
from eddy_embed.encoding.document import LongDocument, Passage, Span
from eddy_embed.encoding.validation import check_count, check_kind, check_one
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, grouped_by_size, warn_of_blank
from eddy_embed.integrations.shared import in_worker

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker  # import torch

# Most characters and documents that are embedded and written at a time: enough for full batches, little to embed again
# after an interruption; fewer characters where layers run, and the same texts take a hundred times as long.
GROUP_CHARACTERS, LAYERED_CHARACTERS, GROUP_DOCUMENTS = 200_000, 50_000, 256
_GROUP_ROWS = 5_000  # of documents that are read together: each read by digest makes the database look through all rows
Progress = Callable[[float, int], None]  # called with the number of characters embedded and of documents written so far
Encode = Callable[[Sequence[Any]], Sequence[LongDocument]]  # called with the documents that are new or changed
SpanType = TypeVar("SpanType", bound=Span)


class Index(Collection):
    """Documents in a Chroma database: vectors of passages, of sentences and of whole documents.

    `open_index` makes it. One process at a time may write and any number may read; until a new version of a document
    is complete, queries find the old one.
    """

    # --- State

    def status(self) -> Status:
        """Count what the index contains."""

        def read() -> Status:
            documents = [document for document in self.entries().values() if document.digest]
            following = self.storage.with_suffix(NEXT)
            return Status(
                *(self.name, self.settings.fingerprint, self.settings.embedder, self.dimension),
                documents=len(documents),
                passages=self.storage.count(MAIN),
                sentences=sum(document.sentences for document in documents),
                incomplete=tuple(self.incomplete()),
                rebuilt=None if following.find() is None else following.count(DOCUMENTS),
            )

        return self.read(read)

    def incomplete(self) -> list[str]:
        """Return ids of documents that are being written or removed, or were at a kill, or are damaged."""

        def read() -> list[str]:
            damaged_ids = {id_ for id_, document in self._entries(None).items() if not document.digest}
            return sorted({*self._pending(), *damaged_ids} - {""})

        return self.read(read, [])

    def check(self, *, full: bool = False) -> dict[str, str]:
        """Find documents that something else has changed, and mend damaged vectors; return the documents' problems.

        Queries leave out documents with missing rows, another text or other metadata than were written, until `upsert`
        or `sync` writes them again. Rows of versions that no document has are deleted, and the keywords are read anew.
        A sample of 100 rows of each collection, or all if `full`, is searched for by their own vectors. If one is not
        found so, Chroma's files are made anew from the vectors beside them, or those from Chroma's; no model runs.

        Raises:
            StorageError: Vectors are damaged in both places: `reindex` embeds the texts again.
        """
        with self.writing():
            problems = check_rows(self)
            check_vectors(self, full=full)
            return problems

    # --- Queries

    def query(
        self,
        question: str,
        k: int = 5,
        *,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        documents: Sequence[str] | None = None,
        unit: Unit = "passage",
        alpha: float | None = None,
        mmr: bool = False,
        fetch_k: int | None = None,
        lambda_mult: float = 0.5,
        sentences: bool = False,
        rerank: bool | Reranker = False,
        rerank_from: int | None = None,
        rerank_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> list[Hit]:
        """Find what answers a question by vectors and keywords (BM25) together, best first, with exact cosines.

        On a server and in memory, all texts are read at the first question; above 50,000 rows, search is by vectors
        alone, with a warning. docs/search.md has how the two are fused.

        Args:
            question: The question's text; search by keywords honours an "exact phrase", and -words that must be absent.
            k: Number of hits.
            where: Chroma's condition on metadata, `page` and `last_page`.
            where_document: Chroma's condition on passages' texts, such as `{"$contains": "ferry"}`.
            documents: Ids of the only documents to search; None: all.
            unit: What to search, and what a hit is: a "passage", or, by vectors, a "sentence" or a "document".
            alpha: Weight of the vectors, from 0, keywords alone, to 1, vectors alone; None: 0.5.
            mmr: Choose hits that differ from each other, by maximal marginal relevance.
            fetch_k: Rows that each of vectors and keywords contributes, and `mmr` chooses from; None: 100 and 20.
            lambda_mult: For `mmr`: 1 weighs only nearness, 0 only difference.
            sentences: Return the sentences of the passages, each with its cosine.
            rerank: Sort the best passages also by the likelihood that a language model gives the question after each:
                True for the model whose vectors are in the index, or a `Reranker`.
            rerank_from: How many of the best passages it reads; None: 10.
            rerank_seconds: Read the best of them for so long; None: all.
            progress: Called with windows read, their total, and "rerank"; what it raises ends the query.

        Raises:
            UnsupportedModel: The model of the index cannot re-rank, such as an encoder's.
            InvalidText: The question is blank, or not valid Unicode.
            InvalidParameter: Options are out of range or exclude each other.
        """
        check_one(question)
        options = {name: value for name, value in locals().items() if name not in ("self", "question")}
        query = Query(**{**options, "rerank": reranker_of(self, rerank)})
        embedder = self.embedder
        vector = embedder.encode_query(question, show_progress=False)[None].astype(np.float64)
        try:
            return search(self, vector, [question], query, embedder.fingerprint)[0]
        except FingerprintMismatch:
            if self.embedder.fingerprint == embedder.fingerprint:
                raise
        return self.query(question, **options)  # the index was made anew meanwhile

    def search(
        self,
        vectors: ArrayLike,
        k: int = 5,
        *,
        questions: Sequence[str] | None = None,
        fingerprint: str | None = None,
        ids: Sequence[str] | None = None,
        rerank: bool | Reranker = False,
        **options: Any,
    ) -> list[list[Hit]]:
        """As `query`, for questions that are embedded already: vectors of shape (questions, dimension).

        Keywords and `rerank` need the texts of the `questions`; without them, search is by vectors alone. `fingerprint`
        is that of the embedder of the vectors; None takes them for the index's own. `ids` names the only rows to
        search; None: all. The other `options` are those of `query`.

        Raises:
            FingerprintMismatch: Another embedder made the index's vectors, perhaps in another process meanwhile.
        """
        query = Query(k, ids=ids, rerank=reranker_of(self, rerank), **options)
        if rerank and questions is None:
            raise InvalidParameter("rerank= reads the texts of questions=, which are missing")
        vectors = np.atleast_2d(np.asarray(vectors, np.float64))
        return search(self, vectors, questions, query, fingerprint)

    # --- Documents

    def rebuilt(self) -> dict[str, StoredDocument]:
        """Return the documents that an unfinished reindexing has done, by id; none without one."""
        following = self.storage.with_suffix(NEXT, texts_only=True)
        return {} if following.find() is None else StoredDocument.by_id(following.get(DOCUMENTS, metadatas=True))

    def documents(self, ids: Sequence[str] | None = None) -> Iterator[Document]:
        """Read documents that queries find, as they were given, by ids; None: all."""

        def read(ids: Sequence[str]) -> list[Document]:
            documents = {document.id: document for document, _ in self._documents_of(self._document_rows(ids))}
            return [documents[id_] for id_ in ids if id_ in documents]

        stored = (document for document in self.entries(ids).values() if document.digest)
        for group in grouped_by_size(stored, lambda document: document.passages, math.inf, _GROUP_ROWS):
            yield from self.read(partial(read, [document.id for document in group]))

    def embedded(self, document: str) -> LongDocument | None:
        """Read a document by its id, with all vectors, but no sentence's number of tokens; None if it is not found."""
        return self.read(partial(self._embedded, document))

    def _embedded(self, id_: str) -> LongDocument | None:
        rows = self._document_rows([id_]) if self.exists else None
        if rows is None or not rows.ids:
            return None
        ((document, batch),) = self._documents_of(rows)
        of_passages = read_sentences(self, batch.metadatas, batch.texts)
        passages, sentences = list[Passage](), list[Span]()
        columns = zip(batch.metadatas, self.storage.vectors_of(MAIN, batch), of_passages, strict=True)
        for row, vector, (spans, vectors) in columns:
            inside = (len(sentences), len(sentences) + len(spans) - 1)
            headings = (str(row[HEADINGS]),) if HEADINGS in row else ()
            passages.append(Passage(row[START], row[END], fields(row)["n_tokens"], vector, *inside, headings))
            for (start, end), of_sentence in zip(spans, vectors, strict=True):
                sentences.append(Span(row[START] + start, row[START] + end, 0, of_sentence))
        sizes = [fields(rows.metadatas[0])[name] for name in ("tokens", "windows", "truncated")]
        return LongDocument(document.text, self.storage.vectors_of(DOCUMENTS, rows)[0], passages, sentences, *sizes)

    # --- Changes

    def upsert(
        self, documents: Iterable[Document], progress: Progress | None = None, *, encode: Encode | None = None
    ) -> WriteReport:
        """Embed and write new and changed documents; a second call changes nothing.

        After an interruption, call it again: documents that are stored whole are not embedded again. A warning names
        blank documents, which are left out; an earlier version of one stays.

        Args:
            documents: Whole documents, read one group at a time.
            progress: Called with the characters embedded and the documents written so far.
            encode: Gives documents' vectors, made elsewhere by the same embedder as `encoding` says.

        Raises:
            IndexInUse: Another process is writing.
            InvalidParameter, InvalidText: A document cannot be stored or embedded, or an id came twice.
            StorageError: The database failed; complete documents are kept.
        """
        with self.writing():
            return Writer(self, progress, encode).run(documents)

    def sync(self, documents: Iterable[Document], progress: Progress | None = None) -> WriteReport:
        """As `upsert`, then remove every document that is not among these, or is blank; at least one must be given."""
        with self.writing():
            writer = Writer(self, progress)
            report = writer.run(documents)
            if not writer.ids:
                raise InvalidParameter(
                    "sync was given no document, and would empty the index; to do so, call remove with the ids"
                )
            report.removed = self._remove([id_ for id_ in self.entries() if id_ not in writer.ids])
            return report

    def remove(self, ids: Iterable[str], *, erase: bool = False) -> int:
        """Remove documents by their ids; return the number of those that existed.

        Args:
            ids: The documents' ids.
            erase: Erase the texts of these, and of all removed or replaced before, from the files; it takes time and as
                much room again. Ids and vectors stay until `reindex`, as does memory that Chroma has saved with these.

        Raises:
            InvalidParameter: `erase` is asked of a server, or while a reindexing is unfinished.
        """
        chosen = [ids] if isinstance(ids, str) else list(ids)
        with self.writing():
            if erase and self.storage.connection.folder is None:
                raise InvalidParameter("erase=True needs an index in a folder: a server's files cannot be reached")
            if erase and self.storage.with_suffix(NEXT).look_up() is not None:
                raise InvalidParameter(
                    f"a reindexing of {self.name!r} is unfinished, whose files hold the texts too: finish it before "
                    "you erase"
                )
            removed = self._remove(chosen)
            if erase:
                self.storage.erase()
                self.keywords.rebuild()
            return removed

    def _remove(self, ids: Sequence[str]) -> int:
        documents = self._entries(ids)
        if documents:
            with self._transaction({id_: [document.digest] for id_, document in documents.items()}):
                self.storage.delete(DOCUMENTS, ids=list(documents))  # first: queries find none of it, or all
                digests = {document.digest for document in documents.values()}
                if self.storage.connection.folder is None:  # two writers may have left rows of other versions
                    for page in self.storage.pages(MAIN, where={DOCUMENT: {"$in": list(documents)}}, metadatas=True):
                        digests |= {row[DIGEST] for row in page.metadatas}
                self._delete_rows("digest", sorted(digests - {""}))
        return len(documents)

    def remove_rows(
        self,
        ids: Sequence[str] | None = None,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
    ) -> None:
        """Remove rows by ids and Chroma's conditions, None: all, and documents by their ids or those of all passages.

        Raises:
            InvalidParameter: A document is named beside conditions, or by some of its passages alone.
        """
        conditions = {"where": where, "where_document": where_document}
        given = [name for name, condition in conditions.items() if condition]
        with self.writing():
            whole = {*self.entries(ids)} if ids is not None or not given else set()
            if whole and given:
                raise InvalidParameter(f"document {min(whole)!r:.80} goes by its id alone: leave {given[0]}= out")
            got = self.get(ids, where, where_document, include=["metadatas"])
            rows = {id_: row or {} for id_, row in zip(got["ids"], got["metadatas"], strict=True)}
            passages = Counter(row[DOCUMENT] for row in rows.values() if row.get(DIGEST))
            for id_, entry in self.entries(sorted(passages.keys() - whole)).items():
                if passages[id_] != entry.passages:
                    raise InvalidParameter(f"document {id_!r:.60} loses no single passages: delete it whole, by its id")
            self._remove(sorted({*passages, *whole}))
            if others := [id_ for id_, row in rows.items() if row.get(DIGEST) == ""]:
                with self._transaction({OF_FRAMEWORKS: []}):
                    self._delete_rows("id", others)

    def reindex(
        self,
        embedder: Embedder,
        *,
        passage_size: int | None = None,
        late: bool | None = None,
        sentence_vectors: bool | None = None,
        restart: bool = False,
        progress: Progress | None = None,
    ) -> WriteReport:
        """Embed all documents again with another embedder, from their stored texts.

        The new index is built beside this one and replaces it when it is complete; until then, queries find this one.
        After an interruption, a call with the same arguments goes on where the last one stopped.

        Args:
            embedder: The new embedder.
            passage_size: As for `open_index`; None: as before.
            late: As for `open_index`; None: where no layer runs.
            sentence_vectors: As for `open_index`; None: as before.
            restart: Discard an unfinished reindexing and start again.
            progress: As for `upsert`.

        Raises:
            FingerprintMismatch: Another reindexing is unfinished.
            InvalidParameter: A framework has cut rows, whose documents are not here.
        """
        from eddy_embed import Embedder  # import torch

        check_kind("embedder", embedder, Embedder, "an Embedder")
        sizes = {**self.settings.sizes, "late": embedder.reads_late, **_chosen(passage_size, late, sentence_vectors)}
        with self.writing():
            if self._holds_framework_rows:
                raise InvalidParameter(
                    f"index {self.name!r} holds rows that a framework has cut out of documents which are not here, so "
                    "they cannot be embedded again: run the framework's ingestion into an index of another name"
                )
            visible = any(document.digest for document in self.entries().values())
            report = self._build_next(embedder, sizes, progress, restart) if visible else WriteReport()
            if self.storage.with_suffix(NEXT).metadata().get("eddy_ready"):
                self.storage.finish_swap(clean=True)
            else:
                self.storage.drop_all()
            self._requested, self._sizes = embedder, sizes
            self._reload()
            return report

    def _build_next(
        self, embedder: Embedder, sizes: Mapping[str, Any], progress: Progress | None, restart: bool
    ) -> WriteReport:
        """Build the index that is to replace this one, or go on with it, and mark it as complete."""
        try:
            begun = self.storage.with_suffix(NEXT)
            if begun.find() is not None:  # it may have stopped before it had both collections
                begun.find(DOCUMENTS)  # which mends Chroma's files of both
        except LostVectors:
            restart = True
        if restart:
            self.storage.with_suffix(NEXT, texts_only=True).drop_all()
        try:
            following = Index(self.storage.with_suffix(NEXT), embedder, sizes)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"an unfinished reindexing of {self.name!r} was begun with another embedder or other sizes: finish it "
                f"with those, or give restart=True to leave it and begin anew. {error}"
            ) from None
        with following.writing():
            writer = Writer(following, progress)
            report = writer.run(self.documents())
            report.removed = following._remove([id_ for id_ in following.entries() if id_ not in writer.ids])
        annotated = {name: value for name, value in self.storage.metadata().items() if not name.startswith(PREFIX)}
        following.storage.update_metadata(eddy_ready=True, **annotated)
        return report

    def annotate(self, **metadata: Any) -> None:
        """Store metadata with the main collection, unless they are there; begin the index for them if there is none."""
        if not metadata.items() <= self.storage.metadata().items():
            with self.writing():
                self._create()
                self.storage.update_metadata(**metadata)

    def drop(self) -> None:
        """Delete the index with all its rows; the next write begins a new one."""
        with self.writing():
            self.storage.drop_all()
            self._reload()

    def discard_rebuilt(self) -> None:
        """Delete what an unfinished reindexing has done, if there is one."""
        with self.writing():
            self.storage.with_suffix(NEXT, texts_only=True).drop_all()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(
    place: Place,
    name: str,
    embedder: Embedder | None = None,
    *,
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    texts_only: bool = False,
    timeout: float = 0.0,
) -> Index:
    """Open an index, or begin a new one; refuse one whose vectors another embedder made.

    Args:
        place: A folder, a Chroma server's URL such as "http://localhost:8000", or one of Chroma's clients.
        name: Name of the index and of its collection of passages; `<name>-documents` belongs to it.
        embedder: Embeds documents and questions. None: the index must exist, and embeds no texts.
        passage_size: Most tokens in a passage, which holds whole sentences; None: the index's own, 256 in a new one.
        late: Whether passages are pooled from the pass over their whole document (True) or embedded one by one; None:
            the index's own; in a new one, True where no layer runs.
        sentence_vectors: Whether sentences' vectors are stored, if the method runs layers, so that a passage's best
            sentence is found without the model; None: the index's own, True in a new one.
        texts_only: Read texts and metadata and no vector, also where those are lost.
        timeout: Seconds to wait while another process writes.

    Raises:
        FingerprintMismatch: The index was made by another embedder or in other sizes; the message shows both, field by
            field, and what to do.
        ForeignCollection: Something else made a collection of that name, or another version of this library.
        NoIndex: There is none, and no embedder to make one with.
        InvalidParameter: An argument has the wrong type.
        StorageError: The folder cannot be used, or the server does not answer.
    """
    from eddy_embed import Embedder  # import torch

    check_kind("embedder", embedder, Embedder | None, "an Embedder, or None")
    check_kind("timeout", timeout, int | float, "a number of seconds")
    check_index_name(name)
    sizes = _chosen(passage_size, late, sentence_vectors)
    connection = connect(place, create=embedder is not None, timeout=timeout)
    try:
        return Index(Storage(connection, name, texts_only=texts_only), embedder, sizes)
    except BaseException:
        connection.close()
        raise


def threaded(method: Callable[..., Any], run: Callable[[Any], Awaitable[Any]] = in_worker) -> Any:
    """Return an asynchronous version of a method; `run` runs it in a thread, by default in the one that embeds."""

    @wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await run(partial(method, self, *args, **kwargs))

    return call


def reindex(place: Place, name: str, embedder: Embedder, *, timeout: float = 0.0, **options: Any) -> WriteReport:
    """As `Index.reindex` with its `options`, also of an index whose vectors are lost: it reads texts and metadata.

    `place`, `name` and `timeout` are as for `open_index`.
    """
    with open_index(place, name, texts_only=True, timeout=timeout) as index:
        return index.reindex(embedder, **options)


def _chosen(passage_size: int | None, late: bool | None, sentence_vectors: bool | None) -> dict[str, Any]:
    check_count("passage_size", passage_size)
    check_kind("late", late, bool | None, "True or False")
    check_kind("sentence_vectors", sentence_vectors, bool | None, "True or False")
    sizes = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    return {size: value for size, value in sizes.items() if value is not None}


class Writer:
    """Writes documents group by group; `report` is what was done, `ids` are those of all but blank documents."""

    def __init__(self, index: Collection, progress: Progress | None = None, encode: Encode | None = None) -> None:
        """The index has an embedder, and the caller holds the writer's lock; further arguments as in `Index.upsert`."""
        self._index, self._progress, self._encode = index, progress or (lambda *_: None), encode
        self._characters = 0
        self.report = WriteReport()
        self.ids: set[str] = set()

    def run(self, documents: Iterable[Document]) -> WriteReport:
        """Write new and changed documents, as `Index.upsert` says."""
        check_kind("documents", documents, Iterable, "a list of chroma_eddy.Document")
        checked = self._checked([documents] if isinstance(documents, Document) else documents)
        size = LAYERED_CHARACTERS if self._index._runs_layers else GROUP_CHARACTERS
        for group in grouped_by_size(checked, lambda document: len(document.text), GROUP_DOCUMENTS, size):
            known = self._index._entries([document.id for document in group])
            relabel, embed = list[Document](), list[Document]()
            for document in group:
                stored = known.get(document.id)
                if stored is None or not stored.digest or stored.text_digest != document.text_digest:
                    embed.append(document)
                elif stored.digest != document.digest:
                    relabel.append(document)
            self.report.unchanged += len(group) - len(relabel) - len(embed)
            if relabel:
                self._relabel(relabel, known)
            if embed:
                self._embed(embed, known)
            self._progress(self._characters, self.report.written)
        return self.report

    def _checked(self, documents: Iterable[Document]) -> Iterator[Document]:
        blank, number = list[str](), -1
        for number, item in enumerate(documents):
            if isinstance(item, Document) and isinstance(item.text, str) and not item.text.strip():
                blank.append(repr(item.id))
                continue
            document = check_document(item, number)
            if document.id in self.ids:
                raise InvalidParameter(f"two documents have the id {document.id!r:.80}; give each its own")
            self.ids.add(document.id)
            yield document
        warn_of_blank(blank, number + 1, "passage")

    def _relabel(self, group: Sequence[Document], known: Mapping[str, StoredDocument]) -> None:
        """Write documents under other metadata, with the vectors that they have."""
        index, by_id = self._index, {document.id: document for document in group}
        old, parts = index._document_rows(list(by_id)), []
        old = replace(old, vectors=index.storage.vectors_of(DOCUMENTS, old))
        for at, (stored, passages) in enumerate(index._documents_of(old)):
            passages = replace(passages, vectors=index.storage.vectors_of(MAIN, passages))
            parts.append(relabelled(old.take([at]), passages, by_id[stored.id], index.settings))
        self._write(parts, group, known)
        self.report.relabelled += len(group)

    def _embed(self, group: Sequence[Document], known: Mapping[str, StoredDocument]) -> None:
        index, results = self._index, self._encoded(group)
        self._characters += sum(len(document.text) for document in group)
        index._create()
        columns = zip(group, results, self._append_sentences(results), strict=True)
        parts = [new_rows(document, result, index.settings, numbers) for document, result, numbers in columns]
        self._write(parts, group, known)
        report = self.report
        report.written += len(results)
        report.passages += sum(len(result.passages) for result in results)
        report.sentences += sum(result.passages[-1].last_sentence + 1 for result in results)
        report.tokens += sum(result.n_tokens for result in results)
        report.truncated += sum(result.n_truncated > 0 for result in results)

    def _encoded(self, group: Sequence[Document]) -> Sequence[LongDocument]:
        """Embed documents, or get their vectors from elsewhere."""
        if self._encode is not None:
            return self._encode(group)
        index, size = self._index, sum(len(document.text) for document in group)
        parts = [_embedded_spans(document) for document in group]
        results = index.embedder.encode_long(
            [document.text[slice(*span)] for document, spans in zip(group, parts, strict=True) for span in spans],
            **index.encoding,
            progress=lambda done, total, stage: self._progress(
                self._characters + size * done / max(total, 1), self.report.written
            ),
        )
        rest = iter(results)
        pairs = zip(group, parts, strict=True)
        return [_join_spans(document, spans, [*islice(rest, len(spans))]) for document, spans in pairs]

    def _append_sentences(self, results: Sequence[LongDocument]) -> list[Sequence[int]]:
        """Store the vectors of sentences, where they are kept; return their numbers, for each document."""
        vectors = self._index.storage.vectors
        if vectors is None or not self._index._stores_sentences:
            return [() for _ in results]
        numbers = vectors.sentences.append(np.stack([line.vector for result in results for line in result.sentences]))
        ends = accumulate(len(result.sentences) for result in results)
        return [numbers[end - len(result.sentences) : end] for result, end in zip(results, ends, strict=True)]

    def _write(
        self,
        parts: Iterable[tuple[RowBatch, RowBatch]],
        group: Sequence[Document],
        known: Mapping[str, StoredDocument],
    ) -> None:
        """Write documents' passages and rows; queries find the old or the new version of a document, always complete.

        The new version's passages are written beside the old ones. One write to the document's row exchanges the
        versions; then the old passages are deleted. After an interruption one version is complete, and the next writer
        deletes the rest.
        """
        index = self._index
        passages, rows = (RowBatch.concatenate(column) for column in zip(*parts, strict=True))
        versions = {document.id: [document.digest] for document in group}
        for id_, metadata in zip(rows.ids, rows.metadatas, strict=True):
            if id_ in known:
                versions[id_].append(known[id_].digest)
                # Chroma keeps entries that an update does not name, so those that are gone are named with None.
                metadata.update(dict.fromkeys({*known[id_].metadata, VECTOR} - set(metadata)))
        with index._transaction(versions):
            share_vectors(rows, index._put_rows(passages))
            index.storage.upsert(DOCUMENTS, rows)
            index._delete_rows("digest", [known[id_].digest for id_ in rows.ids if id_ in known and known[id_].digest])


def _embedded_spans(document: Document) -> list[tuple[int, int]]:
    """Return the spans of a document that are embedded; the whole text if all of it is left out."""
    borders = [0, *chain.from_iterable(document.left_out), len(document.text)]
    spans = zip(borders[::2], borders[1::2], strict=True)
    return [span for span in spans if document.text[slice(*span)].strip()] or [(0, len(document.text))]


def _join_spans(document: Document, spans: Sequence[tuple[int, int]], results: Sequence[LongDocument]) -> LongDocument:
    """Join the results of a document's parts; its vector is that of the longest."""
    if len(results) == 1 and spans[0] == (0, len(document.text)):
        return results[0]
    passages, sentences, sentence_spans = list[Passage](), list[Span](), list[tuple[int, int]]()
    for (start, _), result in zip(spans, results, strict=True):
        before = len(sentence_spans)
        for passage in result.passages:
            sentences_of = {name: getattr(passage, name) + before for name in ("first_sentence", "last_sentence")}
            passages.append(replace(_moved(passage, start), **sentences_of))
        sentences += [_moved(sentence, start) for sentence in result.sentences]
        sentence_spans += [(left + start, right + start) for left, right in result.sentence_spans]
    return LongDocument(
        document.text,
        max(results, key=lambda result: result.n_tokens).vector,
        passages,
        sentences,
        n_tokens=sum(result.n_tokens for result in results),
        n_windows=sum(result.n_windows for result in results),
        n_truncated=sum(result.n_truncated for result in results),
        sentence_spans=sentence_spans,
    )


def _moved(span: SpanType, by: int) -> SpanType:
    return replace(span, start=span.start + by, end=span.end + by)
