"""Write long documents into `langchain_chroma.Chroma`, with passages embedded in the context of their document."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.documents import Document

from eddy_embed.encoding.document import PassageUnit
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.shared_embedders import in_worker
from eddy_embed.integrations.whole_documents import grouped_by_size
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.passages import (
    DOCUMENT,
    FINGERPRINT,
    EmbeddedPassage,
    check_document,
    display_name,
    document_id,
    embed_passages,
)

if TYPE_CHECKING:
    from langchain_chroma import Chroma


@dataclass(frozen=True)
class IngestReport:
    """Result of `ingest_documents`.

    Attributes:
        ids: Ids of the rows written, in the order of the passages.
        n_documents: Number of documents, including those without text.
        n_deleted: Number of removed rows of earlier versions of these documents.
    """

    ids: list[str]
    n_documents: int
    n_deleted: int


def ingest_documents(
    vector_store: Chroma,
    documents: Iterable[Document],
    embeddings: EddyEmbeddings | None = None,
    *,
    passage_size: int = 256,
    passage_unit: PassageUnit = "tokens",
    late: bool = True,
    cleanup: Literal["id", "source"] | None = "id",
) -> IngestReport:
    """Split documents into passages, embed each in the context of its whole document, and write them.

    Rows replace rows of the same id, so an interrupted run can simply start again, and a second run over the same
    documents changes nothing.

    Args:
        vector_store: The collection to write into, preferably in cosine space.
        documents: Whole documents, not pieces of them.
        embeddings: The embedder; None for the vector store's own, which also embeds the queries.
        passage_size: Maximum number of text tokens in a passage.
        passage_unit: "sentences" to count these instead of tokens.
        late: Whether to pool passages from one pass over the document; False embeds each passage by itself.
        cleanup: Which documents' rows of earlier versions to remove: `"id"`, of documents with an id; `"source"`, also
            of documents that only their file or URL identifies, if all documents of one source come in the same call;
            None, of none.

    Raises:
        InvalidParameter: An argument is wrong, there are no Eddy embeddings, or Chroma cannot store a document's
            metadata; nothing is written then.
        FingerprintMismatch: The collection holds vectors of another embedder, or another one embeds its queries.
        NotFitted: The method has post-processing that is not fitted yet; nothing is written then.
    """
    from langchain_chroma import Chroma

    check_kind("vector_store", vector_store, Chroma, "a langchain_chroma.Chroma")
    check_kind("documents", documents, Iterable, "a list of LangChain's documents")
    if cleanup not in ("id", "source", None):
        raise InvalidParameter(f"cleanup={cleanup!r:.80} is unknown; choose 'id', 'source' or None")
    documents = [documents] if isinstance(documents, Document) else list(documents)
    for index, document in enumerate(documents):
        check_document(document, index)
    embedder = _embedder_of(vector_store, embeddings)
    collection: Any = vector_store._collection
    _check_collection(collection, embedder)
    _check_metadata(documents)
    limit = vector_store._client.get_max_batch_size()
    written: dict[str, list[str]] = defaultdict(list)
    ids: list[str] = []
    passages = embed_passages(documents, embedder, passage_size=passage_size, passage_unit=passage_unit, late=late)
    for batch in grouped_by_size(passages, lambda _: 1, limit, limit):
        for passage in batch:
            written[passage.document.metadata[DOCUMENT]].append(str(passage.document.id))
            ids.append(str(passage.document.id))
        _write(collection, batch)
    cleaned = {document_id(d) for d in documents if cleanup == "source" or (cleanup and d.id)} - {""}
    n_deleted = sum(_delete_others(collection, name, written[name], limit) for name in sorted(cleaned))
    return IngestReport(ids=ids, n_documents=len(documents), n_deleted=n_deleted)


async def aingest_documents(
    vector_store: Chroma,
    documents: Iterable[Document],
    embeddings: EddyEmbeddings | None = None,
    *,
    passage_size: int = 256,
    passage_unit: PassageUnit = "tokens",
    late: bool = True,
    cleanup: Literal["id", "source"] | None = "id",
) -> IngestReport:
    """As `ingest_documents`, in a thread."""
    sizes: dict[str, Any] = {"passage_size": passage_size, "passage_unit": passage_unit, "late": late}
    return await in_worker(partial(ingest_documents, vector_store, documents, embeddings, **sizes, cleanup=cleanup))


def _embedder_of(vector_store: Chroma, embeddings: EddyEmbeddings | None) -> EddyEmbeddings:
    # CacheBackedEmbeddings passes queries on to the embeddings that it wraps.
    own = getattr(vector_store.embeddings, "underlying_embeddings", vector_store.embeddings)
    chosen = embeddings if embeddings is not None else own
    if not isinstance(chosen, EddyEmbeddings):
        raise InvalidParameter(
            f"The vector store's embeddings are a {type(chosen).__name__}; give it "
            "embedding_function=EddyEmbeddings(model_name=..., method=...), which then embeds the queries too."
        )
    if own is not None and (not isinstance(own, EddyEmbeddings) or own.fingerprint != chosen.fingerprint):
        raise FingerprintMismatch(
            f"Documents would be embedded with `{chosen.method}`, and queries by the vector store's own "
            f"{getattr(own, 'method', type(own).__name__)}.\nThe documents' model is {chosen.model_name!r}; make the "
            "store with the same embeddings."
        )
    return chosen


def _check_collection(collection: Any, embeddings: EddyEmbeddings) -> None:
    configuration = collection.configuration
    space = next((c["space"] for kind in ("hnsw", "spann") if (c := configuration.get(kind))), None)
    if space != "cosine":
        warnings.warn(
            f"Collection {collection.name!r} is in {space!r} space: relevance scores will not be cosines. Make the "
            'vector store with collection_configuration={"hnsw": {"space": "cosine"}}.',
            stacklevel=3,
        )
    if "eddy_format" in (collection.metadata or {}):
        raise InvalidParameter(
            f"Collection {collection.name!r} is an index's, which writes its rows itself: make the vector store with "
            "langchain_eddy.EddyChroma, and call its ingest(documents)."
        )
    first = collection.get(limit=1, include=["metadatas"])["metadatas"]
    stored = first[0].get(FINGERPRINT) if first and first[0] else None
    if stored is not None and stored != embeddings.fingerprint:
        raise FingerprintMismatch(
            f"Collection {collection.name!r} holds vectors of another maker than `{embeddings.method}` on "
            f"`{embeddings.model_name}`.\nTheir fingerprint: {stored}, here {embeddings.fingerprint}: they cannot be "
            "compared. Use the embeddings it was made with, or another collection."
        )


def _check_metadata(documents: Sequence[Document]) -> None:
    from chromadb.api.types import validate_metadata

    for index, document in enumerate(documents):
        try:
            if document.metadata:
                validate_metadata(document.metadata)
            "".join(str(value) for value in (document.id, *document.metadata, *document.metadata.values())).encode()
        except (ValueError, TypeError) as error:
            raise InvalidParameter(
                f"Document {display_name(document, index)} has metadata that Chroma cannot store: {error}. Keep to "
                "numbers and valid text, as langchain_community.vectorstores.utils.filter_complex_metadata does."
            ) from error


def _write(collection: Any, passages: Sequence[EmbeddedPassage]) -> None:
    """Write passages; those that are there get their metadata alone, as their ids stand for their vectors.

    A vector that is written again can put others out of a query's reach, in Chroma up to 1.5 at least
    (https://github.com/chroma-core/chroma/issues/7758). So a damaged one is not mended: delete its row first.
    """
    present = set(collection.get(ids=[passage.document.id for passage in passages], include=[])["ids"])
    old = [passage.document for passage in passages if passage.document.id in present]
    new = [passage for passage in passages if passage.document.id not in present]
    if old:
        collection.update(ids=[each.id for each in old], metadatas=[each.metadata for each in old])
    if new:
        collection.upsert(
            ids=[passage.document.id for passage in new],
            embeddings=[passage.vector for passage in new],
            metadatas=[passage.document.metadata for passage in new],
            documents=[passage.document.page_content for passage in new],
        )


def _delete_others(collection: Any, identity: str, keep: Sequence[str], limit: int) -> int:
    present = collection.get(where={DOCUMENT: identity}, include=[])["ids"]
    stale = sorted(set(present) - set(keep))
    for start in range(0, len(stale), limit):
        collection.delete(ids=stale[start : start + limit])
    return len(stale)
