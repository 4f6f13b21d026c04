"""`CollectionPair`: the two collections of an index, created, opened and exchanged, with vectors that are whole."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.errors import InternalError, NotFoundError

from chroma_eddy.errors import ForeignCollection, StorageError
from chroma_eddy.storage.connection import Connection
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, EARLIER, MAIN, NEXT, OLD, WORDS
from chroma_eddy.storage.settings import FORMAT, IndexSettings
from chroma_eddy.storage.vectors import StoredVectors

if TYPE_CHECKING:
    from typing_extensions import Self

# HNSW search is approximate; with this beam it misses next to nothing at the size of most libraries.
_COSINE_CONFIG = {"hnsw": {"space": "cosine", "ef_search": 400}}
_UNNUMBERED = "eddy_unnumbered"
"""Metadata of the main collection: whether rows were written through a server, and have no number in a file."""


class CollectionPair:
    """An index's collections under one name: of its passages, the main one, and of its documents.

    With `texts_only`, texts and metadata are read, and vectors left alone, damaged or made by an earlier version.
    """

    def __init__(self, connection: Connection, name: str, *, texts_only: bool = False) -> None:
        self.connection, self.name, self.place, self.lock = connection, name, connection.place, connection.lock
        self._generation, self._collections = connection.generation, dict[str, Collection]()
        self._texts_only = texts_only

    @property
    def client(self) -> ClientAPI:
        """Chroma's client; it changes when the connection is reopened."""
        client: ClientAPI = self.connection.client
        return client

    def close(self) -> None:
        """Close the client unless somebody else uses it."""
        self._collections.clear()
        self.connection.close()

    # --- Collections

    def find(self, kind: str = MAIN) -> Collection | None:
        """A collection; None if it does not exist."""
        if self._generation != self.connection.generation:
            self.forget()
        if kind not in self._collections:
            collection = self._open(kind)
            if collection is None:
                return None
            self._collections[kind] = collection
        return self._collections[kind]

    def collection(self, kind: str = MAIN) -> Collection:
        """A collection that must exist; ForeignCollection if it does not."""
        collection = self.find(kind)
        if collection is None:
            raise ForeignCollection(
                f"collection {self.name + kind!r} is gone, without which index {self.name!r} cannot be used: something "
                "else has deleted it; delete the index's other collections, and make it anew"
            )
        return collection

    def forget(self) -> None:
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
        """A collection as the database has it now; the main one's metadata name the documents' by id."""
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

    def create(self, settings: IndexSettings, width: int, function: Any) -> None:
        """Create the collections, the main one last, for vectors of a width and with Chroma's embedding function."""
        identity, folder, lock = str(uuid.uuid4()), self.connection.folder, self.connection.row_lock
        with translated_errors(self.place):
            left = self.look_up(DOCUMENTS)
            if left is not None and "eddy_format" not in (left.metadata or {}):
                raise self._foreign(left)
            self._delete(self.name + DOCUMENTS)  # left by an index whose main collection somebody deleted
            documents = self._create(DOCUMENTS, {"eddy_format": FORMAT, "eddy_kind": DOCUMENTS})
            if folder is not None and lock is not None:
                StoredVectors(folder, identity, width, lock).create()
            token = uuid.uuid4().hex
            own = {"eddy_id": identity, "eddy_documents": str(documents.id), "eddy_dimension": width}
            own[_UNNUMBERED] = folder is None
            main = self._create(MAIN, {**settings.metadata, **own, "eddy_written": token}, function)
        if (main.metadata or {}).get("eddy_id") != identity:
            raise self._foreign(main)
        self.connection.state.tokens[identity] = token
        self.forget()

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
        self.forget()

    def _delete(self, name: str) -> None:
        with suppress(NotFoundError):
            self.client.delete_collection(name)

    def rename(self, collection: Collection, name: str) -> None:
        """Rename a collection."""
        collection.modify(name=name)
        self.forget()

    def rename_documents(self) -> None:
        """Give the documents' collection its name, in place of what other indexes of this name have left."""
        documents = self.collection(DOCUMENTS)
        with translated_errors(self.place):
            for kind in (DOCUMENTS, *EARLIER, *(NEXT + kind for kind in EARLIER)):
                try:
                    other = self.client.get_collection(self.name + kind, embedding_function=None)
                except NotFoundError:
                    continue
                if other.id != documents.id and "eddy_kind" in (other.metadata or {}):
                    self._delete(other.name)
            if documents.name != self.name + DOCUMENTS:
                documents.modify(name=self.name + DOCUMENTS)
            self.connection.delete_stale()
        self.forget()

    def with_suffix(self, suffix: str, *, texts_only: bool = False) -> Self:
        """The collections of the index that will replace this one (`NEXT`), or that it replaced (`OLD`)."""
        return type(self)(self.connection, self.name + suffix, texts_only=texts_only or suffix == OLD)

    # --- The main collection's metadata

    @property
    def known_metadata(self) -> dict[str, Any]:
        """The main collection's metadata as of the last `refresh` or change; empty if it does not exist."""
        collection = self.find()
        return dict((collection.metadata if collection is not None else None) or {})

    def metadata(self) -> dict[str, Any]:
        """The main collection's metadata, read from the database; empty if it does not exist."""
        collection = self.look_up()
        return dict((collection.metadata if collection is not None else None) or {})

    @property
    def words_folder(self) -> Path | None:
        """Folder of the index's words; None on a server, or if the index does not exist."""
        collection, folder = self.find(), self.connection.folder
        identity = None if collection is None else (collection.metadata or {}).get("eddy_id")
        return None if folder is None or identity is None else folder / WORDS / identity

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
        kept = {name: value for name, value in self.metadata().items() if value is not None}
        with translated_errors(self.place):
            self.collection().modify(metadata={**kept, **values})

    def settings(self) -> IndexSettings | None:
        """The stored settings; None if the index does not exist.

        Raises:
            ForeignCollection: The name belongs to another collection.
            OutdatedIndex: An earlier version of this library wrote the index.
        """
        main = self.look_up()
        return None if main is None else IndexSettings.parse(self.name, main.metadata or {}, outdated=self._texts_only)

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

    def mark_written(self, **values: Any) -> None:
        """Tell readers that rows have changed, with further values of the main collection's metadata."""
        token = uuid.uuid4().hex
        if self.connection.folder is None:
            values[_UNNUMBERED] = True
        self.update_metadata(eddy_written=token, **values)
        self.connection.state.tokens[str(self.metadata().get("eddy_id"))] = token

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
        """The collection, without files of vectors that keep Chroma from reading its texts."""
        with suppress(InternalError):
            collection.get(limit=1, include=["metadatas"])
            return collection
        with translated_errors(self.place), self.connection.row_lock or nullcontext():  # now nobody is writing them
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
            if vectors.are_whole(segments) and not (main.metadata or {}).get(_UNNUMBERED):
                with vectors.changing(segments):
                    collection.count()
                self.connection.state.loaded.add(collection.id)
                return
        except (InternalError, StorageError) as error:
            logging.getLogger(__name__).warning("%s cannot be read: %s", collection.name, error)
        if not self.remake():  # another process has made them anew, or is done with its change
            self._load(self.look_up() or main, collection)

    def remake(self, *, also_whole: bool = False) -> bool:
        """Make Chroma's files of vectors anew, if they are not whole, or in any case (`also_whole`); whether it did.

        Raises:
            StorageError: Vectors are missing in the file that they are made from.
        """
        main = None if self._texts_only else self.look_up()
        if main is None or (vectors := self._vectors(main)) is None or self.connection.row_lock is None:
            return False
        identities, segments = (main.id, uuid.UUID((main.metadata or {})["eddy_documents"])), self._segments(main)
        unnumbered = bool((main.metadata or {}).get(_UNNUMBERED))
        with self.connection.row_lock:
            if vectors.are_whole(segments) and not (also_whole or unnumbered):  # another process has made them anew
                return False
            logging.getLogger(__name__).warning("the files of vectors of %s are made anew", self.name)
            if unnumbered or not vectors.rows.path.exists():
                vectors.folder.mkdir(parents=True, exist_ok=True)
                # The words name vectors by their numbers, too, and are read anew by the next writer.
                shutil.rmtree(self.connection.folder / WORDS / vectors.folder.name, ignore_errors=True)  # type: ignore[operator]
                known = len(vectors.rows)
                for identity in identities:
                    vectors.rescue(self.client.get_collection_by_id(identity, embedding_function=None), known)
            vectors.forget_record()
            for segment in segments:
                vectors.delete_files(segment)
            self.connection.reopen()
            for identity in identities:
                vectors.put_back(self.client.get_collection_by_id(identity, embedding_function=None))
                self.connection.state.loaded.add(identity)
            vectors.record(segments, {})
            self.mark_written(**{_UNNUMBERED: False})
        return True

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let rows change, in one or several calls; if this is not completed, the files of vectors are made anew."""
        main, _ = self.collection(), self.collection(DOCUMENTS)  # loaded before their files may change
        vectors = self._vectors(main)
        if vectors is None:
            yield
            return
        try:
            with translated_errors(self.place), vectors.changing(self._segments(main)):
                yield
        except BaseException:
            self.connection.state.loaded.clear()
            self.forget()
            raise
