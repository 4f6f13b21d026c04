"""A document as rows of the collections, and rows as a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chroma_eddy.batches import slices
from chroma_eddy.document import OWN, PREFIX, Document
from chroma_eddy.errors import ForeignCollection, lacking
from chroma_eddy.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.reading import PAGE, Rows
from eddy_embed.document import LongDocument, Passage, Span, heading_path
from eddy_embed.ids import passage_id
from eddy_embed.segment import Segmenter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chroma_eddy.recipe import Recipe
    from chroma_eddy.store import Store

    Floats = NDArray[np.float32]

SpanT = TypeVar("SpanT", bound=Span)

DOCUMENT, DIGEST, OTHER, ROWS, INDEX = "eddy_document", "eddy_digest", "eddy_other", "eddy_rows", "eddy_index"
"""Of every row: its document, the version of it, how many rows of its kind that has, and which of them it is.

`eddy_other` belongs to documents' rows alone: the version whose rows are being written or removed, "" for none."""
PIECE = "eddy_piece"
"""Of rows that a framework has cut and embedded itself, which belong to no version of a document."""
START, END = "start_index", "end_index"
HEADINGS = "heading_path"
FRAMEWORKS = ("_node_content", "_node_type")
"""Of pieces: what LlamaIndex makes its nodes of again."""
SPANS, BEFORE = "eddy_sentences", "eddy_before"
"""Of passages: where its sentences are, counted from its start, and the white space in front of it."""


@dataclass(frozen=True)
class Entry:
    """What the index knows of a document.

    Attributes:
        id: Its id.
        digest: Of the version that is found by queries; "" while the first one is being written.
        other: Of a version whose rows are being written or removed; "" for none.
        text_digest: Of the text of the version that is found.
        passages: Rows in the main collection.
        sentences: Sentences, whether they have rows or not.
        tokens: Tokens of the text.
        windows: Passes over the text.
        truncated: Tokens at its end that were not read.
        characters: Length of the text.
        page_starts: Where its pages begin.
        metadata: As it was given.
    """

    id: str
    digest: str
    other: str
    text_digest: str
    passages: int
    sentences: int
    tokens: int
    windows: int
    truncated: int
    characters: int
    page_starts: tuple[int, ...]
    metadata: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether all its rows are in, and no others."""
        return bool(self.digest) and not self.other


_COUNTS = ("passages", "sentences", "tokens", "windows", "truncated", "characters")


def entry_of(id_: str, row: Mapping[str, Any]) -> Entry:
    """What a row of the documents' collection says."""
    starts = str(row.get("eddy_page_starts", ""))
    return Entry(
        id_,
        row[DIGEST],
        row[OTHER],
        row["eddy_text"],
        **{name: int(row[f"eddy_{name}"]) for name in _COUNTS},
        page_starts=tuple(map(int, starts.split())),
        metadata=own_metadata(row),
    )


def own_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, of a row's metadata."""
    if PIECE in row:
        return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in FRAMEWORKS}
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in OWN}


def document_row(document: Document, embedded: LongDocument, digest: str, other: str) -> dict[str, Any]:
    """Metadata of a document's row."""
    passages = embedded.passages
    pages = {"eddy_page_starts": " ".join(map(str, document.page_starts))} if document.page_starts else {}
    return {
        **document.metadata,
        DOCUMENT: document.id,
        DIGEST: digest,
        OTHER: other,
        "eddy_text": document.text_digest,
        "eddy_passages": len(passages),
        "eddy_sentences": passages[-1].last_sentence + 1,
        "eddy_tokens": embedded.n_tokens,
        "eddy_windows": embedded.n_windows,
        "eddy_truncated": embedded.n_truncated,
        "eddy_characters": len(document.text),
        "eddy_after": document.text[passages[-1].end :],
        **pages,
    }


@dataclass(frozen=True)
class Embedded:
    """A document with its vectors.

    Attributes:
        document: The document.
        result: Its vectors, as they are stored; raw ones, as long as post-processing has yet to be fitted.
        raw: Its raw vectors, where they cannot be had back from the others; else None.
    """

    document: Document
    result: LongDocument
    raw: LongDocument | None = None


