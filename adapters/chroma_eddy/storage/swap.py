"""How an index replaces another: its main collection takes the other's name; interruptions are repaired."""

from __future__ import annotations

import time
from contextlib import suppress

from chromadb.errors import ChromaError

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.names import NEXT, OLD
from chroma_eddy.storage.store import Store

_TIMEOUT, _POLL = 10.0, 0.02
"""Seconds that a reader waits for another process's swap, and between two looks at it."""


def finish_swap(store: Store, *, clean: bool = False) -> None:
    """If the index that is to replace this one is complete, swap them; `clean`, for a writer, deletes the old one.

    Raises:
        IndexInUse: Another process is writing.
    """
    if store.with_suffix(NEXT).metadata().get("eddy_ready"):
        with store.lock:
            _swap(store)
    if clean and store.metadata().get("eddy_ready"):
        store.with_suffix(OLD).drop_all()
        store.rename_documents()
        store.update_metadata(eddy_ready=False)


def wait_for_swap(store: Store) -> None:
    """Finish an interrupted swap, or wait while another process performs it, for `_TIMEOUT` seconds at most."""
    deadline = time.monotonic() + _TIMEOUT
    # No lock tells whether a server's other client is alive; a live one finishes the swap in this time.
    following = store.with_suffix(NEXT)
    while store.lock.folder is None and following.metadata().get("eddy_ready") and time.monotonic() < deadline:
        time.sleep(_POLL)
    while True:
        try:
            return finish_swap(store)
        except IndexInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL)


def _swap(store: Store) -> None:
    """Rename the main collections: a collection names its documents' by id, so nothing else moves.

    On a server two processes may do this at once, so each asks by id, and a step that the other has done may fail.
    """
    new, present = store.with_suffix(NEXT).look_up(), store.look_up()
    if new is None or not (new.metadata or {}).get("eddy_ready"):  # another process finished it before
        return
    with suppress(ChromaError):
        if present is not None and present.id != new.id:
            store.with_suffix(OLD).drop_all()
            store.rename(present, store.name + OLD)
    with suppress(ChromaError):
        store.rename(new, store.name)
