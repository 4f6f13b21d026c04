"""Eddy's node parser for LlamaIndex."""

from eddy_embed.utils.extras import importing

with importing("llama-index"):
    from llama_index.node_parser.eddy.base import LongDocumentNodeParser

__all__ = ["LongDocumentNodeParser"]
