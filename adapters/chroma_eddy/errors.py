"""Errors of an index that are not the engine's; each message says what failed, where, and what to do next."""

from __future__ import annotations

from eddy_embed.errors import EddyError


class NoIndex(EddyError):
    """There is no index of that name, and no embedder to make one with."""


class ForeignCollection(EddyError):
    """Something else made a collection under one of the index's names, or changed its rows."""


class IndexInUse(EddyError):
    """Another process, or another thread, is writing to the database; `holder` says which."""

    def __init__(self, message: str, holder: str = "another process") -> None:
        super().__init__(message)
        self.holder = holder


class StorageError(EddyError):
    """The database failed: a full disk, no permission, damage, or a server that does not answer."""


class LostVectors(StorageError):
    """Vectors are lost; the texts are there, and `reindex` embeds them again."""


class Unreachable(StorageError):
    """The server that holds the database does not answer."""


def damaged(document: str, what: str) -> ForeignCollection:
    """The error to raise for a document, by its id, whose rows lack something."""
    return ForeignCollection(
        f"document {document!r:.80} lacks {what}: something else has changed its rows. Call check(), which finds all "
        "such documents, and upsert them again"
    )
