"""Documents for indexes, everything that an index holds, and a Chroma server of one's own."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.api.shared_system_client import SharedSystemClient
from tests.processes import Command

from chroma_eddy import Document, Index

MAIN, DOCUMENTS = "", "-documents"
"""Suffixes of an index's collections, by which `rows` gives what is in them."""
CHROMA = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"
SENTENCES = (
    "The ferry to the island leaves at nine in the morning.",
    "Dogs travel for free.",
    "Bread rises because yeast turns sugar into gas.",
    "Bakers wait for it.",
    "Granite cools slowly, deep under the ground.",
    "The harbour office is closed on Mondays.",
    "Boats with a deep keel leave two hours before high water.",
    "A pendulum swings once in two seconds.",
    "The weights are wound up by hand every Monday.",
    "Spring tides come at new moon and at full moon.",
    "Steam keeps the crust soft until the loaf has risen.",
)


def documents(count: int = 6, version: int = 1) -> list[Document]:
    """Different texts of different lengths, with what could be lost on the way: gaps, ends, pages, metadata."""
    found = []
    for at in range(count):
        lines = [SENTENCES[(at * 3 + line) % len(SENTENCES)] for line in range(2 + at % 5)]
        text = (
            f"Document {at} of version {version}. "
            + "  \n\n".join((" ".join(lines[:2]), *lines[2:]))
            + " \n" * (at % 3)
        )
        pages = (0, len(text) // 2) if at % 2 else ()
        found.append(Document(f"papers/{at}", text, {"number": at, "shelf": "ab"[at % 2], "new": at > 2}, pages))
    return found


SENTENCES_OF = "sentences"
"""In `rows`: the vectors of sentences that are stored, beside the collections."""


def rows(index: Index) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Everything that an index holds, by collection and id: vector, metadata, text.

    In a folder, the vectors that it keeps itself are those of Chroma.
    """
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    kept = index.storage.vectors
    for kind in (MAIN, DOCUMENTS):
        got = index.storage.collection(kind).get(include=["embeddings", "metadatas", "documents"])
        vectors, texts = np.asarray(got["embeddings"]), got["documents"] or [None] * len(got["ids"])
        own = [dict(row) for row in got["metadatas"]]
        numbers = [row.pop("eddy_vector", None) for row in own]
        if kept is not None and numbers:
            np.testing.assert_allclose(kept.rows.read(numbers), vectors, rtol=1e-6, atol=1e-6)
        for id_, row in zip(got["ids"], own, strict=True):
            more = json.loads(row.pop("eddy_row", "{}"))
            if (first := more.pop("vectors", None)) is not None and kept is not None:
                lines = kept.sentences.read(range(first, first + len(more["sentences"].split())))
                lines /= np.linalg.norm(lines, axis=1, keepdims=True)
                stored = {f"{id_}/{at}": (vector, {}, "") for at, vector in enumerate(lines)}
                found.setdefault(SENTENCES_OF, {}).update(stored)
            row.update({f"eddy_{name}": value for name, value in more.items()})
        found[kind] = dict(zip(got["ids"], zip(vectors, own, texts, strict=True), strict=True))
    return found


def assert_same(one: dict, other: dict, atol: float = 1e-5) -> None:
    """Row by row: the same ids, metadata and texts, and vectors as near as company lets them be; with atol=0, equal.

    Sentences are kept in half precision, which may round two near values apart by one unit.
    """
    assert one.keys() == other.keys()
    for kind in one:
        rtol = 2**-10 if kind == SENTENCES_OF and atol else 1e-7
        assert one[kind].keys() == other[kind].keys(), kind
        for id_, (vector, metadata, text) in one[kind].items():
            assert (metadata, text) == other[kind][id_][1:], (kind, id_)
            np.testing.assert_allclose(vector, other[kind][id_][0], rtol=rtol, atol=atol)


@contextmanager
def apart() -> Iterator[None]:
    """Clients that are made inside share nothing with those outside, as if they were in another process."""
    shared = ("_identifier_to_system", "_identifier_to_refcount")
    kept = {name: getattr(SharedSystemClient, name) for name in shared}
    SharedSystemClient.clear_system_cache()
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(SharedSystemClient, name, value)


@dataclass
class Server:
    """`chroma run` in a process of its own, that can be killed and started again on its folder and port."""

    folder: Path
    port: int
    process: Command | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        arguments = ("run", "--path", self.folder, "--host", "127.0.0.1", "--port", self.port)
        self.process = Command(CHROMA, *arguments, err=Path(os.devnull))
        for _ in range(6000):
            assert self.process.status is None
            with suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", self.port)):
                chromadb.HttpClient("127.0.0.1", self.port).heartbeat()
                return
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Server(folder, port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
