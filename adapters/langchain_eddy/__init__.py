"""Eddy for LangChain: embeddings, and long documents embedded whole."""

from langchain_eddy.chroma import IngestReport, aingest_documents, ingest_documents
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.passages import EmbeddedPassage, embed_passages

__all__ = [
    "EddyEmbeddings",
    "EmbeddedPassage",
    "IngestReport",
    "aingest_documents",
    "embed_passages",
    "ingest_documents",
]
