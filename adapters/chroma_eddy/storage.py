"""`Storage`: an index's two Chroma collections and, in a folder, its vectors, of which Chroma's files can be made anew.

A kill leaves files of Chroma's that cannot be read: it overwrites them in place and never syncs. So each vector is also
in a file that only grows, at the row that the metadata name, and a record says which of Chroma's files are whole.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.errors import ChromaError, InternalError, NotFoundError
from filelock import FileLock

from chroma_eddy.database import KEYWORDS, VECTORS, Connection, erase_texts, translated_errors
from chroma_eddy.rows import FORMAT, RowBatch, are_alike, check_collection_name
from chroma_eddy.types import VECTOR, ForeignCollection, IndexInUse, LostVectors, StorageError
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import grouped_by_size
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.utils.arrays import Floats
from eddy_embed.utils.atomic_files import atomic_write, sync

if TYPE_CHECKING:
    from typing_extensions import Self

MAIN, DOCUMENTS = "", "-documents"
"""Suffixes of the names of an index's collections; the main one has the name of the index."""
NEXT, OLD = "-next", "-old"
"""Suffixes of the name of an index that is built to replace another, and of the one that was replaced."""
PAGE_SIZE = 1000  # rows in a page
# HNSW search is approximate; with this beam it misses next to nothing at the size of most libraries.
_COSINE_CONFIG = {"hnsw": {"space": "cosine", "ef_search": 400}}
# Metadata of the main collection: whether rows were written through a server, and have no number in a file.
_UNNUMBERED = "eddy_unnumbered"
_STRETCHES = 10  # number of places from which a sample of a large collection is read
_BATCH_BYTES = 8 * 2**20  # a server refuses requests of 40 MB, and encoding makes vectors a third larger
_SWAP_TIMEOUT, _POLL = 10.0, 0.02  # seconds that a reader waits for another process's swap, and between two looks at it
_AGAIN = "embed them again: chroma_eddy.reindex(place, name, embedder), or `eddy-demo library rebuild` for a library"


def check_index_name(name: Any) -> None:
    """Refuse a name that no collection can have, or that ends like a collection of another index."""
    check_collection_name(name)
    if suffix := next((suffix for suffix in (DOCUMENTS, NEXT, OLD) if name.endswith(suffix)), None):
        raise InvalidParameter(
            f"name={name!r:.80} ends with {suffix!r}, which is the name of a collection of another index"
        )


def slices(count: int, limit: int) -> Iterator[slice]:
    """Return slices of at most `limit` out of `count` rows."""
    return (slice(start, start + limit) for start in range(0, count, limit))


def pages(
    collection: Collection, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
) -> Iterator[RowBatch]:
    """Yield pages of rows, by id or condition, or all, with `fields` of `metadatas`, `documents`, `embeddings`."""
    include: Any = [name for name, wanted in fields.items() if wanted]
    ids = None if ids is None else list(dict.fromkeys(ids))  # Chroma refuses repeated ones
    for start in count(0, PAGE_SIZE) if ids is None else range(0, len(ids), PAGE_SIZE):
        page: dict[str, Any] = {"limit": PAGE_SIZE, "offset": start}
        if ids is not None:
            page = {"ids": list(ids[start : start + PAGE_SIZE])}
        got = collection.get(where=where, include=include, **page)
        if got["ids"]:
            yield RowBatch.parse(got)
        if ids is None and len(got["ids"]) < PAGE_SIZE:
            return


