"""Writers that are stopped: in this process at a chosen write, in one of their own by a parent that kills them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from chromadb import Collection
from tests.adapters.indexes import documents
from tests.processes import context

from chroma_eddy import Document, StorageError, open_index
from chroma_eddy.storage import collection_pair
from chroma_eddy.storage.store import Store
from chroma_eddy.write import writer
from eddy_embed import Embedder

METHOD = "plain:exit=2"
MOST_STEPS = 24
"""Writes that a writer may do before it is killed; a document takes several."""
UNREACHABLE = 3
"""What a writer ends with when the server is gone."""


SAVED_OFTEN = {"hnsw": {"space": "cosine", "sync_threshold": 4, "batch_size": 2}}
"""Configuration of collections whose vectors are saved after a few rows, as those of large ones are after thousands."""


def stop_at(patch: pytest.MonkeyPatch, step: int, owner: object, *names: str) -> None:
    """Interrupt whoever makes so many calls of these functions."""
    calls = count(1)

    def stopped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == step:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return call

    for name in names:
        patch.setattr(owner, name, stopped(getattr(owner, name)))


def before() -> list[Document]:
    return documents(8)


def after() -> list[Document]:
    """Some as they were, some new, some changed, some under other metadata, one gone."""
    found = [document for at, document in enumerate(documents(10)) if at != 3]
    found[1], found[5] = documents(10, version=2)[1], documents(10, version=2)[6]
    found[6] = replace(found[6], metadata={"shelf": "c"})
    return found


def sync(place: str) -> None:
    with open_index(place, "notes", Embedder("eddy-tiny", method=METHOD), passage_size=24) as index:
        index.sync(after())


def work(place: str, job: Callable[[str], None], log: str, pipe: Any) -> None:
    """Do a job; say so before and after each write, and keep a list of the texts that are embedded."""
    for name in ("upsert", "update", "delete", "modify"):
        setattr(Collection, name, _told(getattr(Collection, name), pipe))
    encode = Embedder.encode_long

    def logged(self: Embedder, texts: Any, **more: Any) -> Any:
        with open(log, "a", encoding="utf-8") as file:
            file.writelines(f"{Document('', text).text_digest}\n" for text in texts)
        return encode(self, texts, **more)

    Embedder.encode_long = logged  # type: ignore[method-assign]
    writer.GROUP_DOCUMENTS = 3
    Store.max_batch_size = property(lambda _: 5)  # type: ignore[assignment, method-assign]
    collection_pair._COSINE_CONFIG = SAVED_OFTEN  # type: ignore[assignment]
    try:
        job(place)
    except StorageError:
        os._exit(UNREACHABLE)


def _told(original: Callable[..., Any], pipe: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        pipe.send_bytes(b".")
        done = original(*args, **kwargs)
        pipe.send_bytes(b".")
        return done

    return call


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
