"""Rows of the collections: their metadata, ids and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.settings import IndexSettings
from chroma_eddy.types import PREFIX, RESERVED, Document
from eddy_embed.integrations import (
    DOCUMENT,
    END,
    FINGERPRINT,
    HEADINGS,
    N_TOKENS,
    START,
    LongDocument,
    Segmenter,
    Span,
    heading_path,
    passage_id,
)

DIGEST, PENDING, ROWS, INDEX = "eddy_digest", "eddy_pending", "eddy_rows", "eddy_index"
"""Metadata of every row, beside its document: version, number of the version's rows in the collection, and row number.

Only documents' rows have `eddy_pending`: the version whose rows are being written or removed, "" for none."""
PIECE = "eddy_piece"
"""Marks a piece: a row that a framework cut and embedded itself; it belongs to no version of a document."""
FRAMEWORKS = ("_node_content", "_node_type")
"""Metadata of pieces from which LlamaIndex makes its nodes again."""
SPANS, BEFORE = "eddy_sentences", "eddy_before"
"""Metadata of passages: sentence offsets relative to the passage's start, and the white space before the passage."""


@dataclass(frozen=True)
class DocumentRow:
    """The index's row of a document.

    Attributes:
        id: Id of the document.
        digest: Digest of the version that queries find; "" while the first one is being written.
        pending: Digest of a version whose rows are being written or removed; "" for none.
        text_digest: Digest of the text of the version that queries find.
        passages: Number of rows in the main collection.
        sentences: Number of sentences, with or without rows of their own.
        tokens: Number of tokens of the text.
        windows: Number of passes over the text.
        truncated: Number of tokens at the end that were not read.
        characters: Length of the text.
        page_starts: Offset at which each page begins.
        metadata: The document's metadata, as given.
    """

    id: str
    digest: str
    pending: str
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
        """Parse a row of the documents' collection."""
        counts = ("passages", "sentences", "tokens", "windows", "truncated", "characters")
        return cls(
            id_,
            row[DIGEST],
            row[PENDING],
            row["eddy_text"],
            **{name: int(row[f"eddy_{name}"]) for name in counts},
            page_starts=tuple(map(int, str(row.get("eddy_page_starts", "")).split())),
            metadata=user_metadata(row),
        )

    @property
    def complete(self) -> bool:
        """Whether all rows of the version are written, and those of others removed."""
        return bool(self.digest) and not self.pending


def user_metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row's metadata that the user gave."""
    reserved = FRAMEWORKS if PIECE in row else RESERVED
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in reserved}


def document_metadata(document: Document, embedded: LongDocument, digest: str, pending: str) -> dict[str, Any]:
    """Metadata of a document's row."""
    passages = embedded.passages
    pages = {"eddy_page_starts": " ".join(map(str, document.page_starts))} if document.page_starts else {}
    return {
        **document.metadata,
        DOCUMENT: document.id,
        DIGEST: digest,
        PENDING: pending,
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
    """A document with its vectors."""

    document: Document
    result: LongDocument
    """The vectors as they are stored; raw ones before post-processing is fitted."""
    raw: LongDocument | None = None
    """The raw vectors if the post-processing cannot be inverted; else None."""


def passage_rows(document: Document, embedded: LongDocument, settings: IndexSettings) -> Rows:
    """A document's rows in the main collection."""
    digest, text, passages = document.digest, document.text, embedded.passages
    spans = [(sentence.start, sentence.end) for sentence in embedded.sentences] or split_sentences(text, settings)
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
                FINGERPRINT: settings.fingerprint,
                SPANS: " ".join(f"{start - passage.start}-{end - passage.start}" for start, end in inside),
                **({BEFORE: gap} if gap else {}),
                **({HEADINGS: heading_path(passage.headings)} if passage.headings else {}),
            }
        )
    texts = [text[passage.start : passage.end] for passage in passages]
    return Rows(row_ids(document, passages, settings), rows, texts, _stack(passages))


def sentence_rows(document: Document, embedded: LongDocument, settings: IndexSettings) -> Rows:
    """A document's rows in the sentences' collection; their texts are in the passages."""
    digest, sentences = document.digest, embedded.sentences
    ids = row_ids(document, embedded.passages, settings)
    sizes = [passage.last_sentence + 1 - passage.first_sentence for passage in embedded.passages]
    owners = [id_ for id_, size in zip(ids, sizes, strict=True) for _ in range(size)]
    rows = [
        {**_span_metadata(document.id, digest, len(sentences), index, sentence), "eddy_passage": owner}
        for index, (sentence, owner) in enumerate(zip(sentences, owners, strict=True))
    ]
    return Rows(row_ids(document, sentences, settings), rows, [], _stack(sentences))


def row_ids(document: Document, spans: Sequence[Span], settings: IndexSettings) -> list[str]:
    """Ids of rows: hashes of document, version, span and what makes the vectors."""
    digest = document.digest
    return [span_id(document.id, digest, span.start, span.end, settings) for span in spans]


def span_id(document: str, digest: str, start: int, end: int, settings: IndexSettings) -> str:
    """Id of the row of a span of a document's version."""
    return passage_id(document, digest, 0, start, end, settings.fingerprint, settings.late)


def raw_document_id(document: Document) -> str:
    """Id of the raw vector of a whole document."""
    return f"document/{document.digest}"


def sentence_spans(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Offsets of a passage's sentences, relative to its start."""
    pairs = (span.split("-") for span in str(row[SPANS]).split())
    return [(int(start), int(end)) for start, end in pairs]


def _span_metadata(id_: str, digest: str, count: int, index: int, span: Span) -> dict[str, Any]:
    own = {START: span.start, END: span.end, N_TOKENS: span.n_tokens}
    return {DOCUMENT: id_, DIGEST: digest, ROWS: count, INDEX: index, **own}


def split_sentences(text: str, settings: IndexSettings) -> list[tuple[int, int]]:
    """Offsets of a text's sentences, by the index's segmenter."""
    _, language, most = str(settings.embedder["segmenter"]).rsplit(":", 2)
    return [(sentence.start, sentence.end) for sentence in Segmenter(language, int(most)).sentences(text)]


def _stack(spans: Sequence[Span]) -> NDArray[np.float32]:
    return np.stack([np.asarray(span.vector, np.float32) for span in spans])
