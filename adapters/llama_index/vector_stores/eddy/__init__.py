"""Eddy's index as a vector store for LlamaIndex."""

from llama_index.vector_stores.eddy.base import EddyChromaVectorStore

__all__ = ["EddyChromaVectorStore"]
