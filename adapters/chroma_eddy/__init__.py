"""Eddy for Chroma: an embedding function, collections that know what made their vectors, and indexes of documents."""

from eddy_embed.utils.extras import importing

with importing("chroma"):
    from chroma_eddy.collection import open_collection
    from chroma_eddy.embedding_function import EddyEmbeddingFunction
    from chroma_eddy.errors import ForeignCollection, IndexInUse, NoIndex, OutdatedIndex, StorageError, Unreachable
    from chroma_eddy.index import Index
    from chroma_eddy.opening import open_index, reindex
    from chroma_eddy.query.get_rows import get_rows
    from chroma_eddy.query.options import ALPHA
    from chroma_eddy.rows.schema import PIECE, DocumentRow, user_metadata
    from chroma_eddy.storage.client import memory_client
    from chroma_eddy.storage.database_file import copy_database
    from chroma_eddy.storage.failures import translated_errors
    from chroma_eddy.storage.locks import WriterLock
    from chroma_eddy.storage.names import LOCK, WRITER
    from chroma_eddy.storage.settings import IndexSettings
    from chroma_eddy.types import RESERVED, Document, Highlight, Hit, Row, Status, WordMatch, check_document
    from chroma_eddy.words.terms import TermAnalyzer
    from chroma_eddy.write.pieces import Piece
    from chroma_eddy.write.writer import WriteReport
    from eddy_embed.integrations.documents import FINGERPRINT

__all__ = [
    "ALPHA",
    "FINGERPRINT",
    "LOCK",
    "PIECE",
    "RESERVED",
    "WRITER",
    "Document",
    "DocumentRow",
    "EddyEmbeddingFunction",
    "ForeignCollection",
    "Highlight",
    "Hit",
    "Index",
    "IndexInUse",
    "IndexSettings",
    "NoIndex",
    "OutdatedIndex",
    "Piece",
    "Row",
    "Status",
    "StorageError",
    "TermAnalyzer",
    "Unreachable",
    "WordMatch",
    "WriteReport",
    "WriterLock",
    "check_document",
    "copy_database",
    "get_rows",
    "memory_client",
    "open_collection",
    "open_index",
    "reindex",
    "translated_errors",
    "user_metadata",
]
