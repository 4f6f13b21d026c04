"""Eddy's node parser for LlamaIndex."""

from llama_index.node_parser.eddy.base import LongDocumentNodeParser

__all__ = ["LongDocumentNodeParser"]
