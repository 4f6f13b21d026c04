"""`Collection`: rows in a Chroma database that know what made their vectors, with keywords, and changed all or not."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import chromadb
import numpy as np
from chromadb.errors import InternalError, NotFoundError

from chroma_eddy.database import translated_errors
from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.keywords import Keywords
from chroma_eddy.rows import (
    IndexSettings,
    RowBatch,
    StoredDocument,
    check_conditions,
    conjunction,
    join_text,
    user_metadata,
)
from chroma_eddy.storage import DOCUMENTS, MAIN, PAGE_SIZE, Storage, slices, vector_numbers
from chroma_eddy.types import DIGEST, Document, ForeignCollection, NoIndex, StorageError, check_metadata, damaged
from eddy_embed.encoding.validation import raise_on_surrogates
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, FINGERPRINT
from eddy_embed.integrations.shared import unrelated_cosines
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.utils.arrays import Doubles, Floats, unit
from eddy_embed.utils.settings import contrast

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker  # import torch

_SAMPLE = 1000  # most rows whose cosines say what a question's cosines are like
_PENDING = "eddy_pending"  # metadata of the main collection: versions in work, by their documents' ids
OF_FRAMEWORKS = ""  # in place of a document's id: frameworks' rows are being written or removed
_GROUP_ROWS = 5_000  # frameworks' rows that are looked up and written at a time
T = TypeVar("T")


class Collection:
    """Rows of a Chroma collection: ids, texts, vectors of one embedder, metadata, and keywords.

    A row is a passage of a document that an `Index` has cut, of one version of it, or was cut by a framework, and then
    belongs to no version. `settings` say what makes the vectors.
    """

    settings: IndexSettings

    def __init__(self, storage: Storage, embedder: Embedder | None, sizes: Mapping[str, Any]) -> None:
        """Open it, with the chosen of its `sizes`; finish a swap of collections that was interrupted."""
        self.storage, self.name, self._sizes, self._requested = storage, storage.name, dict(sizes), embedder
        self._embedder: Embedder | None = None
        self.reranker: Reranker | None = None
        self.has_warned = False  # that it searches by vectors alone
        self.keywords = Keywords(storage, lambda: str(self.settings.embedder["segmenter"]).rsplit(":", 2)[1])
        self._sample: tuple[str, Doubles] | None = None
        self._identity: Any = None
        storage.wait_for_swap()
        self._reload()

    @property
    def exists(self) -> bool:
        """Whether the main collection exists."""
        return self.storage.find() is not None

    @property
    def was_absent(self) -> bool:
        """Whether the main collection did not exist at the last reload."""
        return self._identity is None

    @property
    def embedder(self) -> Embedder:
        """The embedder, with the fitted post-processing that the vectors were made with; NoIndex if none was given."""
        if self._embedder is None:
            raise NoIndex(f"index {self.name!r} was opened without an embedder; give one to open_index to embed texts")
        return self._embedder

    @property
    def dimension(self) -> int:
        """Width of the stored vectors; 0 where neither an embedder nor an index says it."""
        if self._embedder is not None:
            return self._embedder.dimension
        return int(self.storage.metadata().get("eddy_dimension", 0))

    @property
    def encoding(self) -> dict[str, Any]:
        """Arguments of `encode_long` that give what the index stores of a document."""
        parts = ["document", "passages", *["sentences"] * self._stores_sentences]
        return {"passage_size": self.settings.passage_size, "late": self.settings.late, "parts": parts}

    @property
    def _runs_layers(self) -> bool:
        """Whether the embedder runs layers of its model."""
        return self._embedder is not None and self._embedder.method.exit_layer > 0

    @property
    def _stores_sentences(self) -> bool:
        """Whether sentences' vectors are stored: where the method runs layers, so that a sentence takes a pass."""
        return self.settings.sentence_vectors and self._runs_layers and self.storage.connection.folder is not None

    @property
    def searches_by(self) -> str:
        """How queries search by default: "hybrid", or "vectors" where there are too many rows without a folder."""
        return "vectors" if self.read(lambda: self.keywords.too_many) else "hybrid"

    @property
    def collection(self) -> chromadb.Collection:
        """Chroma's main collection; Chroma embeds questions to it with the index's embedder."""
        function: Any = None if self._embedder is None else EddyEmbeddingFunction.from_embedder(self._embedder)
        with translated_errors(self.storage.place):
            return self.storage.client.get_collection(self.name, embedding_function=function)

    def version(self) -> tuple[str, str]:
        """Fingerprint of the stored vectors, and a mark that each write of any process renews; "" if there are none."""
        metadata = self.storage.metadata()
        return str(metadata.get(FINGERPRINT, "")), str(metadata.get("eddy_written", ""))

    @property
    def _holds_framework_rows(self) -> bool:
        """Whether frameworks have written rows."""
        with translated_errors(self.storage.place):
            return self.exists and bool(self.storage.collection().get(where={DIGEST: ""}, limit=1, include=[])["ids"])

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.settings.sizes.items())
        place = None if self.storage.place is None else str(self.storage.place)
        return f"{type(self).__name__}({self.name!r}, {place=!r}, embedder={self._embedder!r}, {sizes})"

    def close(self) -> None:
        """Close the database's files, unless somebody else uses the client."""
        self.storage.connection.close()

    # --- Reading

    def read(self, action: Callable[[], T], nothing: T | None = None) -> T:
        """Read the index; if it has changed meanwhile, reload it and read once more, while nobody may write.

        Without an index, `nothing` is returned, unless that is None: the action says what it finds there.
        FingerprintMismatch if it is another embedder's now, ForeignCollection if something else has changed its rows.
        """
        try:
            if self.storage.refresh() != self._identity:
                raise NotFoundError(f"index {self.name!r} was made anew by another process")
            if self.was_absent and nothing is not None:
                return nothing
            before = self._state(self.storage.known_metadata)
            result = action()
            # Rows that were deleted under a search are missing from what it finds, and nothing else tells.
            if self._state(self.storage.metadata()) == before:
                return result
        except (NotFoundError, ForeignCollection, StorageError) as error:
            # Beside another process's write, a search fails with an InternalError, or misses files of an index before.
            beside_a_write = isinstance(error.__cause__, InternalError) or self.storage.refresh() != self._identity
            if isinstance(error, StorageError) and not beside_a_write:
                raise
        self.keywords.clear_memory()  # a row may be gone or new that it does not know
        while True:
            self._reload()
            with translated_errors(self.storage.place), self.storage.connection.alone:
                self.storage.connection.reopen()
                main = self.storage.find()
                # Who replaces an index does not hold this lock, and may have done so since the reload.
                if (None if main is None else main.id) == self._identity:
                    return nothing if main is None and nothing is not None else action()

    def _pending(self, metadata: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
        """Return versions whose rows are being written or removed, or were at a kill, by document."""
        known = self.storage.known_metadata if metadata is None else metadata
        pending: dict[str, list[str]] = json.loads(known.get(_PENDING) or "{}")
        return pending

    def _hidden_versions(self, metadata: Mapping[str, Any] | None = None) -> set[str]:
        """Return versions whose rows queries leave out: they are being written or removed."""
        pending = self._pending(metadata)
        digests = {digest for versions in pending.values() for digest in versions if digest}
        rows = self.storage.get(DOCUMENTS, metadatas=True, ids=sorted(pending)) if digests else RowBatch([], [])
        return digests - {row[DIGEST] for row in rows.metadatas}

    def _state(self, metadata: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a value that changes whenever a write could have affected a concurrent read."""
        return metadata.get("eddy_written"), metadata.get(_PENDING), self._hidden_versions(metadata)

    def get(
        self,
        ids: Sequence[str] | None = None,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        *,
        limit: int | None = None,
        offset: int | None = None,
        include: Sequence[str] = ("metadatas", "documents"),
    ) -> dict[str, Any]:
        """Read rows that queries find, as Chroma's `Collection.get` does; none without an index, or of no ids."""
        check_conditions(where, where_document)
        columns = ("embeddings", "documents", "metadatas")
        nothing: dict[str, Any] = {"ids": [], **{name: [] if name in include else None for name in columns}}
        options: dict[str, Any] = {"where_document": where_document or None, "limit": limit, "offset": offset}
        options["include"] = list(include)
        chosen = [] if ids is None else list(dict.fromkeys(ids))
        most = PAGE_SIZE if limit is offset is None else max(len(chosen), 1)  # Chroma takes no more than 32,766
        parts = [None] if ids is None else [chosen[part] for part in slices(len(chosen), most)]

        def read() -> dict[str, Any]:
            hidden = sorted(self._hidden_versions())
            visible = conjunction([where, {DIGEST: {"$nin": hidden}} if hidden else None])
            with translated_errors(self.storage.place):
                get: Any = partial(self.storage.collection().get, where=visible, **options)
                first, *others = [dict(get(ids=part)) for part in parts]
            wanted = [name for name, column in nothing.items() if others and column is not None]
            return first | {name: [*chain(first[name], *(page[name] for page in others))] for name in wanted}

        return self.read(read, nothing) if parts else nothing

    def entries(self, ids: Sequence[str] | None = None) -> dict[str, StoredDocument]:
        """Return what is stored of documents beside their texts, by id; None: of all."""
        return self.read(partial(self._entries, ids), {})

    def _entries(self, ids: Sequence[str] | None) -> dict[str, StoredDocument]:
        """As `entries`, within `read` or `writing`."""
        return StoredDocument.by_id(self.storage.get(DOCUMENTS, ids=ids, metadatas=True)) if self.exists else {}

    def _document_rows(self, ids: Sequence[str] | None) -> RowBatch:
        """Read the rows of documents that queries find."""
        rows = self.storage.get(DOCUMENTS, ids=ids, metadatas=True)
        return rows.take([at for at, row in enumerate(rows.metadatas) if row[DIGEST]])

    def _documents_of(self, rows: RowBatch) -> Iterator[tuple[Document, RowBatch]]:
        """Yield documents, by their rows, with their passages in order; ForeignCollection if one is damaged."""
        digests, batches = [row[DIGEST] for row in rows.metadatas], list[RowBatch]()
        for batch in slices(len(digests), PAGE_SIZE):
            where = {DIGEST: {"$in": digests[batch]}}
            batches += self.storage.pages(MAIN, where=where, metadatas=True, documents=True)
        found, by_digest = RowBatch.concatenate(batches), defaultdict[str, list[int]](list)
        for at, metadata in enumerate(found.metadatas):
            by_digest[metadata[DIGEST]].append(at)
        for stored, metadata in zip(StoredDocument.by_id(rows).values(), rows.metadatas, strict=True):
            passages = found.take(by_digest[stored.digest]).in_order()
            document = stored.document(join_text(passages, metadata))
            if len(passages.ids) != stored.passages or document.digest != stored.digest:
                raise damaged(stored.id, f"passages in {self.name}, or the text or metadata that it was written with")
            yield document, passages

    def _sample_vectors(self) -> Doubles:
        """Vectors of length 1 of a sample of rows, shape (sample, dimension); read again when rows changed."""
        written = str(self.storage.known_metadata.get("eddy_written"))
        if self._sample is None or self._sample[0] != written:
            rows = RowBatch.concatenate(self.storage.sample(MAIN, _SAMPLE))
            vectors = self.storage.vectors_of(MAIN, rows) if rows.ids else np.zeros((0, self.dimension))
            self._sample = written, unit(vectors.astype(np.float64))
        return self._sample[1]

    def _reload(self) -> None:
        """Read the stored settings; FingerprintMismatch if the embedder's differ, NoIndex if there is neither."""
        storage, embedder = self.storage, self._requested
        storage.connection.check_open()
        storage.clear_cache()
        main = storage.look_up()
        if main is None:  # a swap may be between the two names of the main collection
            storage.wait_for_swap()
            main = storage.look_up()
        stored = None if main is None else IndexSettings.parse(self.name, main.metadata or {})
        vectors = storage.vectors
        if embedder is not None and not embedder.is_fitted and vectors is not None and vectors.fit.exists():
            fitted = Fitted.load(vectors.fit)
            embedder = embedder.with_post(fitted) if fitted.post == embedder.method.post else embedder
        requested, opened = stored, dict[str, Any]()
        if embedder is not None:
            opened = {"model_name": embedder.model_name, "method": str(embedder.method)}
            requested = IndexSettings.of(embedder)
            requested = requested if stored is None else replace(requested, **stored.sizes)
        if requested is None:
            raise NoIndex(f"there is no index {self.name!r}; give an embedder to make one")
        requested = replace(requested, **self._sizes)
        if main is not None and stored is not None and (differing := stored.differences(requested)):
            made = (main.configuration_json.get("embedding_function") or {}).get("config") or {}
            same = stored.fingerprint == requested.fingerprint
            raise FingerprintMismatch(
                f"Index {self.name!r} was {'made with other sizes' if same else contrast(made, opened)}.\n{differing}\n"
                "Their vectors cannot be compared. Open it with the embedder and the sizes that it was made with, or "
                f"embed its documents again: chroma_eddy.reindex(place, {self.name!r}, embedder)."
            )
        self.settings = stored or requested
        self._embedder, self._identity = embedder, None if main is None else main.id

    # --- Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock, which may be IndexInUse, and clean up after a writer that was killed."""
        with self.storage.lock:
            self.storage.refresh()
            if self._pending():  # a writer was killed, and could not say what it had written
                self.storage.connection.reopen()
            self.storage.rebuild_files()
            self.storage.finish_swap(clean=True)
            self._reload()
            self._recover()
            yield

    def _recover(self) -> None:
        """Complete or undo what a killed writer has left.

        Between two durable writes of a `_transaction` it left one of these states:

        1. Versions are pending; none, some or all of their rows are written, with or without keywords, and no row of a
           document names them: rows and keywords are deleted.
        2. The document's row names the new version: the rows of the old one are deleted, with their keywords.
        3. The document's row is deleted: its rows are deleted, with their keywords.
        4. Frameworks' rows are written or deleted, and nobody knows whose keywords are: all are read again.
        5. Everything is done and still pending: only the mark is taken away.

        In each, Chroma's files of vectors may be torn: `Storage.rebuild_files` has made them anew from the vectors'
        file, which only grows; numbers in there that no row names are left.
        """
        pending = self._pending()
        if self.keywords.missing or OF_FRAMEWORKS in pending:
            self.keywords.rebuild()
        if pending:
            with self.storage.transaction():
                self._delete_rows("digest", sorted(self._hidden_versions()))
            self.storage.mark_written(**{_PENDING: ""})

    @contextmanager
    def _transaction(self, versions: Mapping[str, Sequence[str]]) -> Iterator[None]:
        """Let rows of versions change, by their documents' ids: first they are marked as pending, at the end as done.

        Queries find a version if its document's row names it; another is left out, and deleted by `_recover`.
        """
        pending = json.dumps({id_: list(digests) for id_, digests in versions.items()})
        with translated_errors(self.storage.place), self.storage.connection.alone:
            self.storage.refresh()  # a reader may have made the files of vectors anew since the last change
            before = str(self.storage.known_metadata.get("eddy_written"))
            self.storage.update_metadata(**{_PENDING: pending})
            try:
                with self.storage.transaction():
                    yield
                if self.storage.connection.folder is None and self.version()[1] != before:  # another client's write
                    self.keywords.clear_memory()
                token = self.storage.mark_written(**{_PENDING: ""})
            except BaseException:
                self.keywords.clear_memory()
                raise
            self.keywords.mark_written(before, token)

    def _put_rows(self, rows: RowBatch) -> RowBatch:
        """Write rows within a `_transaction`, and then their keywords; return them as they are stored."""
        stored = replace(rows, metadatas=self.storage.upsert(MAIN, rows))
        self.keywords.put(stored)
        return stored

    def _delete_rows(self, key: Literal["id", "digest"], values: Sequence[str]) -> None:
        """Delete rows within a `_transaction`, by their ids or versions, with their keywords."""
        for batch in slices(len(values), PAGE_SIZE):
            chosen = list(values[batch])
            which: dict[str, Any] = {"ids": chosen} if key == "id" else {"where": {DIGEST: {"$in": chosen}}}
            self.storage.delete(MAIN, **which)
        self.keywords.delete(key, values)

    def _create(self) -> None:
        """Create the collections if they do not exist, and keep the embedder's fitted post-processing beside them."""
        if self.exists:
            return
        embedder = self.embedder
        mean, deviation = unrelated_cosines(embedder)
        about = {**self.settings.metadata, "eddy_dimension": embedder.dimension}
        about |= {"eddy_unrelated_mean": mean, "eddy_unrelated_deviation": deviation}
        function, fitted = EddyEmbeddingFunction.from_embedder(embedder), embedder.post if embedder.is_fitted else None
        self.storage.create(about, function, fitted)
        self._identity = self.storage.refresh()
        self.keywords.rebuild()

    # --- Rows that a framework has cut

    def upsert_rows(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        vectors: Sequence[Any] | Floats,
        metadatas: Sequence[Mapping[str, Any]],
        documents: Sequence[str],
        fingerprint: str,
    ) -> None:
        """Write rows that a framework has cut and embedded; those of known ids are replaced.

        A second call changes nothing; after an interruption, call this again. `vectors`, of shape (rows, dimension),
        are those of the index's embedder when it had this `fingerprint`; `documents` are the ids of those that the rows
        belong to, of which the index knows nothing else. None values in `metadatas` are left out.

        Raises:
            FingerprintMismatch: The index's vectors come from another embedder by now.
            InvalidParameter: A row cannot be stored, or an id came twice.
            ForeignCollection: An id is that of a passage of a document that the index has cut.
        """
        if not ids:
            return
        if repeated := [id_ for id_, count in Counter(ids).items() if count > 1]:
            raise InvalidParameter(f"two rows have the id {repeated[0]!r:.80}; give each its own")
        widths, width = {len(vector) for vector in vectors}, self.embedder.dimension
        array = np.asarray(vectors if widths == {width} else [], np.float32)
        if len(array) != len(ids) or not np.isfinite(array).all() or not array.any(-1).all():
            raise InvalidParameter(
                f"the vectors of {len(ids)} rows are {sorted(widths)} wide, or hold values that are no numbers, or "
                f"only zeros; the index's embedder makes vectors of {width} numbers"
            )
        rows = [_checked_row(*row) for row in zip(ids, texts, metadatas, documents, strict=True)]
        with self.writing():
            # Compare under the lock: another process may have made the index anew before this one got it.
            if fingerprint != self.embedder.fingerprint:
                raise FingerprintMismatch(
                    f"The rows for index {self.name!r} were embedded by another embedder than its documents.\n"
                    f"Fingerprint of the index: {self.embedder.fingerprint}, of the rows: {fingerprint}; embed them "
                    "again, with index.embedder"
                )
            self._create()
            for group in slices(len(ids), _GROUP_ROWS):
                known = self.storage.get(MAIN, ids=ids[group], metadatas=True)
                metadata = _replacing(known, dict(zip(ids[group], rows[group], strict=True)))
                with self._transaction({OF_FRAMEWORKS: []}):
                    self._put_rows(RowBatch(list(ids[group]), metadata, list(texts[group]), array[group]))


def _checked_row(id_: str, text: str, metadata: Mapping[str, Any], document: str) -> dict[str, Any]:
    """Return a framework's metadata as they are stored."""
    for what, part in (("id", id_), ("text", text), ("document", document)):
        raise_on_surrogates(part, f"the {what} of row {id_!r:.80}")
    stored = {key: value for key, value in metadata.items() if value is not None}
    check_metadata(f"row {id_!r:.80}", stored, own=False)
    return {**stored, DOCUMENT: document, DIGEST: ""}


def _replacing(known: RowBatch, rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return new metadata, in order, with None for names that a row no longer has: Chroma keeps unnamed entries."""
    for id_, row in zip(known.ids, known.metadatas, strict=True):
        if row.get(DIGEST) != "":
            cut = "is a passage of a document that the index has cut itself: remove the document"
            what = cut if row.get(DOCUMENT) is not None else "was put into the collection by something else; delete it"
            raise ForeignCollection(f"row {id_!r:.80} {what}, or give another id")
        rows[id_] = {**dict.fromkeys(row), **rows[id_]}
    return list(rows.values())


# --- Checks, which embed nothing --------------------------------------------------------------------------------------

_CHECKED = 100  # rows of each collection whose vectors `check` compares unless it is to compare all
_TOLERANCE = 1e-3  # largest distance of a row from itself, and difference of its length from 1, by rounding


def check_rows(index: Collection) -> dict[str, str]:
    """Compare every row with the documents' rows and hide damaged documents, as `Index.check` says."""
    if not index.exists:
        return {}
    index.keywords.rebuild()
    documents = index._document_rows(None)
    stored, about = StoredDocument.by_id(documents), dict(zip(documents.ids, documents.metadatas, strict=True))
    counts, passages = Counter[str](), defaultdict[str, list[RowBatch]](list)
    problems, strays = dict[str, str](), dict[str, str]()
    for page in index.storage.pages(MAIN, metadatas=True, documents=True):
        for at, metadata in enumerate(page.metadatas):
            digest, id_ = str(metadata.get(DIGEST, "")), str(metadata.get(DOCUMENT))
            counts[digest] += 1
            if id_ not in stored or stored[id_].digest != digest:
                strays |= {digest: id_} if digest else {}  # a framework's row has none
                continue
            passages[digest].append(page.take([at]))
            if len(passages[digest]) == stored[id_].passages:
                problem = _difference(stored[id_], about[id_], RowBatch.concatenate(passages.pop(digest)))
                problems |= {id_: f"{problem} in {index.name} than it was written with"} if problem else {}
    for id_, document in stored.items():
        if counts[document.digest] != document.passages:
            problems[id_] = f"{counts[document.digest]} of {document.passages} rows in {index.name}"
    # A server has no writer's lock: what another writer has changed during the scan is no damage.
    now = index.entries(sorted({*problems, *strays.values()}))
    damaged = {id_: stored[id_].digest for id_ in problems if now.get(id_) == stored[id_]}
    strays = {digest: id_ for digest, id_ in strays.items() if id_ not in now or now[id_].digest != digest}
    of_none = f"rows of a version that {index.name + DOCUMENTS} does not name; deleted"
    problems = {
        **{id_: f"{counts[digest]} {of_none}" for digest, id_ in strays.items()},
        **{id_: problems[id_] for id_ in damaged},
    }
    if problems:
        with index._transaction({id_: [digest] for id_, digest in damaged.items()}):
            for id_ in damaged:
                index.storage.collection(DOCUMENTS).update([id_], metadatas=[{DIGEST: ""}])
            index._delete_rows("digest", [*damaged.values(), *strays])
    return problems


def _difference(stored: StoredDocument, row: Mapping[str, Any], passages: RowBatch) -> str:
    """Return what of a document its passages have otherwise; "" for nothing."""
    if stored.document(join_text(passages.in_order(), row)).text_digest != stored.text_digest:
        return "another text"
    same = all(user_metadata(metadata) == user_metadata(row) for metadata in passages.metadatas)
    return "" if same else "other metadata"


def check_vectors(index: Collection, *, full: bool = False) -> None:
    """Search for rows by their own vectors; make what is damaged, Chroma's files or ours, anew from the other.

    On a server there is no other to compare with. StorageError if both are damaged.
    """
    storage, vectors, lost, mended = index.storage, index.storage.vectors, False, False
    if vectors is None:
        return
    for kind in (MAIN, DOCUMENTS):
        for rows in storage.pages(kind, metadatas=True) if full else storage.sample(kind, _CHECKED):
            numbers = np.array(vector_numbers(rows))
            numbered = np.flatnonzero(numbers >= 0)
            readable = numbered[numbers[numbered] < len(vectors.rows)]
            stored = vectors.rows.read(numbers[readable].tolist())
            lengths = np.linalg.norm(stored, axis=1)
            sound = np.isfinite(lengths) & (lengths > 0)
            if index.settings.embedder["normalize"]:
                sound &= np.abs(lengths - 1) <= _TOLERANCE
            if broken := sorted({*numbered.tolist()} - {*readable[sound].tolist()}):
                with storage.transaction():
                    vectors.copy_from_chroma(storage.collection(kind), 0, [rows.ids[at] for at in broken])
                mended = True
            lost = lost or not _are_found(storage.collection(kind), stored[sound])
    if mended:
        index.keywords.rebuild()  # they name the vectors by their numbers, too
        storage.mark_written()
    if lost:
        storage.rebuild_files(force=True)
    if (lost or mended) and not full:  # a sample that is damaged says nothing of the others
        check_vectors(index, full=True)


def _are_found(collection: chromadb.Collection, vectors: Floats) -> bool:
    """Return whether a search for each of some vectors, shape (vectors, dimension), finds one like it."""
    if not len(vectors):
        return True
    try:
        got = collection.query(query_embeddings=vectors, n_results=1, include=["distances"])
    except InternalError:  # rows that are in no file of vectors
        return False
    return all(near and near[0] <= _TOLERANCE for near in got["distances"] or [])
