"""Eddy for Chroma: an embedding function, and collections that know what made their vectors."""

from chroma_eddy.collection import open_collection
from chroma_eddy.function import EddyEmbeddingFunction

__all__ = ["EddyEmbeddingFunction", "open_collection"]
