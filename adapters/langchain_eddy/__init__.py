"""Eddy for LangChain: embeddings, a sentence splitter, passages of long documents, and a vector store."""

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily, importing

with importing("langchain"):
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
# The store alone needs Chroma, the splitter alone LangChain's package of splitters.
_MODULES = {"EddyChroma": "store", "SentenceTextSplitter": "splitter"}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "langchain")
