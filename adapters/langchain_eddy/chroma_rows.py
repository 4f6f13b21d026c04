"""What LangChain's `Chroma` does with rows, by ids, conditions and vectors, over an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from langchain_chroma import Chroma
from langchain_core.documents import Document

from chroma_eddy import PIECE, Index, NoIndex, Row, get_rows
from eddy_embed.encoding.validation import refuse_unknown
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.integrations.shared import in_worker
from langchain_eddy.index_documents import hit_documents, to_document

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


_OF_TEXT = {"hybrid", "fusion", "alpha", "rerank", "rerank_from", "rerank_seconds"}
"""Arguments that need the text of a question."""
SEARCH = ("where_document", "documents", "prefilter", "fetch_k", *_OF_TEXT)


class ChromaRows(Chroma):
    """`Chroma`'s methods that read, change and delete rows; those for images and of Chroma's cloud are refused."""

    index: Index

    @property
    def _collection(self) -> Collection:
        return self.index.collection

    @property
    def _client(self) -> Any:
        return self.index.store.client

    # --- Reading

    def get(
        self,
        ids: str | list[str] | None = None,
        where: dict[str, Any] | None = None,
        limit: int | None = None,
        offset: int | None = None,
        where_document: dict[str, Any] | None = None,  # type: ignore[override]
        include: list[str] | None = None,
    ) -> dict[str, Any]:
        """Get rows by ids, conditions or all, as `Chroma.get`: a dictionary of lists.

        Args:
            ids: Ids of the rows.
            where: Chroma's condition on metadata.
            limit: Most rows.
            offset: Rows to skip.
            where_document: Chroma's condition on texts.
            include: Which of "metadatas", "documents" and "embeddings"; None: the first two.

        Raises:
            InvalidParameter: A condition is none of Chroma's.
        """
        wanted = ["metadatas", "documents"] if include is None else include
        named = [ids] if isinstance(ids, str) else ids
        got = get_rows(self.index, named, where, where_document, limit=limit, offset=offset, include=wanted)
        if got["metadatas"] is not None:
            got["metadatas"] = [to_document(Row("", dict(row), "")).metadata for row in got["metadatas"]]
        return got

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Get documents by their ids, in that order, without unknown ids."""
        by_id = {row.id: to_document(row) for row in self.index.rows(list(ids), texts=True)}
        return [by_id[id_] for id_ in ids if id_ in by_id]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """As `get_by_ids`, in a thread."""
        return await in_worker(self.get_by_ids, ids)

    def similarity_search_with_vectors(
        self,
        query: str,
        k: int = 4,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, np.ndarray]]:
        """As `similarity_search`, with each document's vector, shape (dimension,)."""
        found = self.similarity_search(query, k, filter, where_document=where_document, **kwargs)
        return list(zip(found, self._vectors([str(each.id) for each in found]), strict=True))

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find the documents nearest to a vector of `embeddings.embed_query`; a list has no fingerprint to check."""
        return [
            document
            for document, _ in self.similarity_search_by_vector_with_relevance_scores(
                embedding, k, filter, where_document, **kwargs
            )
        ]

    def similarity_search_by_vector_with_relevance_scores(
        self,
        embedding: list[float],
        k: int = 4,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_by_vector`, with cosines."""
        refuse_unknown("EddyChroma", kwargs, set(SEARCH) - _OF_TEXT)
        options: dict[str, Any] = {"where": filter, "where_document": where_document, **kwargs}
        hits = self.index.search(np.asarray(embedding)[None], k, **options)[0]
        return list(zip(hit_documents(hits), (hit.score for hit in hits), strict=True))

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find diverse documents near to a query, by maximal marginal relevance.

        Args:
            query: Text of the query.
            k: Number of documents.
            fetch_k: Number of nearest documents to choose from.
            lambda_mult: 1 for relevance only, 0 for diversity only.
            filter: Chroma's condition on metadata.
            where_document: Chroma's condition on texts.
            **kwargs: `documents`, `prefilter`; `hybrid=True`, `fusion` and `alpha`.
        """
        refuse_unknown("EddyChroma", kwargs, set(SEARCH) - {"fetch_k"})
        own: dict[str, Any] = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, "where": filter, "hybrid": False}
        own["where_document"] = where_document
        return hit_documents(self.index.query(query, k, mmr=True, **{**own, **kwargs}))

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector of `embeddings.embed_query`."""
        refuse_unknown("EddyChroma", kwargs, set(SEARCH) - _OF_TEXT - {"fetch_k"})
        own: dict[str, Any] = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, "where": filter}
        own["where_document"] = where_document
        return hit_documents(self.index.search(np.asarray(embedding)[None], k, mmr=True, **own, **kwargs)[0])

    def _vectors(self, ids: Sequence[str]) -> list[np.ndarray]:
        got = get_rows(self.index, ids, include=["embeddings"])
        by_id = dict(zip(got["ids"], got["embeddings"], strict=True))
        return [np.asarray(by_id[id_]) for id_ in ids]

    # --- Changes

    def update_document(self, document_id: str, document: Document) -> None:
        """As `update_documents`, for one."""
        self.update_documents([document_id], [document])

    def update_documents(self, ids: list[str], documents: list[Document]) -> None:
        """Give rows that exist another text and other metadata.

        Raises:
            InvalidParameter: A row does not exist, or the lists differ in length.
        """
        if unknown := set(ids) - {row.id for row in self.index.rows(ids)}:
            raise InvalidParameter(f"there is no row {min(unknown)!r:.80} to update; add_documents writes new ones")
        self.add_documents(documents, ids=ids)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:  # type: ignore[override]
        """Remove texts by their ids, by conditions, or by both; unknown ids are ignored.

        Args:
            ids: Ids of the rows.
            **kwargs: `where` and `where_document`, Chroma's conditions.

        Raises:
            InvalidParameter: There are neither ids nor conditions; or some passages, but not all, are meant of a
                document that can only be removed whole.
        """
        refuse_unknown("EddyChroma.delete", kwargs, ("where", "where_document"))
        conditions = {name: value for name, value in kwargs.items() if value}
        if ids is None and not conditions:
            raise InvalidParameter("delete was given no ids and no where=, and would empty the index; name them")
        if ids is not None and not ids:
            return True
        got = get_rows(self.index, ids, **conditions, include=["metadatas"])
        rows = list(zip(got["ids"], got["metadatas"], strict=True))
        whole = Counter(str(row[DOCUMENT]) for _, row in rows if PIECE not in row)
        for id_, entry in self.index.entries(sorted(whole)).items() if whole else ():
            if whole[id_] != entry.passages:
                raise InvalidParameter(
                    f"document {id_!r:.80} was cut by the index, and loses no single passages; it goes as a whole: "
                    "store.index.remove([...])"
                )
        if whole:
            self.index.remove(sorted(whole))
        if pieces := [id_ for id_, row in rows if PIECE in row]:
            self.index.remove_pieces(ids=pieces)
        return True

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """As `delete`, in a thread."""
        return await in_worker(partial(self.delete, ids, **kwargs))

    def delete_collection(self) -> None:
        """Delete the index with all its rows; the next write begins a new one."""
        with self.index.writing():
            self.index.store.drop_all()
            self.index.reload()

    def reset_collection(self) -> None:
        """As `delete_collection`."""
        self.delete_collection()

    # --- What an index has not

    def fork(self, new_name: str) -> NoReturn:
        """Refused: only Chroma's cloud forks collections."""
        raise InvalidParameter(f"fork({new_name!r:.60}) is Chroma's cloud's: copy the folder, with copy_database")

    def add_images(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a language model embeds text alone."""
        raise InvalidParameter("a language model embeds text alone: add what says what the images show, with add_texts")

    def similarity_search_by_image(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a language model embeds text alone."""
        raise InvalidParameter("a language model embeds text alone: search with similarity_search")

    similarity_search_by_image_with_relevance_score = similarity_search_by_image


def check_exists(index: Index) -> None:
    """Raise NoIndex if there is none, as `create_collection_if_not_exists=False` asks."""
    if not index.exists:
        raise NoIndex(f"there is no index {index.name!r}; leave out create_collection_if_not_exists=False to begin one")
