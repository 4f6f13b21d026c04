"""How an index replaces another: its collections take the other's names one by one; interruptions are repaired."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from chromadb.errors import NotFoundError

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.names import KINDS, MAIN, NEXT, OLD
from chroma_eddy.storage.store import Store

_TIMEOUT, _POLL = 10.0, 0.02
"""Seconds that a reader waits for another process's swap, and between two looks at it."""


def finish_swap(store: Store, *, clean: bool = False) -> None:
    """If the index that is to replace this one is complete, swap them; `clean`, for a writer, deletes the old one.

    Raises:
        IndexInUse: Another process is writing.
    """
    following = store.with_suffix(NEXT)
    if following.metadata().get("eddy_ready"):
        with store.lock:
            metadata = following.metadata()
            if metadata.get("eddy_ready"):  # else another process finished the swap before this one got the lock
                _swap(store, following, metadata["eddy_kinds"].split(","))
    if clean and store.metadata().get("eddy_ready"):
        store.with_suffix(OLD).drop_all()
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


def _swap(store: Store, following: Store, listed: Sequence[str]) -> None:
    """Rename the collections of both indexes, the main ones last; steps that are done are skipped.

    On a server two processes may do this at once, so each step compares ids: a collection that has this index's name
    may already be the new one. `listed` names the kinds of collections that the new index has beside the main one.
    """
    old = store.with_suffix(OLD)
    store.forget()
    for kind in KINDS:
        wanted = kind == MAIN or kind in listed
        new = following.find(kind) if wanted else None
        present = store.find(kind)
        if (wanted and new is None) or (new and present and new.id == present.id):
            continue
        if present is not None:
            with suppress(NotFoundError):  # another process has renamed it first
                old.drop(kind)
                store.rename(kind, old.name + kind)
        if wanted:
            following.rename(kind, store.name + kind)
    store.connection.move_state(following.name, store.name)
    store.forget()
