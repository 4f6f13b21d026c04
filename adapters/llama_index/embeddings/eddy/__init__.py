"""Eddy's embeddings for LlamaIndex."""

from llama_index.embeddings.eddy.base import EddyEmbedding

__all__ = ["EddyEmbedding"]
