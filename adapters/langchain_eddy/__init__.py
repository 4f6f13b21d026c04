"""Eddy for LangChain: embeddings, a loader and a splitter, passages of long documents, a vector store, a reranker."""

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily, importing

with importing("langchain"):
    from langchain_eddy.embeddings import EddyEmbeddings
    from langchain_eddy.passages import EmbeddedPassage, embed_passages, join_pages
    from langchain_eddy.reranker import EddyReranker

if TYPE_CHECKING:
    from langchain_eddy.loader import EddyLoader
    from langchain_eddy.splitter import SentenceTextSplitter
    from langchain_eddy.vector_store import EddyChroma

__all__ = [
    "EddyChroma",
    "EddyEmbeddings",
    "EddyLoader",
    "EddyReranker",
    "EmbeddedPassage",
    "SentenceTextSplitter",
    "embed_passages",
    "join_pages",
]
# The vector store alone needs Chroma, the splitter LangChain's package of splitters, the loader those of the readers.
_MODULES = {"EddyLoader": "loader", "EddyChroma": "vector_store", "SentenceTextSplitter": "splitter"}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "langchain")
