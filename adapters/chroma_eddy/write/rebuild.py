"""Reindexing: a new index is built beside the old one, and takes its place when it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import LostVectors
from chroma_eddy.index_core import IndexCore
from chroma_eddy.storage.database_file import let_purge_log
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, NEXT
from chroma_eddy.storage.settings import EARLIER_FORMATS
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.swap import finish_swap
from chroma_eddy.write.integrity import remove_documents
from chroma_eddy.write.writer import Progress, Writer, WriteReport
from eddy_embed.errors import FingerprintMismatch, InvalidParameter

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

_SAVED, _BEGUN = "eddy.saved", "eddy.begun"
"""What earlier versions kept in the database's folder: copies of vector files, and a marker of an unfinished write."""


def reindex_core(
    index: IndexCore,
    embedder: Embedder | EddyEmbeddingFunction,
    sizes: Mapping[str, Any],
    progress: Progress | None,
    restart: bool,
) -> WriteReport:
    """Embed every document again, as `Index.reindex` says."""
    with index.writing():
        if index.holds_pieces:
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has cut out of documents which are not here, so "
                "they cannot be embedded again: run the framework's ingestion into an index of another name"
            )
        if not index.entries():
            index.store.drop_all()
            _forget_earlier_version(index.store)
            index.switch_embedder(embedder, sizes)
            return WriteReport()
        if restart or _has_lost_vectors(index.store.with_suffix(NEXT)):
            index.store.with_suffix(NEXT, texts_only=True).drop_all()
        store = index.store.with_suffix(NEXT)
        try:
            following = IndexCore(store, embedder, sizes)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"an unfinished reindexing of {index.name!r} was begun with another embedder or other sizes: finish it "
                f"with those, or give restart=True to leave it and begin anew. {error}"
            ) from None
        writer = Writer(following, progress)
        with following.writing():
            report = writer.run(index.documents())
            report.removed = remove_documents(following, [id_ for id_ in following.entries() if id_ not in writer.ids])
        following.store.update_metadata(eddy_ready=True)
        finish_swap(index.store, clean=True)
        _forget_earlier_version(index.store)
        index.switch_embedder(embedder, sizes)
        return report


def _has_lost_vectors(store: Store) -> bool:
    """Whether what an unfinished reindexing has done is of no use."""
    try:
        _ = store.find() and store.find(DOCUMENTS)  # which mends Chroma's files of both collections, if there are any
    except LostVectors:
        return True
    return False


def _forget_earlier_version(store: Store) -> None:
    """Delete what an earlier version kept for all indexes of a folder, once none of them needs it."""
    folder = store.connection.folder
    if folder is None or not (folder / _SAVED).exists():
        return
    with translated_errors(store.place):
        if any((each.metadata or {}).get("eddy_format") in EARLIER_FORMATS for each in store.client.list_collections()):
            return
        shutil.rmtree(folder / _SAVED)
        (folder / _BEGUN).unlink(missing_ok=True)
        let_purge_log(folder)
    store.connection.reopen()
