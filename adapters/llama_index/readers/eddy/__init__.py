"""Eddy for LlamaIndex: a reader that gives one document a file, with its pages."""

from eddy_embed.utils.extras import importing

with importing("llama-index"):
    from llama_index.readers.eddy.base import EddyReader

__all__ = ["EddyReader"]