@dataclass(frozen=True)
class Part:
    """Rows of one document in one collection."""

    ids: list[str]
    vectors: Floats
    metadatas: list[dict[str, Any]]
    texts: list[str]


def passage_rows(document: Document, embedded: LongDocument, recipe: Recipe) -> Part:
    """A document's rows in the main collection."""
    digest, text, passages = document.digest, document.text, embedded.passages
    spans = [(each.start, each.end) for each in embedded.sentences] or text_spans(text, recipe)
    before = [0, *(passage.end for passage in passages)]
    rows = []
    for index, passage in enumerate(passages):
        inside = spans[passage.first_sentence : passage.last_sentence + 1]
        gap = text[before[index] : passage.start]
        rows.append(
            {
                **document.metadata,
                **document.pages(passage.start, passage.end),
                **_common(document.id, digest, len(passages), index, passage),
                "eddy_fingerprint": recipe.fingerprint,
                SPANS: " ".join(f"{start - passage.start}-{end - passage.start}" for start, end in inside),
                **({BEFORE: gap} if gap else {}),
                **({HEADINGS: heading_path(passage.headings)} if passage.headings else {}),
            }
        )
    texts = [text[passage.start : passage.end] for passage in passages]
    return Part(row_ids(document, passages, recipe), _stack(passages), rows, texts)


def sentence_rows(document: Document, embedded: LongDocument, recipe: Recipe) -> Part:
    """A document's rows in the sentences' collection, whose texts are in the passages."""
    digest, sentences = document.digest, embedded.sentences
    ids = row_ids(document, embedded.passages, recipe)
    sizes = [passage.last_sentence + 1 - passage.first_sentence for passage in embedded.passages]
    owners = [id_ for id_, size in zip(ids, sizes, strict=True) for _ in range(size)]
    rows = [
        {**_common(document.id, digest, len(sentences), index, sentence), "eddy_passage": owner}
        for index, (sentence, owner) in enumerate(zip(sentences, owners, strict=True))
    ]
    return Part(row_ids(document, sentences, recipe), _stack(sentences), rows, [])


def row_ids(document: Document, spans: Sequence[Span], recipe: Recipe) -> list[str]:
    """Ids of rows: of the document, its version, the span, and what makes the vectors."""
    id_, digest, made = document.id, document.digest, (recipe.fingerprint, recipe.late)
    return [passage_id(id_, digest, 0, span.start, span.end, *made) for span in spans]


def raw_id(document: Document) -> str:
    """Under which the raw vector of a whole document is kept."""
    return f"document/{document.digest}"


