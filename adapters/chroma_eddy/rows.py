"""Rows of Chroma's collections: read in pages, checked, and what their metadata say of documents and passages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import regex
from chromadb.api.models.Collection import Collection
from chromadb.api.types import validate_where, validate_where_document
from numpy.typing import NDArray

from chroma_eddy.settings import IndexSettings
from chroma_eddy.types import PREFIX, RESERVED, Document
from eddy_embed.encoding.document import LongDocument, heading_path
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, Pages, passage_id
from eddy_embed.text.sentences import Segmenter

PAGE_SIZE = 1000
"""Rows in a page."""
VECTOR = "eddy_vector"
"""Metadata of a row: the number of its vector in the file."""
DIGEST = "eddy_digest"
"""Metadata of every row, beside its document: the version of the document; "" for a framework's row."""
FIELDS = "eddy_row"
"""Metadata of documents and passages that nobody searches by, as JSON: each entry of its own takes a hundred bytes."""
FRAMEWORKS = ("_node_content", "_node_type")
"""Metadata of a framework's rows from which LlamaIndex makes its nodes again."""
WRITTEN = (DIGEST, FIELDS, VECTOR)
"""Metadata that the index writes into a framework's rows, beside their document's id."""
_ROUNDING = 1e-6
"""Largest difference between entries of two vectors that rounding alone may make, relative to entries above 1."""
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Filter = dict[str, Any]
"""A condition of Chroma's on metadata or on texts."""


# --- Batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowBatch:
    """Rows of a collection; fields that were not requested are empty."""

    ids: list[str]
    metadatas: list[dict[str, Any]]
    texts: list[str] = field(default_factory=list)
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @classmethod
    def parse(cls, got: Any) -> RowBatch:
        """The rows that Chroma's `get` returned."""
        return cls(
            got["ids"],
            [dict(row or {}) for row in got["metadatas"] or []],
            list(got["documents"] or []),
            np.zeros((0, 0), np.float32) if got["embeddings"] is None else np.asarray(got["embeddings"], np.float32),
        )

    def take(self, numbers: Sequence[int]) -> RowBatch:
        """Some of the rows, by their numbers."""
        return RowBatch(
            [self.ids[at] for at in numbers],
            [self.metadatas[at] for at in numbers],
            [self.texts[at] for at in numbers] if self.texts else [],
            self.vectors[list(numbers)] if len(self.vectors) else self.vectors,
        )

    @classmethod
    def concatenate(cls, pages: Iterable[RowBatch]) -> RowBatch:
        """The rows of all pages."""
        pages = list(pages)
        vectors = [page.vectors for page in pages if len(page.vectors)]
        return cls(
            [id_ for page in pages for id_ in page.ids],
            [row for page in pages for row in page.metadatas],
            [text for page in pages for text in page.texts],
            np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32),
        )


def slices(count: int, limit: int) -> Iterator[slice]:
    """Slices of at most `limit` out of `count` rows."""
    return (slice(start, start + limit) for start in range(0, count, limit))


def pages(
    collection: Collection, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
) -> Iterator[RowBatch]:
    """Rows by id or condition, or all rows, page by page, with `fields` of `metadatas`, `documents`, `embeddings`."""
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


