"""A folder that holds documents' vectors in an embedded Chroma, and remembers what made them.

Three collections in cosine space: `passages` is searched; `sentences` marks the best sentence of a passage found;
`documents` has one row for each document, which says `complete` only once all its other rows are in.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_demo.content import pages_of
from eddy_demo.errors import LibraryMismatch
from eddy_demo.recipe import PART, POST, Recipe, check_free, check_recipe, holds_library, read_recipe, write_recipe

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from chromadb.api.types import GetResult, Where
    from numpy.typing import NDArray

    from eddy_demo.reading import Document
    from eddy_embed import Embedder, LongDocument
    from eddy_embed.postprocess import Fitted


@dataclass(frozen=True)
class Hit:
    """A passage found: its row in Chroma, with the true cosine."""

    cosine: float
    document: str
    index: int
    start: int
    end: int
    first_sentence: int
    last_sentence: int
    text: str
    page: int | None
    last_page: int | None


@dataclass(frozen=True)
class Entry:
    """What the library knows of a document."""

    name: str
    title: str
    origin: str
    digest: str
    complete: bool
    passages: int
    sentences: int
    tokens: int
    windows: int
    characters: int


class Library:
    """Rows of documents in a folder: `Library(folder)` opens them, `Library.create(folder, recipe)` makes the place."""

    def __init__(self, folder: Path) -> None:
        """Open a library.

        Raises:
            NoLibrary: The folder has none, or not one that this version reads.
        """
        self.folder = folder
        self.recipe = read_recipe(folder)
        self._client = _open_chroma(folder)
        self._collections: dict[str, Collection] = {}

    @classmethod
    def create(cls, folder: Path, recipe: Recipe, post: Fitted | None = None) -> Library:
        """Make a library, or open the one that is there.

        Args:
            folder: Absent, empty, or a library.
            recipe: What makes its vectors.
            post: What the method's post-processing was fitted to.

        Raises:
            LibraryMismatch: The folder has a library of another recipe, or other files.
        """
        if not holds_library(folder):
            check_free(folder)
            folder.mkdir(parents=True, exist_ok=True)
            if post is not None:
                post.save(folder / POST)
            write_recipe(folder, recipe)
        library = cls(folder)
        library.check(recipe)
        return library

    def check(self, recipe: Recipe) -> None:
        """Refuse a recipe that differs from the library's.

        Raises:
            LibraryMismatch: It differs; the message says in what, and what to do.
        """
        check_recipe(self.folder, self.recipe, recipe)

    def check_embedder(self, embedder: Embedder) -> None:
        """Refuse an embedder whose vectors are not comparable with the stored ones.

        Raises:
            LibraryMismatch: Its fingerprint is another one.
        """
        if embedder.fingerprint != self.recipe.fingerprint:
            raise LibraryMismatch(
                f"the library in {self.folder} was made with fingerprint {self.recipe.fingerprint[:12]}, but "
                f"{self.recipe.model} with {self.recipe.method} now has {embedder.fingerprint[:12]}: weights, "
                "tokenizer or settings changed since. Make the library anew (eddy-demo ingest PATH --rebuild), or "
                "ingest into another folder with --library"
            )

    def close(self) -> None:
        """Let go of the files."""
        self._client.close()  # type: ignore[attr-defined]  # of the concrete client
        self._collections.clear()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Writing

    def is_current(self, document: Document) -> bool:
        """Whether the document's rows are all there and its content has not changed."""
        entry = self.entries([document.key]).get(document.key)
        return entry is not None and entry.complete and entry.digest == document.digest

    def write(self, document: Document, embedded: LongDocument) -> None:
        """Write or replace a document's rows.

        The document is marked incomplete first and complete last: an interruption in between leaves it out of every
        answer until the next ingestion writes it again.
        """
        entry = Entry(
            name=document.name,
            title=document.title,
            origin=document.origin.encode("utf-8", "replace").decode(),
            digest=document.digest,
            complete=False,
            passages=len(embedded.passages),
            sentences=len(embedded.sentences),
            tokens=embedded.n_tokens,
            windows=embedded.n_windows,
            characters=len(document.text),
        )
        vector = np.asarray(embedded.vector, np.float32)[None]
        self._upsert("documents", [document.key], vector, [asdict(entry)])
        self._write_passages(document, embedded)
        self._write_sentences(document, embedded)
        self._upsert("documents", [document.key], vector, [{**asdict(entry), "complete": True}])

    def remove(self, key: str) -> None:
        """Remove a document and its rows."""
        # Interrupted here, it is incomplete, and not taken for whole if its file comes back.
        self._collection("documents").update(ids=[key], metadatas=[{"complete": False}])
        for name in ("passages", "sentences"):
            self._collection(name).delete(where={"document": key})
        self._collection("documents").delete(ids=[key])

    def _write_passages(self, document: Document, embedded: LongDocument) -> None:
        rows = [
            {
                "document": document.key,
                "index": index,
                "start": passage.start,
                "end": passage.end,
                "first_sentence": passage.first_sentence,
                "last_sentence": passage.last_sentence,
                "tokens": passage.n_tokens,
                **_pages(document, passage.start, passage.end),
            }
            for index, passage in enumerate(embedded.passages)
        ]
        texts = [document.text[passage.start : passage.end] for passage in embedded.passages]
        self._replace("passages", document.key, _stack(embedded.passages), rows, texts)

    def _write_sentences(self, document: Document, embedded: LongDocument) -> None:
        rows = [
            {"document": document.key, "index": index, "start": sentence.start, "end": sentence.end}
            for index, sentence in enumerate(embedded.sentences)
        ]
        self._replace("sentences", document.key, _stack(embedded.sentences), rows)

    def _replace(
        self,
        name: str,
        key: str,
        vectors: NDArray[np.float32],
        rows: list[dict[str, Any]],
        texts: list[str] | None = None,
    ) -> None:
        self._upsert(name, [_row_id(key, row["index"]) for row in rows], vectors, rows, texts)
        beyond: Where = {"$and": [{"document": key}, {"index": {"$gte": len(rows)}}]}  # type: ignore[dict-item]
        self._collection(name).delete(where=beyond)

    def _upsert(
        self,
        name: str,
        ids: list[str],
        vectors: NDArray[np.float32],
        rows: list[dict[str, Any]],
        texts: list[str] | None = None,
    ) -> None:
        limit = self._client.get_max_batch_size()
        for at in range(0, len(ids), limit):
            part = slice(at, at + limit)
            self._collection(name).upsert(
                ids=ids[part],
                embeddings=vectors[part],
                metadatas=rows[part],  # type: ignore[arg-type]
                documents=texts[part] if texts is not None else None,
            )

    # --- Reading

    def entries(self, keys: list[str] | None = None) -> dict[str, Entry]:
        """What is known of the documents, by key; of all of them without keys."""
        return _entries(self._collection("documents").get(ids=keys, include=["metadatas"]))

    def incomplete(self) -> dict[str, Entry]:
        """Documents whose writing was interrupted."""
        return _entries(self._collection("documents").get(where={"complete": False}, include=["metadatas"]))

    def search(self, queries: NDArray[np.float32], k: int) -> list[list[Hit]]:
        """The k passages nearest to each query, nearest first; passages of incomplete documents are left out.

        Args:
            queries: Unit vectors, shape (queries, dimension).
            k: How many passages.
        """
        broken = list(self.incomplete())
        got = self._collection("passages").query(
            query_embeddings=queries,
            n_results=k,
            where={"document": {"$nin": broken}} if broken else None,  # type: ignore[dict-item]
            include=["metadatas", "documents", "distances"],
        )
        rows, texts, distances = got["metadatas"] or [], got["documents"] or [], got["distances"] or []
        return [
            [_hit(1 - d, row, text) for row, text, d in zip(*found, strict=True)]
            for found in zip(rows, texts, distances, strict=True)
        ]

    def sentences(self, hit: Hit) -> tuple[list[tuple[int, int]], NDArray[np.float32]]:
        """Character ranges and vectors of the sentences of a passage found, in order."""
        ids = [_row_id(hit.document, index) for index in range(hit.first_sentence, hit.last_sentence + 1)]
        got = self._collection("sentences").get(ids=ids, include=["metadatas", "embeddings"])
        rows: list[Any] = got["metadatas"] or []
        order = np.argsort([row["index"] for row in rows])  # Chroma answers in an order of its own
        ranges = [(int(rows[at]["start"]), int(rows[at]["end"])) for at in order]
        return ranges, np.asarray(got["embeddings"], np.float32)[order]

    def passages(self) -> Iterator[tuple[str, str]]:
        """Key of the document and text of every passage of every complete document."""
        broken = self.incomplete()
        collection, step = self._collection("passages"), 1000
        for offset in range(0, collection.count(), step):
            got = collection.get(limit=step, offset=offset, include=["metadatas", "documents"])
            for row, text in zip(got["metadatas"] or [], got["documents"] or [], strict=True):
                if row["document"] not in broken:
                    yield str(row["document"]), text

    def _collection(self, name: str) -> Collection:
        if name not in self._collections:
            self._collections[name] = self._client.get_or_create_collection(
                name,
                embedding_function=None,
                # The search is approximate; with a wide beam it misses next to nothing at a library's size.
                configuration={"hnsw": {"space": "cosine", "ef_search": 400, "ef_construction": 200}},
            )
        return self._collections[name]


