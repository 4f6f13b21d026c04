"""Eddy for Chroma: an embedding function, collections that know what made their vectors, and indexes of documents."""

from eddy_embed.utils.extras import importing

with importing("chroma"):
    from chroma_eddy.database import WriterLock, copy_database, memory_client
    from chroma_eddy.embedding_function import EddyEmbeddingFunction, open_collection
    from chroma_eddy.index import Index, open_index, reindex, threaded
    from chroma_eddy.keywords import TermAnalyzer
    from chroma_eddy.rows import IndexSettings, StoredDocument, user_metadata
    from chroma_eddy.search import ALPHA
    from chroma_eddy.types import (
        DIGEST,
        RESERVED,
        Document,
        ForeignCollection,
        Highlight,
        Hit,
        IndexInUse,
        NoIndex,
        Status,
        StorageError,
        WriteReport,
        check_document,
    )
    from eddy_embed.errors import FingerprintMismatch
    from eddy_embed.integrations.documents import FINGERPRINT

# An index, the embedding function, what goes in and comes out, errors, and what other stores are made of.
__all__ = ["Document", "Highlight", "Hit", "Index", "IndexSettings", "Status", "StoredDocument", "WriteReport"]
__all__ += ["EddyEmbeddingFunction", "memory_client", "open_collection", "open_index", "reindex"]
__all__ += ["FingerprintMismatch", "ForeignCollection", "IndexInUse", "NoIndex", "StorageError"]
__all__ += ["ALPHA", "DIGEST", "FINGERPRINT", "RESERVED", "TermAnalyzer", "WriterLock"]
__all__ += ["check_document", "copy_database", "threaded", "user_metadata"]
