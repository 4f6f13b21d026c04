"""Eddy's embeddings for LlamaIndex."""

from eddy_embed.utils.extras import importing

with importing("llama-index"):
    from llama_index.embeddings.eddy.base import EddyEmbedding

__all__ = ["EddyEmbedding"]