class VectorFile:
    """Vectors of one width, row after row; one process at a time appends.

    A process that is killed meanwhile leaves rows that nothing names.
    """

    def __init__(self, path: Path, width: int, dtype: type[np.floating[Any]]) -> None:
        self.path, self._row = path, np.dtype((dtype, width))

    def __len__(self) -> int:
        """Number of whole rows."""
        return self.path.stat().st_size // self._row.itemsize if self.path.exists() else 0

    def append(self, vectors: Floats) -> range:
        """Append rows, shape (rows, width), wait until they are on the disk, and return their numbers."""
        first, is_new = len(self), not self.path.exists()
        if len(vectors):
            with self.path.open("wb" if is_new else "r+b") as file:
                file.truncate(first * self._row.itemsize)
                file.seek(0, os.SEEK_END)
                file.write(np.ascontiguousarray(vectors, self._row.base).tobytes())
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync(self.path.parent)
        return range(first, first + len(vectors))

    def read(self, numbers: Sequence[int]) -> Floats:
        """Read rows by their numbers, shape (numbers, width); LostVectors if something else has cut the file."""
        if not len(numbers):
            return np.zeros((0, *self._row.shape), np.float32)
        rows = np.asarray(numbers, np.int64)
        if rows.min() < 0 or rows.max() >= len(self):
            raise LostVectors(
                f"{self.path} has {len(self)} rows, and lacks row {rows.max()}: something else has cut it. Put it back "
                f"from a backup, or {_AGAIN}"
            )
        stored = np.memmap(self.path, self._row.base, "r", shape=(len(self), *self._row.shape))
        return np.asarray(stored[rows], np.float32)