def _open_chroma(folder: Path) -> ClientAPI:
    if not (folder / "chroma").exists():
        # A database whose making was cut short can never be opened again: it gets its name only when it is whole.
        shutil.rmtree(folder / PART, ignore_errors=True)
        _client(folder / PART).close()  # type: ignore[attr-defined]  # of the concrete client
        (folder / PART).rename(folder / "chroma")
    return _client(folder / "chroma")


def _client(place: Path) -> ClientAPI:
    import chromadb
    from chromadb.config import Settings
    from chromadb.errors import InternalError

    try:
        return chromadb.PersistentClient(str(place), settings=Settings(anonymized_telemetry=False))
    except AttributeError as error:
        # Chroma cannot clean up after a client that it could not make, and hides why it could not.
        raise InternalError(str(error.__context__ or error)) from error


def _entries(got: GetResult) -> dict[str, Entry]:
    names = [field.name for field in fields(Entry)]
    rows = zip(got["ids"], got["metadatas"] or [], strict=True)
    return {key: Entry(**{name: row[name] for name in names}) for key, row in rows}  # type: ignore[arg-type]


def _stack(spans: Sequence[Any]) -> NDArray[np.float32]:
    return np.stack([np.asarray(span.vector, np.float32) for span in spans])


def _row_id(key: str, index: int) -> str:
    return f"{key}/{index}"


def _pages(document: Document, start: int, end: int) -> dict[str, int]:
    """The pages of a span, as Chroma stores them: absent for a document without pages."""
    pages = pages_of(document.page_starts, start, end)
    return {} if pages is None else {"page": pages[0], "last_page": pages[1]}


def _hit(cosine: float, row: Any, text: str) -> Hit:
    names = ("document", "index", "start", "end", "first_sentence", "last_sentence")
    pages = {name: row.get(name) for name in ("page", "last_page")}
    return Hit(cosine=float(cosine), text=text, **{name: row[name] for name in names}, **pages)
