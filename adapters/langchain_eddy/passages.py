"""Long documents, embedded whole, as LangChain documents of one passage each with the passage's vector."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document

from eddy_embed.encoding.document import PassageUnit, heading_path
from eddy_embed.encoding.validation import PASSAGES, check_kind
from eddy_embed.errors import InvalidText
from eddy_embed.integrations.document_ids import document_identity, passage_id
from eddy_embed.integrations.page_numbers import PAGES, Pages, files, joined
from langchain_eddy.embeddings import EddyEmbeddings

FINGERPRINT = "eddy_fingerprint"
DOCUMENT = "eddy_document"
N_TOKENS = "eddy_n_tokens"
N_WINDOWS = "eddy_n_windows"
N_TRUNCATED = "eddy_n_truncated"
START, END = "start_index", "end_index"
HEADINGS = "heading_path"

# One call of the engine takes this much: enough for full batches of short documents, and the sentence vectors that a
# call returns stay within some tens of megabytes.
_GROUP_DOCUMENTS = 64
_GROUP_CHARACTERS = 400_000


@dataclass(frozen=True)
class EmbeddedPassage:
    """A passage and its vector.

    Attributes:
        document: The passage's text, an id that is the same in every run, and the whole document's metadata together
            with `start_index` and `end_index`, the passage's characters in it, and `heading_path`, where it stands
            under headings.
        vector: The passage's vector, in the context of the whole document.
    """

    document: Document
    vector: list[float]


def join_pages(pages: Sequence[Document]) -> list[Document]:
    """Pages, as LangChain's loaders give them, as one document for each file.

    Sentences go on over page borders, vectors know the whole file, and each passage has the `page_label` where it
    begins and the `last_page_label` where it ends; in an index of `EddyChroma`, `page` and `last_page`, counted from 1.

    Args:
        pages: Documents with `page_label`, in order; others are returned as they are.

    Raises:
        InvalidParameter: A page does not say of which file it is, or something is no document.
    """
    check_kind("pages", pages, Sequence, "a list of LangChain's documents")
    for index, page in enumerate(pages):
        check_document(page, index)
    found: list[Document] = []
    for file, numbers in files([page.metadata for page in pages]):
        own = [pages[number] for number in numbers]
        if not file:
            found += own
            continue
        text, metadata = joined([page.page_content for page in own], [page.metadata for page in own])
        found.append(Document(text, id=file, metadata=metadata))
    return found


def identity_of(document: Document) -> str:
    """What a document is called between runs: its id; else the place it was read from; else nothing."""
    return document_identity(document.id, document.metadata)


def embed_passages(
    documents: Iterable[Document],
    embeddings: EddyEmbeddings,
    *,
    passage_size: int = 256,
    passage_unit: PassageUnit = "tokens",
    late: bool = True,
) -> Iterator[EmbeddedPassage]:
    """Cut documents at sentence borders and embed each passage in the context of its whole document.

    Documents without text give no passage and a warning that names them.

    Args:
        documents: Whole documents; read one group at a time.
        embeddings: The embedder.
        passage_size: Most text tokens in a passage. Passages are whole sentences, headings with what they lead to; a
            longer sentence is one alone.
        passage_unit: "sentences" to count these instead of tokens.
        late: Read passages' vectors out of one pass over the document; False: embed each passage by itself, which
            methods that read a last token need.

    Yields:
        The passages of each document in their order.

    Raises:
        InvalidParameter: An argument, or one of the documents, is of another kind.
        InvalidText: A document's text is not valid Unicode; the message names the document.
    """
    check_kind("documents", documents, Iterable, "a list of LangChain's documents")
    check_kind("embeddings", embeddings, EddyEmbeddings, "an EddyEmbeddings")
    engine, fingerprint = embeddings.embedder, embeddings.fingerprint
    copies: Counter[tuple[str, str]] = Counter()
    for group in _groups(_with_text(_watched(documents, embeddings.show_progress))):
        texts = [document.page_content for document in group]
        results = engine.encode_long(
            texts,
            passage_size=passage_size,
            passage_unit=passage_unit,
            late=late,
            parts=PASSAGES,
            show_progress=False,
        )
        for document, result in zip(group, results, strict=True):
            identity, text = identity_of(document), result.text
            pages = Pages.of(document.metadata)
            shared = {key: value for key, value in document.metadata.items() if key != PAGES}
            for span in result.passages:
                id_ = passage_id(identity, text, copies[identity, text], span.start, span.end, fingerprint, late)
                metadata = {
                    **shared,
                    START: span.start,
                    END: span.end,
                    **pages.told(span.start, span.end),
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


def name_of(document: Document, index: int) -> str:
    """How messages call a document: its identity, or its place in the input."""
    return repr(identity_of(document)) if identity_of(document) else f"number {index}"


def check_document(document: Any, index: int) -> None:
    """Refuse what is no document.

    Raises:
        InvalidParameter: With its place and its kind.
    """
    check_kind(f"documents[{index}]", document, Document, "one of LangChain's documents: Document(page_content=text)")


def _watched(documents: Iterable[Document], show_progress: bool) -> Iterable[Document]:
    if not show_progress:
        return documents
    from rich.console import Console
    from rich.progress import track

    return track(documents, "Embedding documents", console=Console(stderr=True))


def _with_text(documents: Iterable[Document]) -> Iterator[Document]:
    blank: list[str] = []
    for index, document in enumerate(documents):
        check_document(document, index)
        text = document.page_content
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidText(
                f"Document {name_of(document, index)}: character {error.start} is half of a surrogate pair, "
                f"{text[error.start]!r}; read the file with its real encoding, or with errors='replace'."
            ) from None
        if text.strip():
            yield document
        else:
            blank.append(name_of(document, index))
    if blank:
        names = ", ".join(blank[:10]) + (", ..." if len(blank) > 10 else "")
        warnings.warn(f"{len(blank)} documents hold no text and give no passage: {names}", stacklevel=3)


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    characters = 0
    for document in documents:
        group.append(document)
        characters += len(document.page_content)
        if len(group) == _GROUP_DOCUMENTS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