def are_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors, shape (width,), differ by rounding alone."""
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING))


# --- Conditions -------------------------------------------------------------------------------------------------------


def conjunction(filters: Iterable[Filter | None]) -> Filter | None:
    """The condition that all of some conditions are met, of which None and {} are none; None without any."""
    conditions = [condition for condition in filters if condition]
    return {"$and": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def check_conditions(where: Any, where_document: Any = None) -> None:
    """Refuse conditions that Chroma does not take with InvalidParameter, which quotes them; None and {} are none."""
    for name, condition, validate in (
        ("where", where, validate_where),
        ("where_document", where_document, validate_where_document),
    ):
        if condition is None or condition == {}:
            continue
        try:
            validate(condition)
            _check_values(condition, name == "where")
        except (ValueError, TypeError, regex.error) as error:
            raise InvalidParameter(
                f"{name}={condition!r:.200} is no condition of Chroma's: {error}; write one such as "
                + ('{"year": {"$gte": 1921}}' if name == "where" else '{"$contains": "ferry"}')
            ) from None


def _check_values(condition: Any, of_metadata: bool) -> None:
    for key, value in condition.items():
        if key in ("$and", "$or"):
            for part in value:
                _check_values(part, of_metadata)
        elif of_metadata and key.startswith("$"):
            raise ValueError(f"{key!r} names no metadata")
        for operator, operand in value.items() if isinstance(value, dict) else ():
            if isinstance(operand, list) and operator not in ("$in", "$nin"):
                raise ValueError(f"{operator} compares with one value, not with {operand!r:.60}")
        for number in _leaves(value):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{number} is equal to nothing")
        if not of_metadata and key.endswith("regex"):
            regex.compile(value)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list) else [value]


# --- Documents and passages -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredDocument:
    """The index's row of a document.

    Attributes:
        id: Id of the document.
        digest: Digest of the version that queries find; "" for a damaged document, which they do not find.
        text_digest: Digest of the text.
        passages: Number of rows in the main collection.
        sentences: Number of sentences.
        tokens: Number of tokens of the text.
        windows: Number of passes over the text.
        truncated: Number of tokens at the end that were not read.
        characters: Length of the text.
        page_starts: Offset at which each page begins.
        page_labels: What each page is called; empty where not otherwise than by its number.
        left_out: Parts that are no passages.
        metadata: The document's metadata, as given.
    """

    id: str
    digest: str
    text_digest: str
    passages: int
    sentences: int
    tokens: int
    windows: int
    truncated: int
    characters: int
    page_starts: tuple[int, ...]
    page_labels: tuple[str, ...]
    left_out: tuple[tuple[int, int], ...]
    metadata: dict[str, Any]

    @classmethod
    def parse(cls, id_: str, row: Mapping[str, Any]) -> StoredDocument:
        """Parse a row of the documents' collection."""
        stored = fields(row)
        counts = ("passages", "sentences", "tokens", "windows", "truncated", "characters")
        return cls(
            id_,
            row[DIGEST],
            stored["text"],
            **{name: int(stored[name]) for name in counts},
            page_starts=tuple(map(int, str(stored.get("page_starts", "")).split())),
            page_labels=tuple(stored.get("page_labels", ())),
            left_out=tuple((start, end) for start, end in stored.get("left_out", ())),
            metadata=user_metadata(row),
        )

    @classmethod
    def by_id(cls, rows: RowBatch) -> dict[str, StoredDocument]:
        """Parse rows, by their ids."""
        return {id_: cls.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}

    def document(self, text: str) -> Document:
        """The document as it was given."""
        return Document(self.id, text, self.metadata, self.page_starts, self.page_labels, self.left_out)

    @property
    def pages(self) -> Pages:
        """Where its pages begin, and what they are called."""
        return Pages(self.page_starts, self.page_labels)

    @property
    def complete(self) -> bool:
        """Whether queries find the document."""
        return bool(self.digest)


def user_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a row's metadata that the user gave, or a framework."""
    if not row.get(DIGEST):
        return {key: value for key, value in row.items() if key not in (*FRAMEWORKS, *WRITTEN, DOCUMENT)}
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in RESERVED}


def under_headings(text: str, headings: str) -> str:
    """Return a passage's text after the path of its headings, as it is embedded, searched and re-ranked."""
    return f"{headings}\n{text}" if headings else text


def fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `FIELDS` of a row says; a framework's row says nothing there."""
    stored: dict[str, Any] = json.loads(row.get(FIELDS, "{}"))
    return stored


def document_metadata(document: Document, embedded: LongDocument) -> dict[str, Any]:
    """Return the metadata of a document's row."""
    passages = embedded.passages
    stored = {
        "text": document.text_digest,
        "passages": len(passages),
        "sentences": passages[-1].last_sentence + 1,
        "tokens": embedded.n_tokens,
        "windows": embedded.n_windows,
        "truncated": embedded.n_truncated,
        "characters": len(document.text),
        "after": document.text[passages[-1].end :],
        **_pages(document),
        **({"left_out": document.left_out} if document.left_out else {}),
    }
    return {**document.metadata, DOCUMENT: document.id, DIGEST: document.digest, FIELDS: _as_json(stored)}


