"""Rows of the collections: their metadata, ids and vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.settings import IndexSettings
from chroma_eddy.storage.vectors import ROW, are_alike
from chroma_eddy.types import PREFIX, RESERVED, Document
from eddy_embed.encoding.document import LongDocument, heading_path
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, Pages, passage_id
from eddy_embed.text.sentences import Segmenter

DIGEST = "eddy_digest"
"""Metadata of every row, beside its document: the version of the document; "" for a piece."""
PIECE = "eddy_piece"
"""Marks a piece: a row that a framework cut and embedded itself; it belongs to no version of a document."""
FIELDS = "eddy_row"
"""Metadata of documents and passages that nobody searches by, as JSON: each entry of its own takes a hundred bytes."""
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
FRAMEWORKS = ("_node_content", "_node_type")
"""Metadata of pieces from which LlamaIndex makes its nodes again."""
OF_PIECES = (DIGEST, PIECE, FIELDS, ROW)
"""Metadata of pieces that the index writes, beside their document's id."""


@dataclass(frozen=True)
class DocumentRow:
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
    def parse(cls, id_: str, row: Mapping[str, Any]) -> DocumentRow:
        """Parse a row of the documents' collection."""
        own = fields(row)
        counts = ("passages", "sentences", "tokens", "windows", "truncated", "characters")
        return cls(
            id_,
            row[DIGEST],
            own["text"],
            **{name: int(own[name]) for name in counts},
            page_starts=tuple(map(int, str(own.get("page_starts", "")).split())),
            page_labels=tuple(own.get("page_labels", ())),
            left_out=tuple((start, end) for start, end in own.get("left_out", ())),
            metadata=user_metadata(row),
        )

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
    """The part of a row's metadata that the user gave, or a framework."""
    if PIECE in row:
        return {key: value for key, value in row.items() if key not in (*FRAMEWORKS, *OF_PIECES, DOCUMENT)}
    return {key: value for key, value in row.items() if not key.startswith(PREFIX) and key not in RESERVED}


def fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """What `FIELDS` of a row says; earlier versions wrote each of these as metadata of its own."""
    if FIELDS in row:
        own: dict[str, Any] = json.loads(row[FIELDS])
        return own
    return {key.removeprefix(PREFIX): value for key, value in row.items() if key.startswith(PREFIX)}


def document_metadata(document: Document, embedded: LongDocument) -> dict[str, Any]:
    """Metadata of a document's row."""
    passages = embedded.passages
    own = {
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
    return {**document.metadata, DOCUMENT: document.id, DIGEST: document.digest, FIELDS: _as_json(own)}


def passage_rows(
    document: Document, embedded: LongDocument, settings: IndexSettings, sentence_vectors: Sequence[int] = ()
) -> Rows:
    """A document's rows in the main collection; `sentence_vectors`: the numbers of sentences' vectors, if stored."""
    digest, text, passages = document.digest, document.text, embedded.passages
    spans = embedded.sentence_spans or split_sentences(text, settings)
    before = [0, *(passage.end for passage in passages)]
    rows = []
    for index, passage in enumerate(passages):
        inside = spans[passage.first_sentence : passage.last_sentence + 1]
        gap = text[before[index] : passage.start]
        own = {
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
                FIELDS: _as_json(own),
                **({HEADINGS: heading_path(passage.headings)} if passage.headings else {}),
            }
        )
    ids = [_row_id(document.id, digest, passage.start, passage.end, settings) for passage in passages]
    texts = [text[passage.start : passage.end] for passage in passages]
    return Rows(ids, rows, texts, np.stack([np.asarray(passage.vector, np.float32) for passage in passages]))


def with_pages(own: str, document: Document) -> str:
    """`FIELDS` of a document's row, with the pages of another version of it."""
    kept = {key: value for key, value in json.loads(own).items() if key != "page_labels"}
    return _as_json({**kept, **_pages(document)})


def _pages(document: Document) -> dict[str, Any]:
    labels = {"page_labels": document.page_labels} if document.page_labels else {}
    return {"page_starts": " ".join(map(str, document.page_starts)), **labels}


def share_vectors(documents: Rows, passages: Rows) -> None:
    """Let a document of one passage have the passage's stored vector, from which its own differs by rounding."""
    by_document: dict[str, list[int]] = {}
    for at, row in enumerate(passages.metadatas):
        by_document.setdefault(row[DOCUMENT], []).append(at)
    for at, id_ in enumerate(documents.ids):
        first, *others = by_document[id_]
        stored = passages.metadatas[first].get(ROW)
        near = are_alike(documents.vectors[at], passages.vectors[first])
        if stored is not None and not others and near:
            documents.metadatas[at][ROW] = stored
            documents.vectors[at] = passages.vectors[first]


def relabelled(rows: Rows, old: DocumentRow, document: Document, settings: IndexSettings) -> Rows:
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
    return Rows(ids, metadatas, rows.texts, rows.vectors)


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
