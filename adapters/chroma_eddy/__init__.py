"""Eddy for Chroma: an embedding function, collections that know what made their vectors, and indexes of documents."""

from chroma_eddy.collection import open_collection
from chroma_eddy.document import Document
from chroma_eddy.errors import ForeignCollection, IndexInUse, NoIndex, StorageError
from chroma_eddy.found import Highlight, Hit
from chroma_eddy.function import EddyEmbeddingFunction
from chroma_eddy.index import Index, Status
from chroma_eddy.opening import open_index
from chroma_eddy.pieces import Piece
from chroma_eddy.rows import Entry
from chroma_eddy.writing import WriteReport

__all__ = [
    "Document",
    "EddyEmbeddingFunction",
    "Entry",
    "ForeignCollection",
    "Highlight",
    "Hit",
    "Index",
    "IndexInUse",
    "NoIndex",
    "Piece",
    "Status",
    "StorageError",
    "WriteReport",
    "open_collection",
    "open_index",
]
