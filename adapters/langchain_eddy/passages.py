"""Split long documents into passages, embedded in the context of their whole document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_core.documents import Document

from eddy_embed.encoding.document import PassageUnit, heading_path
from eddy_embed.encoding.validation import PASSAGE_SIZE, PASSAGES
from eddy_embed.integrations.documents import (
    DOCUMENT,
    END,
    FINGERPRINT,
    HEADINGS,
    LABEL,
    N_TOKENS,
    N_TRUNCATED,
    N_WINDOWS,
    START,
    Pages,
    document_identity,
    grouped_by_size,
    joined_pages,
    pages_by_file,
    passage_id,
    passage_metadata,
    with_text,
)
from langchain_eddy.embeddings import EddyEmbeddings

T = TypeVar("T")


@dataclass(frozen=True)
class EmbeddedPassage:
    """A passage and its vector.

    Attributes:
        document: The passage's text, an id that is the same in every run, and the whole document's metadata with
            `start_index` and `end_index`, the passage's character offsets, and `heading_path`, the headings above it.
        vector: The passage's vector, in the context of the whole document.
    """

    document: Document
    vector: list[float]


def join_pages(pages: Sequence[Document]) -> list[Document]:
    """Join the pages of LangChain's loaders to one document for each file.

    Sentences may then cross page boundaries, and each passage has the `page_label` of its first page and the
    `last_page_label` of its last; in an index of `EddyChroma`, `page` and `last_page`, counted from 1.

    Args:
        pages: Documents with `page_label`, or with a `source` and its `page`, counted from 0, in order; others are
            returned unchanged.

    Raises:
        InvalidParameter: A page does not name its file.
    """
    joined_documents: list[Document] = []
    metadatas = [_labelled(page.metadata) for page in pages]
    for file, numbers in pages_by_file(metadatas):
        parts = [pages[number] for number in numbers]
        if not file:
            joined_documents += parts
            continue
        text, metadata = joined_pages([page.page_content for page in parts], [metadatas[number] for number in numbers])
        joined_documents.append(Document(text, id=file, metadata=metadata))
    return joined_documents


def _labelled(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata of a page, with the label that some loaders leave out."""
    page, is_page = metadata.get("page"), LABEL not in metadata and "source" in metadata
    return {**metadata, LABEL: str(page + 1)} if is_page and isinstance(page, int) else metadata


def document_id(document: Document) -> str:
    """Return what identifies a document across runs: its id, else the file or URL that it was read from, else ""."""
    return document_identity(document.id, document.metadata)


def embed_passages(
    documents: Iterable[Document],
    embeddings: EddyEmbeddings,
    *,
    passage_size: int = PASSAGE_SIZE,
    passage_unit: PassageUnit = "tokens",
    late: bool | None = None,
) -> Iterator[EmbeddedPassage]:
    """Split documents at sentence boundaries and embed each passage.

    Documents without text give no passage, and a warning names them.

    Args:
        documents: Whole documents; the function reads them in batches.
        embeddings: The embedder.
        passage_size: As in `Embedder.encode_long`.
        passage_unit: As in `Embedder.encode_long`.
        late: As in `Embedder.encode_long`.

    Yields:
        The passages of each document in their order.

    Raises:
        InvalidParameter: `passage_size` or `passage_unit` is outside its range.
        InvalidText: A document's text is not valid Unicode; the message names the document.
    """
    engine, fingerprint = embeddings.embedder, embeddings.fingerprint
    late = engine.reads_late if late is None else late
    copies: Counter[tuple[str, str]] = Counter()
    shown = with_progress(documents, embeddings.show_progress, "Embedding documents")
    with_content = with_text(shown, lambda document: document.page_content, display_name, "passage")
    for batch in grouped_by_size(with_content, lambda document: len(document.page_content)):
        texts = [document.page_content for document in batch]
        options: dict[str, Any] = {"passage_size": passage_size, "passage_unit": passage_unit, "late": late}
        results = engine.encode_long(texts, parts=PASSAGES, show_progress=False, **options)
        for document, result in zip(batch, results, strict=True):
            identity, text = document_id(document), result.text
            pages = Pages.of(document.metadata)
            for span in result.passages:
                id_ = passage_id(identity, text, copies[identity, text], span.start, span.end, fingerprint, late)
                metadata = {
                    **passage_metadata(document.metadata),
                    START: span.start,
                    END: span.end,
                    **pages.labels(span.start, span.end),
                    **({HEADINGS: heading_path(span.headings)} if span.headings else {}),
                    FINGERPRINT: fingerprint,
                    DOCUMENT: identity,
                    N_TOKENS: span.n_tokens,
                    N_WINDOWS: result.n_windows,
                    N_TRUNCATED: result.n_truncated,
                }
                passage = Document(text[span.start : span.end], id=id_, metadata=metadata)
                yield EmbeddedPassage(passage, span.vector.tolist())
            copies[identity, text] += 1


def display_name(document: Document, index: int) -> str:
    """Return a document's name in messages: its id, or its position in the input."""
    return repr(document_id(document)) if document_id(document) else f"number {index}"


def with_progress(documents: Iterable[T], show_progress: bool, what: str) -> Iterable[T]:
    """Yield documents, counted in a bar on standard error if it is to be shown."""
    if not show_progress:
        return documents
    from rich.console import Console
    from rich.progress import track

    return track(documents, what, console=Console(stderr=True))
