"""LangChain's documents as those of an index, and an index's rows as LangChain's documents."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core.documents import Document

from chroma_eddy import PIECE, RESERVED, Hit, Row, user_metadata
from chroma_eddy import Document as Whole
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import PAGES, Pages
from langchain_eddy.passages import display_name, document_id


def to_index_document(document: Document, number: int) -> Whole:
    """Return a document of an index; one that could not be known in the next run is refused by its number."""
    identity = document_id(document)
    if not identity:
        raise InvalidParameter(
            f"document {display_name(document, number)} has no id and no source by which it could be known in the next "
            "run; give it one"
        )
    metadata = {key: value for key, value in document.metadata.items() if key != PAGES and value is not None}
    return Whole(identity, document.page_content, metadata, Pages.of(document.metadata).starts)


def hit_documents(hits: Iterable[Hit]) -> list[Document]:
    """Return the passages of hits."""
    return [to_document(Row(hit.id, dict(hit.row), hit.text)) for hit in hits]


def to_document(row: Row) -> Document:
    """Return a passage with the user's metadata, and where it stands in its document."""
    stored = row.metadata
    place = {} if PIECE in stored else {name: stored[name] for name in RESERVED if name in stored}
    return Document(row.text, id=row.id, metadata={**user_metadata(stored), **place})