class StoredVectors:
    """The vectors of one index in a folder, by the rows' numbers, and the record of Chroma's files."""

    def __init__(self, database: Path, identity: str, width: int, lock: FileLock) -> None:
        """`lock` is the row lock of the database's folder; `identity` the id of the index."""
        self.folder = database / VECTORS / identity
        self.rows = VectorFile(self.folder / "rows.f32", width, np.float32)
        self.sentences = VectorFile(self.folder / "sentences.f16", width, np.float16)  # of methods that run layers
        self.fit, self._record = self.folder / "fit.npz", self.folder / "hnsw.json"  # fitted post-processing; record
        self._database, self._lock = database, lock

    def create(self, fitted: Fitted | None) -> None:
        """Create the folder, for collections that have no rows yet, with the fitted post-processing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
        if fitted is not None:
            fitted.save(self.fit)
        self.record((), {})

    @contextmanager
    def transaction(self, segments: Sequence[str]) -> Iterator[None]:
        """Hold the row lock, and take the record away while Chroma may change the files of these segments.

        Raises:
            StorageError: Another process was killed in here; the next call that opens the collection mends it.
        """
        with self._lock:
            if self._recorded() is None:
                if self._lock.lock_counter == 1:
                    raise StorageError(f"another process was killed while writing to {self._database}; do this again")
                yield  # an outer call has taken the record away, and writes the next
                return
            before = self._files(segments)
            self.mark_incomplete()
            try:
                yield
            except KeyboardInterrupt:  # it comes between two calls of Chroma's
                self.record(segments, before)
                raise
            self.record(segments, before)

    def files_intact(self, segments: Sequence[str]) -> bool:
        """Return whether Chroma's files are those of the record, by their sizes; not while they may change."""
        return self._recorded() == {path: size for path, (size, _) in self._files(segments).items()}

    def record(self, segments: Sequence[str], known: Mapping[str, tuple[int, int]]) -> None:
        """Record Chroma's files as they are, once those that are not as they were `known` are on the disk."""
        for segment in segments:
            _clear_unsaved(self._database / segment)
        files = self._files(segments)
        changed = {self._database / path for path, state in files.items() if known.get(path) != state}
        for path in (*changed, *{path.parent for path in changed}):
            sync(path)
        with atomic_write(self._record) as file:
            file.write(json.dumps({path: size for path, (size, _) in files.items()}).encode())

    def mark_incomplete(self) -> None:
        """Take the record away: Chroma's files are not whole until the next one."""
        self._record.unlink(missing_ok=True)
        sync(self.folder)

    def copy_from_chroma(self, collection: Collection, known: int, ids: Sequence[str] | None = None) -> None:
        """Append vectors as Chroma has them, of rows by their ids, or of all without a number below `known`.

        LostVectors if Chroma cannot read them.
        """
        try:
            for rows in pages(collection, ids=ids, metadatas=True):
                numbers = vector_numbers(rows)
                unnumbered = [at for at, number in enumerate(numbers) if ids or not 0 <= number < known]
                if unnumbered:
                    chosen = [rows.ids[at] for at in unnumbered]
                    got = RowBatch.parse(collection.get(ids=chosen, include=["embeddings"]))
                    appended = self.rows.append(got.vectors)
                    collection.update(ids=got.ids, metadatas=[{VECTOR: number} for number in appended])
        except ChromaError as error:
            raise LostVectors(
                f"vectors of {collection.name!r} are lost: {self.rows.path} lacks them, and Chroma cannot read its own "
                f"({error}). The texts are there: put the folder back from a backup, or {_AGAIN}"
            ) from error

    def restore_into_chroma(self, collection: Collection) -> None:
        """Give Chroma every vector again, into files that it begins anew.

        It reads the last rows from its log by itself, and a vector that is replaced in the graph hides others.
        """
        there: set[str] | None = None
        for rows in pages(collection, metadatas=True):
            numbers = vector_numbers(rows)
            if there is None and max(numbers) >= 0:
                last = self.rows.read([max(numbers)])
                there = set(collection.query(query_embeddings=last, n_results=collection.count(), include=[])["ids"][0])
            absent = [at for at, number in enumerate(numbers) if number >= 0 and rows.ids[at] not in (there or ())]
            if absent:
                vectors = self.rows.read([numbers[at] for at in absent])
                collection.upsert(ids=[rows.ids[at] for at in absent], embeddings=vectors)

    def _recorded(self) -> dict[str, Any] | None:
        with suppress(FileNotFoundError, ValueError):
            return dict(json.loads(self._record.read_text(encoding="utf-8")))
        return None

    def _files(self, segments: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return size and time of change of each file of segments, by its path in the database's folder."""
        states = {}
        for path in sorted(path for segment in segments for path in self._database.glob(f"{segment}/*")):
            with suppress(FileNotFoundError):  # another process makes them anew
                state = path.stat()
                states[path.relative_to(self._database).as_posix()] = state.st_size, state.st_mtime_ns
        return states


def vector_numbers(rows: RowBatch) -> list[int]:
    """Return the rows' numbers in the file of vectors; -1 for a row without, as others write."""
    return [int(row.get(VECTOR, -1)) for row in rows.metadatas]


def _clear_unsaved(segment: Path) -> None:
    """Overwrite the files that Chroma has made and not saved to yet, and does not read.

    They are memory that hnswlib has not initialised, in which texts may be left.
    """
    if (segment / "index_metadata.pickle").exists():
        return
    for path in (segment / "data_level0.bin", segment / "length.bin"):
        if path.exists() and path.read_bytes().strip(b"\0"):
            path.write_bytes(bytes(path.stat().st_size))  # in place: Chroma has the files open


class Storage:
    """Rows of passages, in the main collection, and of whole documents, in `<name>-documents`.

    With `texts_only`, texts and metadata are read, and vectors are left alone, damaged as they may be.
    """

    def __init__(self, connection: Connection, name: str, *, texts_only: bool = False) -> None:
        self.connection, self.name, self.place, self.lock = connection, name, connection.place, connection.lock
        self._generation, self._collections = connection.generation, dict[str, Collection]()
        self._texts_only = texts_only

    @property
    def client(self) -> ClientAPI:
        """Chroma's client; it changes when the connection is reopened."""
        self.connection.check_open()
        client: ClientAPI = self.connection.client
        return client

    def find(self, kind: str = MAIN) -> Collection | None:
        """Return a collection, with its vectors loaded; None if it does not exist."""
        if self._generation != self.connection.generation:
            self.clear_cache()
        if kind not in self._collections and (collection := self._open(kind)) is not None:
            self._collections[kind] = collection
        return self._collections.get(kind)

    def collection(self, kind: str = MAIN) -> Collection:
        """Return a collection that must exist; ForeignCollection if it does not."""
        collection = self.find(kind)
        if collection is None:
            raise ForeignCollection(
                f"collection {self.name + kind!r} is gone, without which index {self.name!r} cannot be used: something "
                "else has deleted it; delete the index's other collections, and make it anew"
            )
        return collection

    def clear_cache(self) -> None:
        """Drop the cached collections; they are opened again when they are next used."""
        self._generation = self.connection.generation
        self._collections.clear()

    def _open(self, kind: str) -> Collection | None:
        collection = self.look_up(kind)
        if collection is None:
            return None
        if self._texts_only:
            return self._readable(collection)
        main = collection if kind == MAIN else self.collection()
        self._is_current(main)  # noted before vectors are loaded: a write in between then counts as a new change
        generation = self.connection.generation
        with translated_errors(self.place):
            self._load(main, collection)
        return collection if generation == self.connection.generation else self.find(kind)

    def look_up(self, kind: str = MAIN) -> Collection | None:
        """Return a collection as the database has it now; the main one's metadata name the documents' by id."""
        main = self.find() if kind == DOCUMENTS else None
        identity = None if main is None else (main.metadata or {}).get("eddy_documents")
        with translated_errors(self.place):
            try:
                if identity is not None:
                    return self._by_id(uuid.UUID(identity))
                return self.client.get_collection(self.name + kind, embedding_function=None)
            except NotFoundError:
                return None

    def _by_id(self, identity: uuid.UUID) -> Collection:
        return self.client.get_collection_by_id(identity, embedding_function=None)

    def create(self, settings: Mapping[str, Any], function: Any, fitted: Fitted | None) -> None:
        """Create the collections, the main one last, with its metadata and Chroma's embedding function.

        In a folder, `fitted`, the embedder's fitted post-processing, is kept beside the vectors.
        """
        identity, token, folder = str(uuid.uuid4()), uuid.uuid4().hex, self.connection.folder
        with translated_errors(self.place):
            abandoned = self.look_up(DOCUMENTS)
            if abandoned is not None and "eddy_format" not in (abandoned.metadata or {}):
                raise self._foreign(abandoned)
            self._delete(self.name + DOCUMENTS)  # left by an index whose main collection somebody deleted
            documents = self._create(DOCUMENTS, {"eddy_format": FORMAT, "eddy_kind": DOCUMENTS})
            own = {"eddy_id": identity, "eddy_documents": str(documents.id), "eddy_written": token}
            metadata = {**settings, **own, _UNNUMBERED: folder is None}
            if (vectors := self._vectors(metadata)) is not None:
                vectors.create(fitted)
            main = self._create(MAIN, metadata, function)
        if (main.metadata or {}).get("eddy_id") != identity:
            raise self._foreign(main)
        self.connection.state.tokens[identity] = token
        self.clear_cache()

    def _create(self, kind: str, metadata: Mapping[str, Any], function: Any = None) -> Collection:
        return self.client.get_or_create_collection(
            self.name + kind,
            embedding_function=function,
            configuration=dict(_COSINE_CONFIG),  # type: ignore[arg-type]  # a copy: Chroma writes the function into it
            metadata=dict(metadata),
        )

    def _foreign(self, collection: Collection) -> ForeignCollection:
        return ForeignCollection(
            f"collection {collection.name!r} was made by something else, and index {self.name!r} needs the name: "
            "choose another name for the index; it is left as it is"
        )

    def drop_all(self) -> None:
        """Delete the collections, if they exist, the main one first: the other is no index without it."""
        with translated_errors(self.place):
            documents = None if self.look_up() is None else self.look_up(DOCUMENTS)
            self._delete(self.name)
            self._delete(self.name + DOCUMENTS if documents is None else documents.name)
            self.connection.delete_stale()
        self.clear_cache()

    def _delete(self, name: str) -> None:
        with suppress(NotFoundError):
            self.client.delete_collection(name)

    # --- Another index takes this one's place

    def with_suffix(self, suffix: str, *, texts_only: bool = False) -> Self:
        """Return the collections of the index that will replace this one (`NEXT`), or that it replaced (`OLD`)."""
        return type(self)(self.connection, self.name + suffix, texts_only=texts_only or suffix == OLD)

    def finish_swap(self, *, clean: bool = False) -> None:
        """If the index that is to replace this one is complete, swap them; `clean`, for a writer, deletes the old one.

        IndexInUse if another process is writing.
        """
        if self.with_suffix(NEXT).metadata().get("eddy_ready"):
            with self.lock:
                self._swap()
        if clean and self.metadata().get("eddy_ready"):
            self.with_suffix(OLD).drop_all()
            self._rename_documents()
            self.update_metadata(eddy_ready=False)

    def wait_for_swap(self) -> None:
        """Finish an interrupted swap, or wait while another process of this folder performs it."""
        deadline = time.monotonic() + _SWAP_TIMEOUT
        while True:
            try:
                return self.finish_swap()
            except IndexInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)

    def _swap(self) -> None:
        """Rename the main collections: a collection names its documents' by id, so nothing else moves.

        On a server two processes may do this at once, so each asks by id, and a step that the other has done may fail.
        """
        new, present = self.with_suffix(NEXT).look_up(), self.look_up()
        if new is None or not (new.metadata or {}).get("eddy_ready"):  # another process finished it before
            return
        with suppress(ChromaError):
            if present is not None and present.id != new.id:
                self.with_suffix(OLD).drop_all()
                present.modify(name=self.name + OLD)
        with suppress(ChromaError):
            new.modify(name=self.name)
        self.clear_cache()

    def _rename_documents(self) -> None:
        """Give the documents' collection its name, in place of one that another index of this name has left."""
        documents = self.collection(DOCUMENTS)
        with translated_errors(self.place):
            if documents.name != self.name + DOCUMENTS:
                with suppress(NotFoundError):
                    other = self.client.get_collection(self.name + DOCUMENTS, embedding_function=None)
                    if "eddy_kind" in (other.metadata or {}):
                        self._delete(other.name)
                documents.modify(name=self.name + DOCUMENTS)
            self.connection.delete_stale()
        self.clear_cache()

    # --- The main collection's metadata, and changes of this process and of others

    @property
    def known_metadata(self) -> dict[str, Any]:
        """The main collection's metadata as of the last `refresh` or change; empty if it does not exist."""
        return _metadata(self.find())

    def metadata(self) -> dict[str, Any]:
        """Read the main collection's metadata from the database; empty if it does not exist."""
        return _metadata(self.look_up())

    @property
    def keywords_folder(self) -> Path | None:
        """Folder of the index's keywords; None on a server, or if the index does not exist."""
        identity, folder = self.known_metadata.get("eddy_id"), self.connection.folder
        return None if folder is None or identity is None else folder / KEYWORDS / identity

    def update_metadata(self, **values: Any) -> None:
        """Change entries of the main collection's metadata; on a server, note that rows may have no vector numbers."""
        if self.connection.folder is None:
            values[_UNNUMBERED] = True
        present = {name: value for name, value in self.metadata().items() if value is not None}
        with translated_errors(self.place):
            self.collection().modify(metadata={**present, **values})

    def refresh(self) -> Any:
        """See what others have written, with a new client if they have; return the main collection's id, or None."""
        collection = self.look_up()
        if collection is None:
            return None
        if not self._is_current(collection):
            self.connection.reopen()
        elif MAIN in self._collections and self._collections[MAIN].id == collection.id:
            self._collections[MAIN] = collection
        return collection.id

    def _is_current(self, main: Collection) -> bool:
        """Return whether this process has read the last change of the index; the first one seen counts as read."""
        token, identity = (_metadata(main).get(name) for name in ("eddy_written", "eddy_id"))
        known = self.connection.state.tokens.setdefault(str(identity), str(token))
        return self.connection.folder is None or token is None or known == token

    def mark_written(self, **values: Any) -> str:
        """Tell readers that rows have changed, with further values of the main collection's metadata; return a token.

        The token is metadata "eddy_written", which each write of any process renews.
        """
        token = uuid.uuid4().hex
        self.update_metadata(eddy_written=token, **values)
        self.connection.state.tokens[str(self.metadata().get("eddy_id"))] = token
        return token

    # --- Files of vectors

    @property
    def vectors(self) -> StoredVectors | None:
        """The vectors in the index's folder; None on a server, which has no other place than Chroma."""
        return self._vectors(self.known_metadata)

    def _vectors(self, metadata: Mapping[str, Any]) -> StoredVectors | None:
        folder, lock = self.connection.folder, self.connection.alone
        if folder is None or not isinstance(lock, FileLock) or "eddy_id" not in metadata:
            return None
        return StoredVectors(folder, metadata["eddy_id"], int(metadata["eddy_dimension"]), lock)

    def _readable(self, collection: Collection) -> Collection:
        """Return the collection, without files of vectors that keep Chroma from reading its texts."""
        with suppress(InternalError):
            collection.get(limit=1, include=["metadatas"])
            return collection
        with translated_errors(self.place), self.connection.alone:  # now nobody is writing them
            for delete in (False, True):
                self.connection.reopen(without_vectors_of=str(collection.id) if delete else None)
                self._generation = self.connection.generation
                collection = self._by_id(collection.id)
                with suppress(InternalError):
                    collection.get(limit=1, include=["metadatas"])
                    break
        return collection

    def _segments(self, main: Collection) -> list[str]:
        both = (str(main.id), str(_metadata(main)["eddy_documents"]))
        return [segment for identity in both for segment in self.connection.segments(identity)]

    def _load(self, main: Collection, collection: Collection) -> None:
        """Make Chroma read a collection's vectors, unless it has; first make files anew that are not whole.

        Chroma may save as it reads, even in a process that writes nothing, if its log is long enough.
        """
        if (vectors := self._vectors(_metadata(main))) is None or collection.id in self.connection.state.loaded:
            return
        segments = self._segments(main)
        try:
            if vectors.files_intact(segments) and not _metadata(main).get(_UNNUMBERED):
                with vectors.transaction(segments):
                    collection.count()
                self.connection.state.loaded.add(collection.id)
                return
        except (InternalError, StorageError) as error:
            logging.getLogger(__name__).warning("%s cannot be read: %s", collection.name, error)
        if not self.rebuild_files():  # another process has made them anew, or is done with its change
            self._load(self.look_up() or main, collection)

    def rebuild_files(self, *, force: bool = False) -> bool:
        """Make Chroma's files of vectors anew, if they are not whole, or in any case (`force`); return whether it did.

        StorageError if vectors are missing in the file that they are made from.
        """
        main = None if self._texts_only else self.look_up()
        metadata = _metadata(main)
        if main is None or (vectors := self._vectors(metadata)) is None:
            return False
        identities, segments = (main.id, uuid.UUID(metadata["eddy_documents"])), self._segments(main)
        unnumbered, folder = bool(metadata.get(_UNNUMBERED)), vectors.folder
        with self.connection.alone:
            if vectors.files_intact(segments) and not (force or unnumbered):  # another process has made them anew
                return False
            logging.getLogger(__name__).warning("the files of vectors of %s are made anew", self.name)
            if unnumbered or not vectors.rows.path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                # The keywords name vectors by their numbers, too, and are read anew by the next writer.
                shutil.rmtree(folder.parent.parent / KEYWORDS / folder.name, ignore_errors=True)
                known = len(vectors.rows)
                for identity in identities:
                    vectors.copy_from_chroma(self._by_id(identity), known)
            vectors.mark_incomplete()
            for segment in segments:
                shutil.rmtree(folder.parent.parent / segment, ignore_errors=True)
            self.connection.reopen()
            for identity in identities:
                vectors.restore_into_chroma(self._by_id(identity))
                self.connection.state.loaded.add(identity)
            vectors.record(segments, {})
            self.mark_written(**{_UNNUMBERED: False})
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let rows change, in one or several calls; if this is not completed, the files of vectors are made anew."""
        main, _ = self.collection(), self.collection(DOCUMENTS)  # loaded before their files may change
        vectors = self._vectors(_metadata(main))
        if vectors is None:
            yield
            return
        try:
            with translated_errors(self.place), vectors.transaction(self._segments(main)):
                yield
        except BaseException:
            self.connection.state.loaded.clear()
            self.clear_cache()
            raise

    # --- Rows

    def upsert(self, kind: str, rows: RowBatch) -> list[dict[str, Any]]:
        """Write rows within a `transaction`, in place of those of the same ids; return their metadata as stored.

        Where a vector is replaced in the HNSW graph, queries may no longer find others
        (https://github.com/chroma-core/chroma/issues/7758). So a row with the same text and vector gets its metadata
        alone, and any other is deleted before it is written again; but a document's row is never missing.
        """

        def row_bytes(number: int) -> int:
            return int(rows.vectors.shape[1]) * 6 + 1000 + (len(rows.texts[number]) * 4 if rows.texts else 0)

        stored = []
        with translated_errors(self.place):
            most = self.client.get_max_batch_size()
            for numbers in grouped_by_size(range(len(rows.ids)), row_bytes, most, _BATCH_BYTES):
                stored += self._upsert(self.collection(kind), rows.take(numbers), atomic=kind == DOCUMENTS)
        return stored

    def _upsert(self, collection: Collection, rows: RowBatch, *, atomic: bool) -> list[dict[str, Any]]:
        vectors = self.vectors
        include: Any = ["documents", "embeddings" if vectors is None else "metadatas"]
        present = RowBatch.parse(collection.get(ids=rows.ids, include=include))
        numbers = [] if vectors is None else vector_numbers(present)
        present_vectors = present.vectors if vectors is None else vectors.rows.read(numbers)
        known, same, other = {id_: at for at, id_ in enumerate(present.ids)}, list[int](), list[int]()
        for at, id_ in enumerate(rows.ids):
            before = known.get(id_)
            changed = before is None or (rows.texts and rows.texts[at] != present.texts[before])
            is_other = changed or not are_alike(rows.vectors[at], present_vectors[before])
            (other if is_other else same).append(at)
        metadatas: Any = [dict(row) for row in rows.metadatas]
        if vectors is not None:
            for at in same:
                metadatas[at][VECTOR] = numbers[known[rows.ids[at]]]
            new = [at for at in other if metadatas[at].get(VECTOR) is None]
            for at, number in zip(new, vectors.rows.append(rows.vectors[new]), strict=True):
                metadatas[at][VECTOR] = number
        if same:
            collection.update(ids=[rows.ids[at] for at in same], metadatas=[metadatas[at] for at in same])
        if replaced := [rows.ids[at] for at in other if rows.ids[at] in known and not atomic]:
            collection.delete(ids=replaced)
        if other:
            written = rows.take(other)
            collection.upsert(written.ids, written.vectors, [metadatas[at] for at in other], written.texts or None)
        return list(metadatas)

    def delete(self, kind: str, ids: Sequence[str] | None = None, where: Any = None) -> None:
        """Delete rows by id or by a condition on their metadata, within a `transaction`."""
        with translated_errors(self.place):
            collection = self.collection(kind)
            ids = collection.get(where=where, include=[])["ids"] if ids is None else ids
            for batch in slices(len(ids), self.client.get_max_batch_size()):
                collection.delete(ids=list(ids[batch]))

    def erase(self) -> None:
        """Erase the texts of deleted rows from the database's file, which must be in a folder."""
        assert self.connection.folder is not None
        with translated_errors(self.place):
            with self.connection.alone:
                erase_texts(self.connection.folder)
            self.connection.reopen()

    def count(self, kind: str) -> int:
        """Count the rows of a collection; 0 if it does not exist."""
        collection = self.find(kind)
        with translated_errors(self.place):
            return 0 if collection is None else collection.count()

    def get(self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool) -> RowBatch:
        """Read rows by id or condition, or all rows, with the `fields` among `metadatas`, `documents`, `embeddings`."""
        return RowBatch.concatenate(self.pages(kind, ids=ids, where=where, **fields))

    def pages(
        self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
    ) -> Iterator[RowBatch]:
        """As `get`, page by page."""
        with translated_errors(self.place):
            yield from pages(self.collection(kind), ids=ids, where=where, **fields)

    def sample(self, kind: str, size: int) -> Iterator[RowBatch]:
        """As `pages`, of at most `size` rows with metadata, in a few evenly spread stretches: offsets cost time."""
        count, collection = self.count(kind), self.collection(kind)
        stretches = 1 if count <= size else min(_STRETCHES, size)
        for number in range(stretches):
            with translated_errors(self.place):
                offset = number * count // stretches
                rows = RowBatch.parse(collection.get(limit=size // stretches, offset=offset, include=["metadatas"]))
            if rows.ids:
                yield rows

    def vectors_of(self, kind: str, rows: RowBatch) -> Floats:
        """Return the vectors of rows that were read with their metadata, shape (rows, dimension)."""
        vectors = self.vectors
        numbers = [] if vectors is None else vector_numbers(rows)
        if vectors is not None and min(numbers, default=0) >= 0:
            return vectors.rows.read(numbers)
        got = self.get(kind, ids=rows.ids, embeddings=True)
        by_id = dict(zip(got.ids, got.vectors, strict=True))
        if gone := [id_ for id_ in rows.ids if id_ not in by_id]:
            raise ForeignCollection(f"row {gone[0]!r} of index {self.name!r} is gone: something else has deleted it")
        return np.stack([by_id[id_] for id_ in rows.ids]) if rows.ids else got.vectors


def _metadata(collection: Collection | None) -> dict[str, Any]:
    return dict((collection.metadata if collection is not None else None) or {})