def passage_rows(
    document: Document, embedded: LongDocument, settings: IndexSettings, sentence_vectors: Sequence[int] = ()
) -> RowBatch:
    """A document's rows in the main collection; `sentence_vectors`: the numbers of sentences' vectors, if stored."""
    digest, text, passages = document.digest, document.text, embedded.passages
    spans = embedded.sentence_spans or split_sentences(text, settings)
    before = [0, *(passage.end for passage in passages)]
    rows = []
    for index, passage in enumerate(passages):
        inside = spans[passage.first_sentence : passage.last_sentence + 1]
        gap = text[before[index] : passage.start]
        stored = {
            "index": index,
            "rows": len(passages),
            "n_tokens": passage.n_tokens,
            "sentences": " ".join(f"{start - passage.start}-{end - passage.start}" for start, end in inside),
            **({"before": gap} if gap else {}),
            **({"vectors": sentence_vectors[passage.first_sentence]} if sentence_vectors else {}),
        }
        rows.append(
            {
                **document.metadata,
                **document.pages.numbers(passage.start, passage.end),
                DOCUMENT: document.id,
                DIGEST: digest,
                START: passage.start,
                END: passage.end,
                FIELDS: _as_json(stored),
                **({HEADINGS: heading_path(passage.headings)} if passage.headings else {}),
            }
        )
    ids = [_row_id(document.id, digest, passage.start, passage.end, settings) for passage in passages]
    texts = [text[passage.start : passage.end] for passage in passages]
    return RowBatch(ids, rows, texts, np.stack([np.asarray(passage.vector, np.float32) for passage in passages]))


def with_pages(stored: str, document: Document) -> str:
    """Return `FIELDS` of a document's row, with the pages of another version of it."""
    others = {key: value for key, value in json.loads(stored).items() if key != "page_labels"}
    return _as_json({**others, **_pages(document)})


def _pages(document: Document) -> dict[str, Any]:
    labels = {"page_labels": document.page_labels} if document.page_labels else {}
    return {"page_starts": " ".join(map(str, document.page_starts)), **labels}


def share_vectors(documents: RowBatch, passages: RowBatch) -> None:
    """Let a document of one passage have the passage's stored vector, from which its own differs by rounding."""
    by_document: dict[str, list[int]] = {}
    for at, row in enumerate(passages.metadatas):
        by_document.setdefault(row[DOCUMENT], []).append(at)
    for at, id_ in enumerate(documents.ids):
        first, *others = by_document[id_]
        stored = passages.metadatas[first].get(VECTOR)
        near = are_alike(documents.vectors[at], passages.vectors[first])
        if stored is not None and not others and near:
            documents.metadatas[at][VECTOR] = stored
            documents.vectors[at] = passages.vectors[first]


def relabelled(rows: RowBatch, old: StoredDocument, document: Document, settings: IndexSettings) -> RowBatch:
    """The passages of a version for another one, of the same text with other metadata; without vectors."""
    digest = document.digest
    metadatas = [
        {
            **{key: value for key, value in row.items() if key not in {*old.metadata, "page", "last_page"}},
            **document.metadata,
            **document.pages.numbers(row[START], row[END]),
            DIGEST: digest,
        }
        for row in rows.metadatas
    ]
    ids = [_row_id(document.id, digest, row[START], row[END], settings) for row in rows.metadatas]
    return RowBatch(ids, metadatas, rows.texts, rows.vectors)


def _row_id(document: str, digest: str, start: int, end: int, settings: IndexSettings) -> str:
    """Id of a passage's row: a hash of document, version, span and what makes the vectors."""
    return passage_id(document, digest, 0, start, end, settings.fingerprint, settings.late)


def sentence_spans(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Offsets of a passage's sentences, relative to its start."""
    pairs = (span.split("-") for span in str(fields(row)["sentences"]).split())
    return [(int(start), int(end)) for start, end in pairs]


def split_sentences(text: str, settings: IndexSettings) -> list[tuple[int, int]]:
    """Offsets of a text's sentences, by the index's segmenter."""
    _, language, most = str(settings.embedder["segmenter"]).rsplit(":", 2)
    return [(sentence.start, sentence.end) for sentence in Segmenter(language, int(most)).sentences(text)]


def join_text(passages: RowBatch, document: Mapping[str, Any]) -> str:
    """Join a document's text from its passages, in order, and metadata of its own row."""
    before = (str(fields(row).get("before", "")) for row in passages.metadatas)
    parts = (gap + text for gap, text in zip(before, passages.texts, strict=True))
    return "".join(parts) + str(fields(document)["after"])


def in_order(passages: RowBatch) -> RowBatch:
    """The passages of one version as they follow each other in the document."""
    places = [fields(metadata)["index"] for metadata in passages.metadatas]
    return passages.take(sorted(range(len(places)), key=places.__getitem__))
