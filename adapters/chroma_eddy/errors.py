"""What can go wrong with an index that is not the engine's: each message says what, where, and what to do next."""

from __future__ import annotations

from eddy_embed.errors import EddyError


class NoIndex(EddyError):
    """No index of that name, and no embedder to make one with."""


class ForeignCollection(EddyError):
    """A collection under one of the index's names was made by something else."""


class IndexInUse(EddyError):
    """Another process, or another thread, is writing to the database."""


class StorageError(EddyError):
    """The database could not do what it was asked: full, read-only, damaged, or a server that does not answer."""


class Unreachable(StorageError):
    """The server that holds the database does not answer."""


def damaged(document: str, what: str) -> ForeignCollection:
    """What is the matter with a document whose rows do not belong together."""
    return ForeignCollection(
        f"document {document!r:.80} lacks {what}: something else has changed its rows. Call check(), which finds all "
        "such documents, and upsert them again"
    )
