"""What an index takes and returns: documents, hits and highlighted sentences, and its state."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy_embed.encoding.validation import check_kind, raise_on_surrogates
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.integrations.documents import END, HEADINGS, START, Pages

PREFIX = "eddy_"
"""Prefix of the index's own metadata names."""
RESERVED = (START, END, "page", "last_page", HEADINGS)
"""Further metadata names that the index writes itself."""


@dataclass(frozen=True)
class Document:
    """A whole document.

    Attributes:
        id: Id, the same between runs; a document of the same id replaces it.
        text: The whole text; offsets count its characters.
        metadata: Stored with each passage, for filters: strings, numbers, truth values, and lists of one of these.
        page_starts: Offset at which each page begins, if the document has pages; its passages then have `page` and
            `last_page`, counted from 1.
        page_labels: What each page is called, such as "iv", if not by its number.
        left_out: First character, and the one after the last, of each part that is kept but no passage, such as a table
            of contents: in order, without overlap.
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


def check_document(given: Any, index: int) -> Document:
    """Refuse what is no document, or one that cannot be stored or embedded."""
    check_kind(f"documents[{index}]", given, Document, "a chroma_eddy.Document(id=..., text=...)")
    document: Document = given
    check_kind(f"documents[{index}].id", document.id, str, "a string")
    check_kind(f"documents[{index}].text", document.text, str, "a string")
    check_kind(f"documents[{index}].metadata", document.metadata, Mapping, "a dictionary")
    if not document.id:
        raise InvalidParameter(
            f"documents[{index}] has no id; give one that stays the same between runs, such as its path"
        )
    name = f"document {document.id!r:.80}"
    if not document.text.strip():
        raise InvalidText(f"{name} has no text; leave it out")
    raise_on_surrogates(document.id, f"the id of {name}")
    raise_on_surrogates(document.text, f"the text of {name}")
    for key, value in document.metadata.items():
        _check_metadata(name, key, value)
    starts = document.page_starts
    if any(isinstance(start, bool) or not isinstance(start, int) for start in starts) or list(starts) != sorted(starts):
        raise InvalidParameter(f"{name}: page_starts={starts!r:.80} must be rising numbers of characters")
    if document.page_labels and len(document.page_labels) != len(starts):
        raise InvalidParameter(f"{name} has {len(starts)} pages and {len(document.page_labels)} page_labels; name each")
    for label in document.page_labels:
        check_kind(f"a page label of {name}", label, str, "a string")
        raise_on_surrogates(label, f"a page label of {name}")
    ends = [0, *(at for part in document.left_out for at in part), len(document.text)]
    if ends != sorted(ends):
        raise InvalidParameter(f"{name}: left_out={document.left_out!r:.80} must be parts of the text, in order")
    return document


def _check_metadata(name: str, key: Any, value: Any) -> None:
    if key in RESERVED or (isinstance(key, str) and key.startswith(PREFIX)):
        raise InvalidParameter(
            f"{name}: metadata may not have the name {key!r:.60}: {', '.join(RESERVED)} and names that begin with "
            f"{PREFIX} are the index's own; name it otherwise"
        )
    check_key(name, key)
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            raise_on_surrogates(text, f"metadata {key!r:.60} of {name}")
    check_value(name, key, value)


def check_key(name: str, key: Any) -> None:
    """Refuse a name of metadata that Chroma cannot store with InvalidParameter."""
    if not isinstance(key, str) or not key or key.startswith(("chroma:", "#", "$")):
        raise InvalidParameter(
            f"{name}: metadata may not have the name {key!r:.60}; Chroma takes strings that are not empty and do not "
            "begin with #, $ or chroma:"
        )
    raise_on_surrogates(key, f"metadata {key!r:.60} of {name}")


def check_value(name: str, key: str, value: Any) -> None:
    """Refuse a value of metadata that Chroma cannot store with InvalidParameter."""
    if not _is_storable(value):
        raise InvalidParameter(
            f"{name}: metadata {key!r:.60} is {value!r:.60}; Chroma holds strings, numbers of 64 bits, truth values, "
            "and lists of one of these that are not empty"
        )


def _is_storable(value: Any) -> bool:
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        return len(kinds) == 1 and kinds < {str, int, float, bool} and all(map(_is_storable, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return isinstance(value, int) and -(2**63) <= value < 2**63


@dataclass(frozen=True)
class Highlight:
    """A sentence of a hit.

    Attributes:
        start: Offset of its first character in the document's text.
        end: Offset after its last character.
        text: The sentence.
        cosine: Cosine of the question's vector and the sentence's.
        score: As the hit's, of the sentence's own cosine and terms.
        fused: As the hit's, without the words as they were typed.
        page: Page on which it begins, counted from 1; None for a document without pages.
        last_page: Page on which it ends.
        page_label: What that first page is called; "" where pages have no labels.
        last_page_label: What that last page is called.
    """

    start: int
    end: int
    text: str
    cosine: float
    score: float
    fused: float
    page: int | None = None
    last_page: int | None = None
    page_label: str = ""
    last_page_label: str = ""


class WordMatch(NamedTuple):
    """A word of the question in a hit's text.

    Attributes:
        start: Offset of its first character in the document's text.
        end: Offset after its last character.
        term: The word as it is compared: in lower case, stemmed.
        weight: Its inverse document frequency among the passages.
    """

    start: int
    end: int
    term: str
    weight: float


@dataclass(frozen=True)
class Hit:
    """A passage, sentence or document that a query found.

    Attributes:
        id: Id of the row.
        document: Id of the document.
        text: Text of the passage, sentence or document.
        start: Offset of its first character in the document's text.
        end: Offset after its last character.
        cosine: Cosine of the question's vector and the row's.
        score: How likely the text is about the question, from 0 to 1: at 0.5 more likely so than not, whatever the
            model and the number of passages. Scores never rise along the hits, but those that `mmr` chose: where their
            order follows more than this, the lowest score so far counts.
        metadata: The document's metadata, as given.
        headings: Headings above a passage, the highest first, as in "Tides > Spring tides"; "" without headings.
        page: Page on which it begins, counted from 1; None for a document without pages.
        last_page: Page on which it ends.
        page_label: What that first page is called, such as "iv"; "" where pages have no labels.
        last_page_label: What that last page is called.
        sentences: Sentences of a passage, in order, if the query asked for them.
        bm25: Of a hybrid query: BM25 of the passage; 0 if it shares no word with the question.
        deviation: Of a hybrid query: standard deviations of the cosine above the mean of the library's passages.
        coverage: Of a hybrid query: share of the question's words that are in the passage, however often, weighed by
            their inverse document frequency and as often as the question has them, from 0 to 1.
        matches: Of a hybrid query: the question's words in the passage, in order.
        rerank_score: Of a re-ranked query: geometric mean of the probabilities of the question's tokens after the
            passage, from 0 to 1; None if the model did not read the passage.
        fused: What hits are sorted by: the cosine; in hybrid search the weighted sum of its deviation, of BM25 and of
            the question's words as they were typed; re-ranked, with the likelihood. Compare it within one query only.
        row: Metadata of the row, as stored.
        pages: Pages of the document.
    """

    id: str
    document: str
    text: str
    start: int
    end: int
    cosine: float
    score: float
    metadata: Mapping[str, Any]
    headings: str = ""
    page: int | None = None
    last_page: int | None = None
    page_label: str = ""
    last_page_label: str = ""
    sentences: tuple[Highlight, ...] = ()
    bm25: float | None = None
    deviation: float | None = None
    coverage: float | None = None
    matches: tuple[WordMatch, ...] = ()
    rerank_score: float | None = None
    fused: float = 0.0
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    pages: Pages = field(default=Pages((), ()), repr=False, compare=False)

    @property
    def best(self) -> Highlight | None:
        """The best sentence, by `fused`; None if the query did not ask for sentences."""
        return max(self.sentences, key=lambda sentence: sentence.fused, default=None)


class Row(NamedTuple):
    """A passage or piece as it is stored, without its vector.

    Attributes:
        id: Id of the row.
        metadata: Metadata, the user's (`user_metadata`) and the index's.
        text: The text; "" if it was not asked for.
    """

    id: str
    metadata: dict[str, Any]
    text: str


@dataclass(frozen=True)
class Status:
    """Contents and state of an index.

    Attributes:
        name: Name of the index.
        fingerprint: Fingerprint of the embedder that made its vectors.
        settings: The embedder's settings, field by field.
        dimension: Dimension of the vectors; 0 for an index without any that was opened without an embedder.
        documents: Number of documents that queries find.
        passages: Number of rows in the main collection.
        sentences: Number of sentences of those documents.
        incomplete: Ids of documents that are being written or removed, or were when it was interrupted, or are damaged;
            the next upsert of them finishes it.
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
        written: Number of documents embedded and written.
        unchanged: Number of documents that the index already had.
        relabelled: Number of documents whose metadata alone had changed; they were not embedded again.
        removed: Number of documents removed.
        passages: Number of passages written.
        sentences: Number of sentences of the documents written.
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
