"""How an index takes another one's place: by names, one collection after another, whatever stops it in between."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from chromadb.errors import NotFoundError

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT, OLD, PARTS
from chroma_eddy.storage.store import Store

_LONGEST, _POLL = 10.0, 0.02
"""Seconds that a reader waits for another process's exchange, and after which it looks again."""


def finish(store: Store, *, clean: bool = False) -> None:
    """Finish what was interrupted when an index was to take another one's place.

    Args:
        store: Of the index.
        clean: Whether to delete what is left of the old one, which only a writer may.
    """
    following = beside(store, NEXT)
    if following.metadata().get("eddy_ready"):
        with store.hold():
            about = following.metadata()
            if about.get("eddy_ready"):  # else it was finished while the lock was waited for
                _exchange(store, following, about["eddy_parts"].split(","))
    if clean and store.metadata().get("eddy_ready"):
        drop(beside(store, OLD))
        store.update(eddy_ready=False)


def settle(store: Store) -> None:
    """As `finish`, for one who only reads: whoever is at it just now is waited for, since an exchange takes moments.

    Raises:
        IndexInUse: It has not come to an end.
    """
    until = time.monotonic() + _LONGEST
    # A server has no lock that would say so: whoever lives has finished by then.
    while store.lock.folder is None and beside(store, NEXT).metadata().get("eddy_ready") and time.monotonic() < until:
        time.sleep(_POLL)
    while True:
        try:
            return finish(store)
        except IndexInUse:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL)


def progress_of(store: Store) -> int | None:
    """Documents that an unfinished reindexing has done; None where none is under way."""
    following = beside(store, NEXT)
    return following.count(DOCUMENTS) if following.find() is not None else None


def beside(store: Store, end: str) -> Store:
    """The collections of the index that is to take this one's place, or of the one that has lost it."""
    return Store(store.connection, store.name + end)


def _exchange(store: Store, following: Store, listed: Sequence[str]) -> None:
    """Give the new collections the old ones' names: each step is skipped if it is done, and the main one comes last.

    On a server two may be at it, so none takes the new one's collection for the old one's because it has its name.

    Args:
        store: Of the old index.
        following: Of the new one.
        listed: Parts that the new one has.
    """
    old = beside(store, OLD)
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
    store.connection.inherit(store.name, following.name)
    store.forget()


def drop(store: Store) -> None:
    """Delete an index's collections."""
    for part in reversed(PARTS):  # without its main collection, an index is none
        store.drop(part)
