"""How an index takes another one's place: by names, one collection after another, whatever stops it in between."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from chromadb.errors import NotFoundError

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT, OLD, PARTS
from chroma_eddy.storage.store import Store

_TIMEOUT, _POLL = 10.0, 0.02
"""Seconds that a reader waits for another process's exchange, and after which it looks again."""


def finish_swap(store: Store, *, clean: bool = False) -> None:
    """Finish what was interrupted when an index was to take another one's place.

    Args:
        store: Of the index.
        clean: Whether to delete what is left of the old one, which only a writer may.
    """
    following = store.with_suffix(NEXT)
    if following.metadata().get("eddy_ready"):
        with store.hold_lock():
            about = following.metadata()
            if about.get("eddy_ready"):  # else it was finished while the lock was waited for
                _swap(store, following, about["eddy_parts"].split(","))
    if clean and store.metadata().get("eddy_ready"):
        store.with_suffix(OLD).drop_all()
        store.update_metadata(eddy_ready=False)


def wait_for_swap(store: Store) -> None:
    """Finish an interrupted swap, or wait for another process to finish it.

    Raises:
        IndexInUse: It has not come to an end.
    """
    until = time.monotonic() + _TIMEOUT
    # A server has no lock that would say so: whoever lives has finished by then.
    while (
        store.lock.folder is None and store.with_suffix(NEXT).metadata().get("eddy_ready") and time.monotonic() < until
    ):
        time.sleep(_POLL)
    while True:
        try:
            return finish_swap(store)
        except IndexInUse:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL)


def rebuilt_documents(store: Store) -> int | None:
    """Documents that an unfinished reindexing has done; None where none is under way."""
    following = store.with_suffix(NEXT)
    return following.count(DOCUMENTS) if following.find() is not None else None


def _swap(store: Store, following: Store, listed: Sequence[str]) -> None:
    """Give the new collections the old ones' names: each step is skipped if it is done, and the main one comes last.

    On a server two may be at it, so none takes the new one's collection for the old one's because it has its name.

    Args:
        store: Of the old index.
        following: Of the new one.
        listed: Parts that the new one has.
    """
    old = store.with_suffix(OLD)
    store.forget()
    for part in PARTS:
        wanted = part == MAIN or part in listed
        new = following.find(part) if wanted else None
        present = store.find(part)
        if (wanted and new is None) or (new and present and new.id == present.id):
            continue
        if present is not None:
            with suppress(NotFoundError):  # somebody else was faster
                old.drop(part)
                store.rename(part, old.name + part)
        if wanted:
            following.rename(part, store.name + part)
    store.connection.move_state(store.name, following.name)
    store.forget()
