"""`StoredVectors`: the vectors of an index in a folder, from which Chroma's own files of them can be made again.

Chroma overwrites the files of a collection's HNSW graph in place, and never waits until they have reached the disk. A
process that is killed meanwhile, or a power failure, leaves files that cannot be read. So each vector is also in a file
that only grows, at the row that the metadata name, and a record says which of Chroma's files are whole. Texts and
metadata are in SQLite, in transactions, and need nothing of this.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from chromadb.errors import ChromaError
from filelock import FileLock
from numpy.typing import NDArray

from chroma_eddy.database import VECTORS
from chroma_eddy.errors import LostVectors, StorageError
from chroma_eddy.rows import VECTOR, RowBatch, pages
from eddy_embed.utils.atomic_files import atomic_write, sync

AGAIN = "embed them again: chroma_eddy.reindex(place, name, embedder), or `eddy-demo library rebuild` for a library"
"""What to do where vectors are lost."""


class VectorFile:
    """Vectors of one width, row after row; one process at a time appends.

    A process that is killed meanwhile leaves rows that nothing names.
    """

    def __init__(self, path: Path, width: int, dtype: type[np.floating[Any]]) -> None:
        self.path, self._width, self._dtype = path, width, dtype
        self._row_bytes = width * np.dtype(dtype).itemsize

    def __len__(self) -> int:
        """Number of whole rows."""
        return self.path.stat().st_size // self._row_bytes if self.path.exists() else 0

    def append(self, vectors: NDArray[np.float32]) -> range:
        """Append rows, shape (rows, width), wait until they are on the disk, and return their numbers."""
        first = len(self)
        if not len(vectors):
            return range(first, first)
        is_new = not self.path.exists()
        with self.path.open("wb" if is_new else "r+b") as file:
            file.truncate(first * self._row_bytes)
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(vectors, self._dtype).tobytes())
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync(self.path.parent)
        return range(first, first + len(vectors))

    def read(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """Read rows by their numbers, shape (numbers, width).

        Raises:
            LostVectors: The file has no such row: something else has cut it.
        """
        if not len(numbers):
            return np.zeros((0, self._width), np.float32)
        rows = np.asarray(numbers, np.int64)
        if rows.min() < 0 or rows.max() >= len(self):
            raise LostVectors(
                f"{self.path} has {len(self)} rows, and lacks row {rows.max()}: something else has cut it. Put it back "
                f"from a backup, or {AGAIN}"
            )
        held = np.memmap(self.path, self._dtype, "r", shape=(len(self), self._width))
        return np.asarray(held[rows], np.float32)


class StoredVectors:
    """The vectors of one index, by the rows' numbers, and the record of Chroma's files.

    Attributes:
        folder: Where they are.
        rows: Vectors of rows.
        sentences: Vectors of sentences, in half precision, of methods that run layers.
    """

    def __init__(self, database: Path, identity: str, width: int, lock: FileLock) -> None:
        """`lock` is the row lock of the database's folder; `identity` the id of the index."""
        self.folder = database / VECTORS / identity
        self.rows = VectorFile(self.folder / "rows.f32", width, np.float32)
        self.sentences = VectorFile(self.folder / "sentences.f16", width, np.float16)
        self._database, self._lock = database, lock
        self._record = self.folder / "hnsw.json"

    @property
    def fit(self) -> Path:
        """File of the embedder's fitted post-processing, if it has any."""
        return self.folder / "fit.npz"

    def create(self) -> None:
        """Create the folder, for collections that have no rows yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
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
                    raise StorageError(
                        f"another process was killed while it wrote to {self._database}; do the same again"
                    )
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
        """Whether Chroma's files are those of the record, by their sizes; not while they may change."""
        return self._recorded() == {path: size for path, (size, _) in self._files(segments).items()}

    def record(self, segments: Sequence[str], known: Mapping[str, tuple[int, int]]) -> None:
        """Record Chroma's files as they are, once those that are not as they were `known` are on the disk."""
        for segment in segments:
            _clear_unsaved(self._database / segment)
        files = self._files(segments)
        changed = {self._database / path for path, state in files.items() if known.get(path) != state}
        for path in (*changed, *{path.parent for path in changed}):
            sync(path)
        self._write_record({path: size for path, (size, _) in files.items()})

    def numbers(self, metadatas: Sequence[Mapping[str, Any]]) -> list[int]:
        """The rows' numbers in the file; -1 for a row without, as others write."""
        return [int(row.get(VECTOR, -1)) for row in metadatas]

    def copy_from_chroma(self, collection: Collection, known: int, ids: Sequence[str] | None = None) -> None:
        """Append vectors as Chroma has them, of rows by their ids, or of all without a number below `known`.

        Raises:
            LostVectors: Chroma cannot read them.
        """
        try:
            for rows in pages(collection, ids=ids, metadatas=True):
                numbers = self.numbers(rows.metadatas)
                unnumbered = [at for at, number in enumerate(numbers) if ids or not 0 <= number < known]
                if unnumbered:
                    chosen = [rows.ids[at] for at in unnumbered]
                    got = RowBatch.parse(collection.get(ids=chosen, include=["embeddings"]))
                    appended = self.rows.append(got.vectors)
                    collection.update(ids=got.ids, metadatas=[{VECTOR: number} for number in appended])
        except ChromaError as error:
            raise LostVectors(
                f"vectors of {collection.name!r} are lost: {self.rows.path} lacks them, and Chroma cannot read its own "
                f"({error}). The texts are there: put the folder back from a backup, or {AGAIN}"
            ) from error

    def restore_into_chroma(self, collection: Collection) -> None:
        """Give Chroma every vector again, into files that it begins anew.

        It reads the last rows from its log by itself, and a vector that is replaced in the graph hides others.
        """
        there: set[str] | None = None
        for rows in pages(collection, metadatas=True):
            numbers = self.numbers(rows.metadatas)
            if there is None and max(numbers) >= 0:
                last = self.rows.read([max(numbers)])
                there = set(collection.query(query_embeddings=last, n_results=collection.count(), include=[])["ids"][0])
            absent = [at for at, number in enumerate(numbers) if number >= 0 and rows.ids[at] not in (there or ())]
            if absent:
                vectors = self.rows.read([numbers[at] for at in absent])
                collection.upsert(ids=[rows.ids[at] for at in absent], embeddings=vectors)

    def mark_incomplete(self) -> None:
        """Take the record away: Chroma's files are not whole until the next one."""
        self._record.unlink(missing_ok=True)
        sync(self.folder)

    def delete_files(self, segment: str) -> None:
        """Delete Chroma's files of a segment."""
        shutil.rmtree(self._database / segment, ignore_errors=True)

    def _recorded(self) -> dict[str, Any] | None:
        try:
            recorded: dict[str, Any] = json.loads(self._record.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return recorded

    def _write_record(self, sizes: Mapping[str, int]) -> None:
        with atomic_write(self._record) as file:
            file.write(json.dumps(sizes).encode())

    def _files(self, segments: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file of segments, by its path in the database's folder."""
        found = {}
        for segment in segments:
            for path in sorted(self._database.glob(f"{segment}/*")):
                with suppress(FileNotFoundError):  # another process makes them anew
                    state = path.stat()
                    found[path.relative_to(self._database).as_posix()] = state.st_size, state.st_mtime_ns
        return found


def _clear_unsaved(segment: Path) -> None:
    """Overwrite the files that Chroma has made and not saved to yet, and does not read.

    They are memory that hnswlib has not initialised, in which texts may be left.
    """
    if (segment / "index_metadata.pickle").exists():
        return
    for path in (segment / "data_level0.bin", segment / "length.bin"):
        if path.exists() and path.read_bytes().strip(b"\0"):
            path.write_bytes(bytes(path.stat().st_size))  # in place: Chroma has the files open
