"""Eddy for Chroma: an embedding function, collections that know what made their vectors, and indexes of documents."""

from eddy_embed.utils.extras import importing

with importing("chroma"):
    from chroma_eddy.collection import open_collection
    from chroma_eddy.embedding_function import EddyEmbeddingFunction
    from chroma_eddy.errors import DamagedVectors, ForeignCollection, IndexInUse, NoIndex, StorageError
    from chroma_eddy.index import Index, open_index
    from chroma_eddy.rows.schema import DocumentRow
    from chroma_eddy.types import Document, Highlight, Hit, Status, WordMatch, check_document
    from chroma_eddy.write.pieces import Piece
    from chroma_eddy.write.writer import WriteReport

__all__ = [
    "DamagedVectors",
    "Document",
    "DocumentRow",
    "EddyEmbeddingFunction",
    "ForeignCollection",
    "Highlight",
    "Hit",
    "Index",
    "IndexInUse",
    "NoIndex",
    "Piece",
    "Status",
    "StorageError",
    "WordMatch",
    "WriteReport",
    "check_document",
    "open_collection",
    "open_index",
]
