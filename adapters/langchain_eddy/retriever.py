"""LangChain's retriever of an `EddyChroma` store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStoreRetriever


class EddyChromaRetriever(VectorStoreRetriever):
    """LangChain's retriever of a vector store, with `search_type="hybrid"`: by words and meaning together."""

    allowed_search_types: ClassVar[Collection[str]] = (*VectorStoreRetriever.allowed_search_types, "hybrid")

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        if self.search_type != "hybrid":
            return super()._get_relevant_documents(query, run_manager=run_manager, **kwargs)
        return self.vectorstore.search(query, "hybrid", **{**self.search_kwargs, **kwargs})

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        if self.search_type != "hybrid":
            return await super()._aget_relevant_documents(query, run_manager=run_manager, **kwargs)
        return await self.vectorstore.asearch(query, "hybrid", **{**self.search_kwargs, **kwargs})
