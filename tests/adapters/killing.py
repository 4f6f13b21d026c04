"""Writers that are stopped at their durable writes: in this process, or in one of their own by a parent's SIGKILL.

What is patched is the standard library's and Chroma's, never the index's own, so that these tests judge any index.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb import Collection
from chromadb.api.client import Client
from tests.adapters.indexes import documents
from tests.processes import context

from chroma_eddy import Document, Index, StorageError, open_index
from eddy_embed import Embedder

METHOD = "plain:exit=2"
DOORS: tuple[tuple[Any, Sequence[str]], ...] = (
    (Collection, ("upsert", "update", "delete", "modify")),
    (Client, ("get_or_create_collection", "delete_collection")),
    (os, ("fsync", "replace")),
    (shutil, ("rmtree",)),
)
"""Calls that write something durable: a row, metadata, a name of Chroma's; a file of ours."""
MOST_STEPS = 60
"""Ends of calls that a writer may reach before it is killed; a document takes several."""
UNREACHABLE = 3
"""What a writer ends with when the server is gone."""
SAVED_OFTEN = {"hnsw": {"space": "cosine", "sync_threshold": 4, "batch_size": 2}}
"""Configuration of collections whose vectors are saved after a few rows, as those of large ones are after thousands."""


class Killed(BaseException):
    """Stands for a kill where the writer is this process."""


def save_often(patch: pytest.MonkeyPatch) -> None:
    """Let Chroma save vectors after a few rows, and take few rows in a batch."""
    create = Client.get_or_create_collection

    def create_saved_often(self: Client, name: str, *args: Any, **options: Any) -> Any:
        return create(self, name, *args, **{**options, "configuration": SAVED_OFTEN})

    patch.setattr(Client, "get_or_create_collection", create_saved_often)
    patch.setattr(Client, "get_max_batch_size", lambda _: 5)


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """Stop whoever gets so far: before a call of `DOORS` at an odd step, after it at an even one, and all that follow.

    So whatever cleans up after the stop writes nothing, as after a kill.
    """
    steps = count(1)

    def reach() -> None:
        if next(steps) >= step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, reach)
        yield


def watch(patch: pytest.MonkeyPatch, reach: Callable[[], None]) -> None:
    """Call back before and after each call of `DOORS`."""

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            reach()
            result = original(*args, **options)
            reach()
            return result

        return call

    for owner, names in DOORS:
        for name in names:
            patch.setattr(owner, name, watched(getattr(owner, name)))


def stop_at(patch: pytest.MonkeyPatch, step: int, owner: object, *names: str, where: Set[str] = frozenset()) -> None:
    """Interrupt whoever makes so many calls of these functions, with the arguments named in `where`."""
    calls = count(1)

    def stopped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if where <= set(kwargs) and next(calls) == step:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return call

    for name in names:
        patch.setattr(owner, name, stopped(getattr(owner, name)))


def before() -> list[Document]:
    return documents(8)


def after() -> list[Document]:
    """Some as they were, some new, some changed, some under other metadata, one gone."""
    changed = [document for at, document in enumerate(documents(10)) if at != 3]
    changed[1], changed[5] = documents(10, version=2)[1], documents(10, version=2)[6]
    changed[6] = replace(changed[6], metadata={"shelf": "c"})
    return changed


def sync(place: str) -> None:
    """Three documents at a time, so that many transactions follow each other; then what is gone goes."""
    with open_index(place, "notes", Embedder("eddy-tiny", method=METHOD), passage_size=24) as index:
        sync_index(index)


def sync_index(index: Index) -> None:
    for first in range(0, len(after()), 3):
        index.upsert(after()[first : first + 3])
    index.sync(after())


def work(place: str, job: Callable[[str], None], log: str, pipe: Any) -> None:
    """Do a job; say so before and after each write, and keep a list of the texts that are embedded."""
    patch = pytest.MonkeyPatch()
    save_often(patch)
    watch(patch, lambda: pipe.send_bytes(b"."))
    encode = Embedder.encode_long

    def logged(self: Embedder, texts: Any, **more: Any) -> Any:
        with open(log, "a", encoding="utf-8") as file:
            file.writelines(f"{Document('', text).text_digest}\n" for text in texts)
        return encode(self, texts, **more)

    Embedder.encode_long = logged  # type: ignore[method-assign]
    try:
        job(place)
    except StorageError:
        os._exit(UNREACHABLE)


def started(place: str, job: Callable[[str], None], log: Path) -> tuple[BaseProcess, Any]:
    ours, theirs = context().Pipe(duplex=False)
    process = context().Process(target=work, args=(place, job, str(log), theirs))
    process.start()
    theirs.close()
    return process, ours


def killed(process: BaseProcess, pipe: Any, moment: random.Random, most: int, kill: Callable[[], None]) -> bool:
    """Let it do a random number of steps, and kill; whether it was still at work."""
    try:
        for _ in range(moment.randint(1, most)):
            pipe.recv_bytes()
    except EOFError:
        process.join()
        return False
    time.sleep(moment.random() * 0.004)
    kill()
    return True


def kill_process(process: BaseProcess) -> Callable[[], None]:
    return lambda: os.kill(int(process.pid or 0), signal.SIGKILL)


def collections_of(place: str) -> set[str]:
    """Names of the collections, as plain Chroma lists them."""
    settings = chromadb.Settings(anonymized_telemetry=False)
    return {each.name for each in chromadb.PersistentClient(place, settings=settings).list_collections()}