def sentence_spans(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Where the sentences of a passage's row are, counted from the passage's start."""
    pairs = (span.split("-") for span in str(row[SPANS]).split())
    return [(int(start), int(end)) for start, end in pairs]


def stored_document(store: Store, recipe: Recipe, id_: str, *, keeps_raw: bool) -> Embedded:
    """A document as it is stored, with its vectors.

    Args:
        store: Where.
        recipe: What made it.
        id_: Of a document that is found by queries.
        keeps_raw: Whether the index keeps raw vectors.
    """
    own = store.get(DOCUMENTS, ids=[id_], metadatas=True, embeddings=True)
    entry, about = entry_of(id_, own.metadatas[0]), own.metadatas[0]
    where = {DIGEST: entry.digest}
    found = _in_order(store.get(MAIN, where=where, metadatas=True, documents=True, embeddings=True))
    text = joined_text(((row, each) for row, each, _ in found), about)
    document = Document(id_, text, entry.metadata, entry.page_starts)
    with_lines = recipe.sentence_vectors
    lines = _in_order(store.get(SENTENCES, where=where, metadatas=True, embeddings=True)) if with_lines else []
    whole = len(found) == entry.passages and (len(lines) == entry.sentences or not with_lines)
    if not whole or document.digest != entry.digest:
        raise ForeignCollection(
            f"document {id_!r:.80} of index {store.name!r} is not whole: it has {len(found)} of {entry.passages} "
            f"passages, {len(lines)} of {entry.sentences} sentences, or another text than it was written with: "
            "something else has changed its rows. Call check(), which finds all such documents, and upsert them again"
        )
    counts = [len(sentence_spans(row)) for row, _, _ in found]
    passages = [
        Passage(row[START], row[END], row["eddy_n_tokens"], vector, last - size, last - 1, _headings(row))
        for (row, _, vector), size, last in zip(found, counts, accumulate(counts), strict=True)
    ]
    sentences = [Span(row[START], row[END], row["eddy_n_tokens"], vector) for row, _, vector in lines]
    sizes = (entry.tokens, entry.windows, entry.truncated)
    result = LongDocument(text, own.vectors[0], passages, sentences, *sizes)
    return Embedded(document, result, _kept_raw(store, document, result, recipe) if keeps_raw else None)


def stored_texts(store: Store, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of documents.

    Args:
        store: Where.
        documents: Metadata of their rows.
    """
    parts: dict[str, list[tuple[dict[str, Any], str]]] = {about[DIGEST]: [] for about in documents}
    digests = list(parts)
    for at in slices(len(digests), PAGE):
        found = store.get(MAIN, where={DIGEST: {"$in": digests[at]}}, metadatas=True, documents=True)
        for row, text in zip(found.metadatas, found.texts, strict=True):
            parts[row[DIGEST]].append((row, text))
    for about in documents:
        if len(parts[about[DIGEST]]) != about["eddy_passages"]:
            raise ForeignCollection(lacking(about[DOCUMENT], f"passages in {store.name}"))
    return [joined_text(parts[about[DIGEST]], about) for about in documents]


def joined_text(passages: Iterable[tuple[dict[str, Any], str]], about: Mapping[str, Any]) -> str:
    """The text of a document, of its passages' rows and texts, and its own row."""
    ordered = sorted(passages, key=lambda pair: pair[0][INDEX])  # Chroma answers in an order of its own
    return "".join(str(row.get(BEFORE, "")) + text for row, text in ordered) + str(about["eddy_after"])


def _kept_raw(store: Store, document: Document, result: LongDocument, recipe: Recipe) -> LongDocument:
    kept = store.get(RAW, where={DIGEST: document.digest}, embeddings=True)
    vectors = dict(zip(kept.ids, kept.vectors, strict=True))

    def raw(kind: str, spans: Sequence[SpanT]) -> list[SpanT]:
        ids = row_ids(document, spans, recipe)
        return [replace(span, vector=vectors[f"{kind}/{id_}"]) for span, id_ in zip(spans, ids, strict=True)]

    return replace(
        result,
        vector=vectors[raw_id(document)],
        passages=raw("passage", result.passages),
        sentences=raw("sentence", result.sentences),
    )


def _in_order(rows: Rows) -> list[tuple[dict[str, Any], str, Floats]]:
    texts = rows.texts or [""] * len(rows.ids)
    found = list(zip(rows.metadatas, texts, rows.vectors, strict=True))
    return sorted(found, key=lambda row: row[0][INDEX])


def _common(id_: str, digest: str, count: int, index: int, span: Span) -> dict[str, Any]:
    place = {START: span.start, END: span.end, "eddy_n_tokens": span.n_tokens}
    return {DOCUMENT: id_, DIGEST: digest, ROWS: count, INDEX: index, **place}


def text_spans(text: str, recipe: Recipe) -> list[tuple[int, int]]:
    """Where the sentences of a text are, as the index's segmenter has them."""
    _, language, most = str(recipe.settings["segmenter"]).rsplit(":", 2)
    return [(sentence.start, sentence.end) for sentence in Segmenter(language, int(most)).sentences(text)]


def _headings(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(row[HEADINGS]),) if HEADINGS in row else ()


def _stack(spans: Sequence[Span]) -> Floats:
    return np.stack([np.asarray(span.vector, np.float32) for span in spans])
