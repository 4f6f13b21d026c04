"""A document as rows of the collections, and what single rows say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.types import PREFIX, RESERVED, Document
from eddy_embed.document import LongDocument, Span, heading_path
from eddy_embed.ids import passage_id
from eddy_embed.segment import Segmenter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chroma_eddy.storage.recipe import Recipe

    Floats = NDArray[np.float32]

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
class DocumentRow:
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

    @classmethod
    def parse(cls, id_: str, row: Mapping[str, Any]) -> DocumentRow:
        """What a row of the documents' collection says."""
        counts = ("passages", "sentences", "tokens", "windows", "truncated", "characters")
        return cls(
            id_,
            row[DIGEST],
            row[OTHER],
            row["eddy_text"],
            **{name: int(row[f"eddy_{name}"]) for name in counts},
            page_starts=tuple(map(int, str(row.get("eddy_page_starts", "")).split())),
            metadata=user_metadata(row),
        )

    @property
    def complete(self) -> bool:
        """Whether all its rows are in, and no others."""
        return bool(self.digest) and not self.other


def user_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, of a row's metadata."""
    if PIECE in row:
        return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in FRAMEWORKS}
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in RESERVED}


def document_metadata(document: Document, embedded: LongDocument, digest: str, other: str) -> dict[str, Any]:
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
class EmbeddedDocument:
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
class RowBatch:
    """Rows of one document in one collection."""

    ids: list[str]
    vectors: Floats
    metadatas: list[dict[str, Any]]
    texts: list[str]


def passage_rows(document: Document, embedded: LongDocument, recipe: Recipe) -> RowBatch:
    """A document's rows in the main collection."""
    digest, text, passages = document.digest, document.text, embedded.passages
    spans = [(each.start, each.end) for each in embedded.sentences] or split_sentences(text, recipe)
    before = [0, *(passage.end for passage in passages)]
    rows = []
    for index, passage in enumerate(passages):
        inside = spans[passage.first_sentence : passage.last_sentence + 1]
        gap = text[before[index] : passage.start]
        rows.append(
            {
                **document.metadata,
                **document.pages(passage.start, passage.end),
                **_span_metadata(document.id, digest, len(passages), index, passage),
                "eddy_fingerprint": recipe.fingerprint,
                SPANS: " ".join(f"{start - passage.start}-{end - passage.start}" for start, end in inside),
                **({BEFORE: gap} if gap else {}),
                **({HEADINGS: heading_path(passage.headings)} if passage.headings else {}),
            }
        )
    texts = [text[passage.start : passage.end] for passage in passages]
    return RowBatch(row_ids(document, passages, recipe), _stack(passages), rows, texts)


def sentence_rows(document: Document, embedded: LongDocument, recipe: Recipe) -> RowBatch:
    """A document's rows in the sentences' collection, whose texts are in the passages."""
    digest, sentences = document.digest, embedded.sentences
    ids = row_ids(document, embedded.passages, recipe)
    sizes = [passage.last_sentence + 1 - passage.first_sentence for passage in embedded.passages]
    owners = [id_ for id_, size in zip(ids, sizes, strict=True) for _ in range(size)]
    rows = [
        {**_span_metadata(document.id, digest, len(sentences), index, sentence), "eddy_passage": owner}
        for index, (sentence, owner) in enumerate(zip(sentences, owners, strict=True))
    ]
    return RowBatch(row_ids(document, sentences, recipe), _stack(sentences), rows, [])


def row_ids(document: Document, spans: Sequence[Span], recipe: Recipe) -> list[str]:
    """Ids of rows: of the document, its version, the span, and what makes the vectors."""
    id_, digest, made = document.id, document.digest, (recipe.fingerprint, recipe.late)
    return [passage_id(id_, digest, 0, span.start, span.end, *made) for span in spans]


def raw_document_id(document: Document) -> str:
    """Under which the raw vector of a whole document is kept."""
    return f"document/{document.digest}"


def sentence_spans(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Where the sentences of a passage's row are, counted from the passage's start."""
    pairs = (span.split("-") for span in str(row[SPANS]).split())
    return [(int(start), int(end)) for start, end in pairs]


def _span_metadata(id_: str, digest: str, count: int, index: int, span: Span) -> dict[str, Any]:
    place = {START: span.start, END: span.end, "eddy_n_tokens": span.n_tokens}
    return {DOCUMENT: id_, DIGEST: digest, ROWS: count, INDEX: index, **place}


def split_sentences(text: str, recipe: Recipe) -> list[tuple[int, int]]:
    """Where the sentences of a text are, as the index's segmenter has them."""
    _, language, most = str(recipe.settings["segmenter"]).rsplit(":", 2)
    return [(sentence.start, sentence.end) for sentence in Segmenter(language, int(most)).sentences(text)]


def _stack(spans: Sequence[Span]) -> Floats:
    return np.stack([np.asarray(span.vector, np.float32) for span in spans])
