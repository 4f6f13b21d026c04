"""Eddy for LangChain: embeddings, a sentence splitter, passages of long documents, and a vector store."""

from typing import TYPE_CHECKING, Any

from langchain_eddy.chroma_ingestion import IngestReport, aingest_documents, ingest_documents
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.passages import EmbeddedPassage, embed_passages, join_pages

if TYPE_CHECKING:
    from langchain_eddy.splitter import SentenceTextSplitter
    from langchain_eddy.store import EddyChroma

__all__ = [
    "EddyChroma",
    "EddyEmbeddings",
    "EmbeddedPassage",
    "IngestReport",
    "SentenceTextSplitter",
    "aingest_documents",
    "embed_passages",
    "ingest_documents",
    "join_pages",
]


def __getattr__(name: str) -> Any:
    if name == "EddyChroma":  # only this one needs Chroma
        from langchain_eddy.store import EddyChroma

        return EddyChroma
    # Only the splitter needs LangChain's package of splitters.
    if name != "SentenceTextSplitter":
        raise AttributeError(f"module 'langchain_eddy' has no attribute {name!r}")
    try:
        from langchain_eddy.splitter import SentenceTextSplitter
    except ModuleNotFoundError as error:
        if error.name != "langchain_text_splitters":
            raise
        raise ImportError(
            "SentenceTextSplitter needs LangChain's splitters: pip install langchain-text-splitters"
        ) from error
    return SentenceTextSplitter
