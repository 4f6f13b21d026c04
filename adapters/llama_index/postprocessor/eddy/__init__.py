"""Eddy for LlamaIndex: a language model that sorts nodes by how well they answer the question."""

from eddy_embed.utils.extras import importing

with importing("llama-index"):
    from llama_index.postprocessor.eddy.base import EddyRerank

__all__ = ["EddyRerank"]
