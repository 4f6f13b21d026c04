"""Eddy's index as a vector store for LlamaIndex."""

from eddy_embed.utils.extras import importing

with importing("llama-index"):
    from llama_index.vector_stores.eddy.base import EddyChromaVectorStore

__all__ = ["EddyChromaVectorStore"]
