"""Clients over connections of their own, which hold every vector that they get to the library's for its text."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from texts import story

from eddy_embed import Embedder

WORDS = (8, 64)
"""In a text: as questions and short passages have."""
TOLERANCE = 1e-5
"""Between vectors of one text, in float32: company in a batch changes last digits."""
OK, OVERLOADED = 200, 429


@dataclass(frozen=True)
class Known:
    """Texts and their vectors by the library."""

    texts: list[str]
    vectors: np.ndarray

    @classmethod
    def of(cls, embedder: Embedder, count: int) -> Known:
        """Different texts of so many words as `WORDS`.

        Raises:
            SystemExit: Two of them are so near each other that one could pass for the other.
        """
        draw = random.Random(7)
        words = story(20_000, seed=7).split()
        texts = []
        for number in range(count):
            size = draw.randint(*WORDS)
            first = draw.randrange(len(words) - size)
            texts.append(f"{number} {' '.join(words[first : first + size])}")
        vectors = embedder.encode_document(texts)
        nearest = min(np.abs(np.delete(vectors, at, 0) - each).max(axis=1).min() for at, each in enumerate(vectors))
        if nearest < 20 * TOLERANCE:
            raise SystemExit(f"two texts have vectors only {nearest:.2g} apart: an exchange might not be seen")
        return cls(texts, vectors)

    def check(self, number: int, vector: np.ndarray) -> None:
        """Hold a vector to its own text.

        Raises:
            Wrong: It is another's, or none.
        """
        expected = self.vectors[number]
        if vector.shape != expected.shape:
            raise Wrong(f"text {number} got {vector.size} numbers, not {expected.size}")
        off = float(np.abs(vector - expected).max())
        if not off < TOLERANCE:
            other = int(np.abs(self.vectors - vector).max(axis=1).argmin())
            raise Wrong(f"text {number} got a vector that is off by {off:.2g}; the nearest is text {other}'s")


class Wrong(Exception):
    """A server gave something else than the vector of the text."""


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    head: str
    body: bytes

    def vector(self) -> np.ndarray:
        """Of the only input."""
        (row,) = json.loads(self.body)["data"]
        return np.frombuffer(base64.b64decode(row["embedding"]), "<f4")

    def header(self, name: str) -> str | None:
        """A header's value."""
        found = re.search(rf"(?im)^{name}: *(.*?)\r?$", self.head)
        return found[1] if found else None


class Connection:
    """One connection, kept open from request to request."""

    def __init__(self, port: int) -> None:
        """Nothing is opened yet."""
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Its two ends, opened where they are not."""
        if self._streams is None or self._streams[1].is_closing():
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self._streams

    def head(self, method: str, path: str, length: int | None) -> bytes:
        """The head of a request."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Type: application/json"]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def ask(self, body: bytes, method: str = "POST", path: str = "/v1/embeddings") -> Answer:
        """Send a request, read its answer."""
        _, writer = await self.open()
        writer.write(self.head(method, path, len(body)) + body)
        return await self.read()

    async def read(self) -> Answer:
        """Read the answer to what was sent.

        Raises:
            ConnectionError: The connection is closed.
        """
        if self._streams is None:
            raise ConnectionError("nothing was sent")
        reader = self._streams[0]
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        if "connection: close" in head.lower():
            self.close()
        return Answer(int(head.split(" ", 2)[1]), head, body)

    def close(self) -> None:
        """Let go, without waiting for the other side to take what was sent."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def request(text: str) -> bytes:
    """A body that asks for the vector of one text, as the `openai` package does."""
    return json.dumps({"model": "model", "input": [text], "encoding_format": "base64"}).encode()


@dataclass
class Loaded:
    """What was answered.

    Attributes:
        answered: Vectors that were checked, all in all.
        latencies: Seconds of each answer after warming up.
        seconds: In which they came.
    """

    answered: int = 0
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def load(port: int, known: Known, concurrency: int, seconds: float, warm_up: float) -> Loaded:
    """Closed loops: each client asks again as soon as it is answered; every answer is checked.

    Raises:
        Wrong: An answer is not the vector of its text.
    """
    begin = time.perf_counter() + warm_up
    end = begin + seconds
    found = Loaded(seconds=seconds)

    async def client(seed: int) -> None:
        connection = Connection(port)
        for number in numbers(seed, len(known.texts)):
            sent = time.perf_counter()
            answer = await connection.ask(request(known.texts[number]))
            done = time.perf_counter()
            if answer.status != OK:
                raise Wrong(f"port {port} answered {answer.status}: {answer.body[:300]!r}")
            known.check(number, answer.vector())
            found.answered += 1
            if begin <= done <= end:
                found.latencies.append(done - sent)
            if time.perf_counter() >= end:
                break
        connection.close()

    await asyncio.gather(*(client(seed) for seed in range(concurrency)))
    return found


def numbers(seed: int, below: int) -> Iterator[int]:
    """Random numbers without end, others for each client."""
    draw = random.Random(seed)
    while True:
        yield draw.randrange(below)
