"""What an index takes, returns and raises: documents, hits and their sentences, its state, and errors."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy_embed.encoding.validation import check_kind, raise_on_surrogates
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, Pages

PREFIX = "eddy_"  # prefix of the index's own metadata names
RESERVED = (START, END, "page", "last_page", HEADINGS)  # further metadata names that the index writes itself
VECTOR = "eddy_vector"  # metadata of a row: the number of its vector in the file
DIGEST = "eddy_digest"  # metadata of every row: the version of its document; "" for a framework's row
FIELDS = "eddy_row"  # JSON of what nobody searches by: each entry of metadata takes a hundred bytes
WRITTEN = (DIGEST, FIELDS, VECTOR)  # metadata that the index writes into a framework's rows, beside their document's id


# --- Errors, of which each message says what failed, where, and what to do next ---------------------------------------


class NoIndex(EddyError):
    """There is no index of that name, and no embedder to make one with."""


class ForeignCollection(EddyError):
    """Something else made a collection under one of the index's names, or changed its rows."""


class IndexInUse(EddyError):
    """Another process, or another thread, is writing to the database; `holder` says which."""

    def __init__(self, message: str, holder: str = "another process") -> None:
        super().__init__(message)
        self.holder = holder


class StorageError(EddyError):
    """The database failed: a full disk, no permission, damage, or a server that does not answer."""


class LostVectors(StorageError):
    """Vectors are lost; the texts are there, and `reindex` embeds them again."""


def under_headings(text: str, headings: str) -> str:
    """Return a passage's text after the path of its headings, as it is embedded, searched and re-ranked."""
    return f"{headings}\n{text}" if headings else text


def damaged(document: str, what: str) -> ForeignCollection:
    """Return the error of a document, by its id, whose rows lack something."""
    return ForeignCollection(
        f"document {document!r:.80} lacks {what}: something else has changed its rows. Call check(), which finds all "
        "such documents, and upsert them again"
    )


@dataclass(frozen=True)
class Document:
    """A whole document.

    Attributes:
        id: Id, the same between runs; a document of the same id replaces it.
        text: The whole text; offsets count its characters.
        metadata: Stored with each passage, for filters: strings, numbers, truth values, and lists of one of these.
        page_starts: Offset at which each page begins, if there are pages; passages then have `page` and `last_page`.
        page_labels: What each page is called, such as "iv", if not by its number.
        left_out: Start and end of each part that is kept but no passage, such as a table of contents, in order.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page_starts: tuple[int, ...] = ()
    page_labels: tuple[str, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()

    @property
    def text_digest(self) -> str:
        """Hash of the text, and of which parts are no passages (32 hexadecimal digits)."""
        parts = json.dumps(self.left_out) if self.left_out else ""
        return hashlib.sha256((self.text + parts).encode()).hexdigest()[:32]

    @property
    def digest(self) -> str:
        """Hash of id, text, metadata and pages; it identifies a version of a document."""
        fields = [self.id, self.text_digest, sorted(self.metadata.items()), list(self.page_starts)]
        fields += [list(self.page_labels)] if self.page_labels else []
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:32]

    @property
    def pages(self) -> Pages:
        """Where its pages begin, and what they are called."""
        return Pages(self.page_starts, self.page_labels)


def check_document(item: Any, number: int) -> Document:
    """Refuse what is no document, or one that cannot be stored or embedded."""
    check_kind(f"documents[{number}]", item, Document, "a chroma_eddy.Document(id=..., text=...)")
    document: Document = item
    for what, kind, wanted in (("id", str, "a string"), ("text", str, "a string"), ("metadata", Mapping, "a mapping")):
        check_kind(f"documents[{number}].{what}", getattr(document, what), kind, wanted)
    if not document.id:
        raise InvalidParameter(f"documents[{number}] has no id; give one that stays the same, such as its path")
    name = f"document {document.id!r:.80}"
    if not document.text.strip():
        raise InvalidText(f"{name} has no text; leave it out")
    starts, labels = document.page_starts, document.page_labels
    for what, text in (("id", document.id), ("text", document.text), *(("page label", label) for label in labels)):
        check_kind(f"the {what} of {name}", text, str, "a string")
        raise_on_surrogates(text, f"the {what} of {name}")
    check_metadata(name, document.metadata, own=True)
    if any(isinstance(start, bool) or not isinstance(start, int) for start in starts) or list(starts) != sorted(starts):
        raise InvalidParameter(f"{name}: page_starts={starts!r:.80} must be rising numbers of characters")
    if labels and len(labels) != len(starts):
        raise InvalidParameter(f"{name} has {len(starts)} pages and {len(labels)} page_labels; name each")
    ends = [0, *(at for part in document.left_out for at in part), len(document.text)]
    if ends != sorted(ends):
        raise InvalidParameter(f"{name}: left_out={document.left_out!r:.80} must be parts of the text, in order")
    return document


def check_metadata(name: str, metadata: Mapping[Any, Any], *, own: bool) -> None:
    """Refuse metadata that Chroma cannot store, and names that the index needs, of its `own` documents or of rows."""
    for key, value in metadata.items():
        if not isinstance(key, str) or not key or key.startswith(("chroma:", "#", "$")):
            raise InvalidParameter(
                f"{name}: metadata may not have the name {key!r:.60}; Chroma takes strings that are not empty and do "
                "not begin with #, $ or chroma:"
            )
        if key in RESERVED or key.startswith(PREFIX) if own else key in (*WRITTEN, DOCUMENT):
            raise InvalidParameter(f"{name}: the index itself needs the metadata's name {key!r:.60}; name it otherwise")
        raise_on_surrogates(key, f"metadata {key!r:.60} of {name}")
        if not _is_storable(value):
            raise InvalidParameter(
                f"{name}: metadata {key!r:.60} is {value!r:.60}; Chroma holds valid strings, numbers of 64 bits, truth "
                "values, and lists of one of these that are not empty"
            )


def _is_storable(value: Any) -> bool:
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        return len(kinds) == 1 and kinds < {str, int, float, bool} and all(map(_is_storable, value))
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and -(2**63) <= value < 2**63


class WordMatch(NamedTuple):
    """A word of the question in a hit's text, with the `term` that is compared, and its inverse document frequency."""

    start: int
    end: int
    term: str
    weight: float


