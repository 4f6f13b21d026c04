"""`Storage`: the two Chroma collections of an index, created, opened, exchanged, and with vectors that are whole."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.errors import ChromaError, InternalError, NotFoundError
from numpy.typing import NDArray

from chroma_eddy.database import KEYWORDS, Connection, erase_texts, translated_errors
from chroma_eddy.errors import ForeignCollection, IndexInUse, StorageError
from chroma_eddy.rows import VECTOR, RowBatch, are_alike, pages, slices
from chroma_eddy.settings import DOCUMENTS, FORMAT, MAIN, NEXT, OLD, IndexSettings
from chroma_eddy.vectors import StoredVectors
from eddy_embed.integrations.documents import grouped_by_size

if TYPE_CHECKING:
    from typing_extensions import Self

# HNSW search is approximate; with this beam it misses next to nothing at the size of most libraries.
_COSINE_CONFIG = {"hnsw": {"space": "cosine", "ef_search": 400}}
_UNNUMBERED = "eddy_unnumbered"
"""Metadata of the main collection: whether rows were written through a server, and have no number in a file."""
_STRETCHES = 10
"""Number of places from which a sample of a large collection is read."""
_BATCH_BYTES = 8 * 2**20
"""Most bytes in a batch: a server refuses requests of 40 MB, and encoding makes vectors a third larger."""
_SWAP_TIMEOUT, _POLL = 10.0, 0.02
"""Seconds that a reader waits for another process's swap, and between two looks at it."""


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

    def close(self) -> None:
        """Close the client unless somebody else uses it."""
        self._collections.clear()
        self.connection.close()

    # --- Collections

    def find(self, kind: str = MAIN) -> Collection | None:
        """Return a collection; None if it does not exist."""
        if self._generation != self.connection.generation:
            self.clear_cache()
        if kind not in self._collections:
            collection = self._open(kind)
            if collection is None:
                return None
            self._collections[kind] = collection
        return self._collections[kind]

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
        if collection is None or self._texts_only:
            return collection if collection is None else self._readable(collection)
        main = collection if kind == MAIN else self.collection()
        self._is_current(main)  # noted before vectors are loaded: a write in between then counts as a new change
        generation = self.connection.generation
        with translated_errors(self.place):
            self._load(main, collection)
        return collection if generation == self.connection.generation else self.find(kind)

    def look_up(self, kind: str = MAIN) -> Collection | None:
        """Return a collection as the database has it now; the main one's metadata name the documents' by id."""
        name: Any = self.name + kind
        get: Any = self.client.get_collection
        if kind == DOCUMENTS:
            main = self.find()
            identity = None if main is None else (main.metadata or {}).get("eddy_documents")
            if identity is not None:
                name, get = uuid.UUID(identity), self.client.get_collection_by_id
        with translated_errors(self.place):
            try:
                collection: Collection = get(name, embedding_function=None)
            except NotFoundError:
                return None
        return collection

    def create(self, settings: IndexSettings, width: int, unrelated: tuple[float, float], function: Any) -> None:
        """Create the collections, the main one last, for vectors of a width and with Chroma's embedding function.

        `unrelated` is the mean and standard deviation of the embedder's unrelated cosines, which scores need.
        """
        identity, folder, lock = str(uuid.uuid4()), self.connection.folder, self.connection.row_lock
        with translated_errors(self.place):
            abandoned = self.look_up(DOCUMENTS)
            if abandoned is not None and "eddy_format" not in (abandoned.metadata or {}):
                raise self._foreign(abandoned)
            self._delete(self.name + DOCUMENTS)  # left by an index whose main collection somebody deleted
            documents = self._create(DOCUMENTS, {"eddy_format": FORMAT, "eddy_kind": DOCUMENTS})
            if folder is not None and lock is not None:
                StoredVectors(folder, identity, width, lock).create()
            token = uuid.uuid4().hex
            metadata = {
                **{"eddy_id": identity, "eddy_documents": str(documents.id), "eddy_dimension": width},
                **{"eddy_unrelated_mean": unrelated[0], "eddy_unrelated_deviation": unrelated[1]},
                _UNNUMBERED: folder is None,
            }
            main = self._create(MAIN, {**settings.metadata, **metadata, "eddy_written": token}, function)
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

        Raises:
            IndexInUse: Another process is writing.
        """
        if self.with_suffix(NEXT).metadata().get("eddy_ready"):
            with self.lock:
                self._swap()
        if clean and self.metadata().get("eddy_ready"):
            self.with_suffix(OLD).drop_all()
            self._rename_documents()
            self.update_metadata(eddy_ready=False)

    def wait_for_swap(self) -> None:
        """Finish an interrupted swap, or wait while another process performs it."""
        deadline = time.monotonic() + _SWAP_TIMEOUT
        # No lock tells whether a server's other client is alive; a live one finishes the swap in this time.
        following = self.with_suffix(NEXT)
        while self.lock.folder is None and following.metadata().get("eddy_ready") and time.monotonic() < deadline:
            time.sleep(_POLL)
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

    # --- The main collection's metadata

    @property
    def known_metadata(self) -> dict[str, Any]:
        """The main collection's metadata as of the last `refresh` or change; empty if it does not exist."""
        collection = self.find()
        return dict((collection.metadata if collection is not None else None) or {})

    def metadata(self) -> dict[str, Any]:
        """Read the main collection's metadata from the database; empty if it does not exist."""
        collection = self.look_up()
        return dict((collection.metadata if collection is not None else None) or {})

    @property
    def keywords_folder(self) -> Path | None:
        """Folder of the index's keywords; None on a server, or if the index does not exist."""
        identity, folder = self.known_metadata.get("eddy_id"), self.connection.folder
        return None if folder is None or identity is None else folder / KEYWORDS / identity

    @property
    def identity(self) -> Any:
        """Id of the main collection; None if it does not exist."""
        collection = self.look_up()
        return None if collection is None else collection.id

    @property
    def made_by(self) -> dict[str, Any]:
        """Configuration of the main collection's embedding function, with `model_name` and `method`."""
        collection = self.find()
        stored = None if collection is None else collection.configuration_json.get("embedding_function")
        return dict((stored or {}).get("config") or {})

    def update_metadata(self, **values: Any) -> None:
        """Change entries of the main collection's metadata."""
        present = {name: value for name, value in self.metadata().items() if value is not None}
        with translated_errors(self.place):
            self.collection().modify(metadata={**present, **values})

    def settings(self) -> IndexSettings | None:
        """Read the stored settings; None if the index does not exist, ForeignCollection if the name is another's."""
        main = self.look_up()
        return None if main is None else IndexSettings.parse(self.name, main.metadata or {})

    # --- Changes of this process and of others

    def refresh(self) -> Any:
        """See what another process has written, with a new client if it has; return as `identity`."""
        collection = self.look_up()
        if collection is None:
            return None
        if not self._is_current(collection):
            self.connection.reopen()
        elif MAIN in self._collections and self._collections[MAIN].id == collection.id:
            self._collections[MAIN] = collection
        return collection.id

    def _is_current(self, main: Collection) -> bool:
        """Whether this process has read the last change of the index; the first one seen counts as read."""
        metadata = main.metadata or {}
        token, identity = metadata.get("eddy_written"), str(metadata.get("eddy_id"))
        known = self.connection.state.tokens.setdefault(identity, str(token))
        return self.connection.folder is None or token is None or known == token

    def mark_written(self, **values: Any) -> str:
        """Tell readers that rows have changed, with further values of the main collection's metadata; return a token.

        The token is metadata "eddy_written", which each write of any process renews.
        """
        token = uuid.uuid4().hex
        if self.connection.folder is None:
            values[_UNNUMBERED] = True
        self.update_metadata(eddy_written=token, **values)
        self.connection.state.tokens[str(self.metadata().get("eddy_id"))] = token
        return token

    # --- Vectors

    @property
    def vectors(self) -> StoredVectors | None:
        """The vectors in the index's folder; None on a server, which has no other place than Chroma."""
        main = self.find()
        return None if main is None else self._vectors(main)

    def _vectors(self, main: Collection) -> StoredVectors | None:
        metadata, connection = main.metadata or {}, self.connection
        if connection.folder is None or connection.row_lock is None or "eddy_id" not in metadata:
            return None
        return StoredVectors(
            connection.folder, metadata["eddy_id"], int(metadata["eddy_dimension"]), connection.row_lock
        )

    def _readable(self, collection: Collection) -> Collection:
        """Return the collection, without files of vectors that keep Chroma from reading its texts."""
        with suppress(InternalError):
            collection.get(limit=1, include=["metadatas"])
            return collection
        with translated_errors(self.place), self.connection.alone:  # now nobody is writing them
            for delete in (False, True):
                self.connection.reopen(without_vectors_of=str(collection.id) if delete else None)
                self._generation = self.connection.generation
                collection = self.client.get_collection_by_id(collection.id, embedding_function=None)
                with suppress(InternalError):
                    collection.get(limit=1, include=["metadatas"])
                    break
        return collection

    def _segments(self, main: Collection) -> list[str]:
        both = (str(main.id), str((main.metadata or {})["eddy_documents"]))
        return [segment for identity in both for segment in self.connection.segments(identity)]

    def _load(self, main: Collection, collection: Collection) -> None:
        """Make Chroma read a collection's vectors, unless it has; first make files anew that are not whole.

        Chroma may save as it reads, even in a process that writes nothing, if its log is long enough.
        """
        if (vectors := self._vectors(main)) is None or collection.id in self.connection.state.loaded:
            return
        segments = self._segments(main)
        try:
            if vectors.files_intact(segments) and not (main.metadata or {}).get(_UNNUMBERED):
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

        Raises:
            StorageError: Vectors are missing in the file that they are made from.
        """
        main = None if self._texts_only else self.look_up()
        if main is None or (vectors := self._vectors(main)) is None:
            return False
        identities, segments = (main.id, uuid.UUID((main.metadata or {})["eddy_documents"])), self._segments(main)
        unnumbered = bool((main.metadata or {}).get(_UNNUMBERED))
        with self.connection.alone:
            if vectors.files_intact(segments) and not (force or unnumbered):  # another process has made them anew
                return False
            logging.getLogger(__name__).warning("the files of vectors of %s are made anew", self.name)
            if unnumbered or not vectors.rows.path.exists():
                vectors.folder.mkdir(parents=True, exist_ok=True)
                # The keywords name vectors by their numbers, too, and are read anew by the next writer.
                shutil.rmtree(self.connection.folder / KEYWORDS / vectors.folder.name, ignore_errors=True)  # type: ignore[operator]
                known = len(vectors.rows)
                for identity in identities:
                    collection = self.client.get_collection_by_id(identity, embedding_function=None)
                    vectors.copy_from_chroma(collection, known)
            vectors.mark_incomplete()
            for segment in segments:
                vectors.delete_files(segment)
            self.connection.reopen()
            for identity in identities:
                vectors.restore_into_chroma(self.client.get_collection_by_id(identity, embedding_function=None))
                self.connection.state.loaded.add(identity)
            vectors.record(segments, {})
            self.mark_written(**{_UNNUMBERED: False})
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let rows change, in one or several calls; if this is not completed, the files of vectors are made anew."""
        main, _ = self.collection(), self.collection(DOCUMENTS)  # loaded before their files may change
        vectors = self._vectors(main)
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

        A row whose metadata name a vector that is stored has that one.

        Where a vector is replaced in the HNSW graph, queries may no longer find others
        (https://github.com/chroma-core/chroma/issues/7758). So a row with the same text and vector gets its metadata
        alone, and any other is deleted before it is written again; but a document's row is never missing.
        """

        def row_bytes(number: int) -> int:
            return int(rows.vectors.shape[1]) * 6 + 1000 + (len(rows.texts[number]) * 4 if rows.texts else 0)

        stored = []
        for numbers in grouped_by_size(range(len(rows.ids)), row_bytes, self.max_batch_size, _BATCH_BYTES):
            with translated_errors(self.place):
                stored += self._upsert(self.collection(kind), rows.take(numbers), atomic=kind == DOCUMENTS)
        return stored

    def _upsert(self, collection: Collection, rows: RowBatch, *, atomic: bool) -> list[dict[str, Any]]:
        vectors = self.vectors
        include: Any = ["documents", "embeddings" if vectors is None else "metadatas"]
        present = RowBatch.parse(collection.get(ids=rows.ids, include=include))
        numbers = [] if vectors is None else vectors.numbers(present.metadatas)
        present_vectors = present.vectors if vectors is None else vectors.rows.read(numbers)
        known = {id_: at for at, id_ in enumerate(present.ids)}

        def is_same(at: int) -> bool:
            before = known.get(rows.ids[at])
            if before is None or (rows.texts and rows.texts[at] != present.texts[before]):
                return False
            return are_alike(rows.vectors[at], present_vectors[before])

        same = [at for at in range(len(rows.ids)) if is_same(at)]
        other = sorted(set(range(len(rows.ids))) - set(same))
        metadatas: Any = rows.metadatas
        if vectors is not None:
            numbered = {at: numbers[known[rows.ids[at]]] for at in same}
            new = [at for at in other if metadatas[at].get(VECTOR) is None]
            numbered |= zip(new, vectors.rows.append(rows.vectors[new]), strict=True)
            metadatas = [
                {**row, **({VECTOR: numbered[at]} if at in numbered else {})} for at, row in enumerate(metadatas)
            ]
        if same:
            collection.update(ids=[rows.ids[at] for at in same], metadatas=[metadatas[at] for at in same])
        if replaced := [rows.ids[at] for at in other if rows.ids[at] in known and not atomic]:
            collection.delete(ids=replaced)
        if other:
            changed = rows.take(other)
            collection.upsert(changed.ids, changed.vectors, [metadatas[at] for at in other], changed.texts or None)
        return list(metadatas)

    def update_documents(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Change metadata of documents' rows, by id, within a `transaction`."""
        ids, metadatas = list(rows), list(rows.values())
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place):
                self.collection(DOCUMENTS).update(ids=ids[batch], metadatas=metadatas[batch])  # type: ignore[arg-type]

    def delete(self, kind: str, ids: Sequence[str] | None = None, where: Any = None) -> None:
        """Delete rows by id or by a condition on their metadata, within a `transaction`."""
        if ids is None:
            with translated_errors(self.place):
                ids = self.collection(kind).get(where=where, include=[])["ids"]
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place):
                self.collection(kind).delete(ids=list(ids[batch]))

    @cached_property
    def max_batch_size(self) -> int:
        """Most rows that the database accepts in a batch."""
        with translated_errors(self.place):
            return self.client.get_max_batch_size()

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

    def sample(self, kind: str, size: int, **fields: bool) -> Iterator[RowBatch]:
        """As `pages`, of at most `size` rows of a collection, in a few evenly spread stretches: offsets cost time."""
        count, collection = self.count(kind), self.collection(kind)
        stretches = 1 if count <= size else min(_STRETCHES, size)
        include: Any = [name for name, wanted in fields.items() if wanted]
        for number in range(stretches):
            with translated_errors(self.place):
                got = collection.get(limit=size // stretches, offset=number * count // stretches, include=include)
            if got["ids"]:
                yield RowBatch.parse(got)

    def vectors_of(self, kind: str, rows: RowBatch) -> NDArray[np.float32]:
        """Vectors of rows that were read with their metadata, shape (rows, dimension)."""
        vectors = self.vectors
        numbers = [] if vectors is None else vectors.numbers(rows.metadatas)
        if vectors is not None and min(numbers, default=0) >= 0:
            return vectors.rows.read(numbers)
        got = self.get(kind, ids=rows.ids, embeddings=True)
        by_id = dict(zip(got.ids, got.vectors, strict=True))
        if gone := [id_ for id_ in rows.ids if id_ not in by_id]:
            raise ForeignCollection(f"row {gone[0]!r} of index {self.name!r} is gone: something else has deleted it")
        return np.stack([by_id[id_] for id_ in rows.ids]) if rows.ids else got.vectors
