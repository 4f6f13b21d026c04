"""Eddy for Chroma: an embedding function, collections that know what made their vectors, and indexes of documents."""

from eddy_embed.utils.extras import importing

with importing("chroma"):
    from chroma_eddy.database import LOCK, WRITER, WriterLock, copy_database, memory_client, translated_errors
    from chroma_eddy.embedding_function import EddyEmbeddingFunction, open_collection
    from chroma_eddy.index import Index, open_index, reindex
    from chroma_eddy.keywords import TermAnalyzer
    from chroma_eddy.rows import DIGEST, IndexSettings, StoredDocument, user_metadata
    from chroma_eddy.search import ALPHA
    from chroma_eddy.types import (
        RESERVED,
        Document,
        ForeignCollection,
        Highlight,
        Hit,
        IndexInUse,
        NoIndex,
        Status,
        StorageError,
        Unreachable,
        WriteReport,
        check_document,
    )
    from eddy_embed.errors import FingerprintMismatch
    from eddy_embed.integrations.documents import FINGERPRINT

__all__ = [
    "ALPHA",
    "DIGEST",
    "FINGERPRINT",
    "LOCK",
    "RESERVED",
    "WRITER",
    "Document",
    "EddyEmbeddingFunction",
    "FingerprintMismatch",
    "ForeignCollection",
    "Highlight",
    "Hit",
    "Index",
    "IndexInUse",
    "IndexSettings",
    "NoIndex",
    "Status",
    "StorageError",
    "StoredDocument",
    "TermAnalyzer",
    "Unreachable",
    "WriteReport",
    "WriterLock",
    "check_document",
    "copy_database",
    "memory_client",
    "open_collection",
    "open_index",
    "reindex",
    "translated_errors",
    "user_metadata",
]