@dataclass(frozen=True)
class Highlight:
    """A sentence of a hit.

    Attributes:
        start, end: Offsets of its first character in the document's text, and after its last.
        text: Text of the sentence; of a hit, that of the passage, sentence or document.
        cosine: Cosine of the question's vector and its own.
        score: How likely the text is about the question, from 0 to 1: at 0.5 more likely so than not. Where the order
            of hits follows more than this, the lowest score so far counts, except among hits that `mmr` chose.
        fused: What hits are sorted by; compare it within one query only.
        headings: Headings above it, the highest first, as in "Tides > Spring tides"; of a passage, above its first
            section; "" without headings.
        page, last_page: Pages on which it begins and ends, from 1; None for a document without pages.
        page_label, last_page_label: What these are called, such as "iv"; "" where pages have no labels.
    """

    start: int
    end: int
    text: str
    cosine: float
    score: float
    fused: float
    headings: str = ""
    page: int | None = None
    last_page: int | None = None
    page_label: str = ""
    last_page_label: str = ""


@dataclass(frozen=True, kw_only=True)
class Hit(Highlight):
    """A passage, sentence or document that a query found.

    Attributes:
        id, document: Ids of the row and of the document.
        metadata, row: The document's metadata, as given; the row's, as stored.
        sentences: Sentences of a passage, in order, if the query asked for them.
        bm25: Of a hybrid query, as the next three: BM25 of the passage; 0 if it shares no word with the question.
        deviation: Standard deviations of the cosine above the mean of the library's passages.
        coverage: Share of the question's words that are in the passage, however often, weighed by their inverse
            document frequency and as often as the question has them, from 0 to 1.
        matches: The question's words in the passage, in order.
        rerank_score: Of a re-ranked query: geometric mean of the probabilities of the question's tokens after the
            passage, from 0 to 1; None if the model did not read the passage.
        pages: Pages of the document.
    """

    id: str
    document: str
    metadata: Mapping[str, Any]
    sentences: tuple[Highlight, ...] = ()
    bm25: float | None = None
    deviation: float | None = None
    coverage: float | None = None
    matches: tuple[WordMatch, ...] = ()
    rerank_score: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    pages: Pages = field(default=Pages((), ()), repr=False, compare=False)

    @property
    def best(self) -> Highlight | None:
        """The best sentence, by `fused`; None if the query did not ask for sentences."""
        return max(self.sentences, key=lambda sentence: sentence.fused, default=None)


@dataclass(frozen=True)
class Status:
    """Contents and state of an index.

    Attributes:
        fingerprint, settings: Of the embedder that made its vectors; the settings field by field.
        dimension: Dimension of the vectors; 0 for an index without any that was opened without an embedder.
        documents, sentences: Number of documents that queries find, and of their sentences.
        passages: Number of rows in the main collection.
        incomplete: Ids of documents that are being written or removed, or were at an interruption, or are damaged.
        rebuilt: Number of documents that an unfinished reindexing has done; None without one.
    """

    name: str
    fingerprint: str
    settings: Mapping[str, Any] = field(repr=False)
    dimension: int
    documents: int
    passages: int
    sentences: int
    incomplete: tuple[str, ...]
    rebuilt: int | None


@dataclass
class WriteReport:
    """What a call has done to an index.

    Attributes:
        written, unchanged, removed: Number of documents embedded and written, that the index had already, and removed.
        relabelled: Number of documents whose metadata alone had changed; they were not embedded again.
        passages, sentences: Number of passages and of sentences of the documents written.
        tokens: Number of tokens embedded, without prompts and placeholders.
        truncated: Number of documents whose end was not read, as `overflow="truncate"` asks.
    """

    written: int = 0
    unchanged: int = 0
    relabelled: int = 0
    removed: int = 0
    passages: int = 0
    sentences: int = 0
    tokens: int = 0
    truncated: int = 0
