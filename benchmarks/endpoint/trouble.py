"""More than a server accepts, and clients that misbehave; those who behave must not notice."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from eddy_embed.model.speed.onednn_linear import pad_rows
from endpoint.clients import OK, OVERLOADED, Connection, Known, Wrong, numbers, request

AGAIN = 0.25
"""Seconds after which a refused client asks again, sooner than it is told to."""
PATIENCE = 60
"""Seconds more to wait for a refusal."""
ALONE = 100
"""Requests one after the other, before and after."""
LENGTHS = sorted({pad_rows(rows, torch.device("cpu")) for rows in range(1, 2049)})
"""Tokens of inputs that meet every number of rows to which passes of up to 2,048 tokens are filled up."""
STEP = 1000
"""Requests between two looks at the memory."""
PAUSE = 0.1
"""Seconds between two misdeeds of one client."""
MALFORMED: tuple[tuple[bytes, int], ...] = (
    (b"{", 400),
    (b'{"input": "\xff"}', 400),
    (b"[" * 5000, 400),
    (b'{"model": "model"}', 400),
    (b'{"model": "model", "input": []}', 400),
    (b'{"model": "model", "input": ["", "a"]}', 400),
    (b'{"model": "model", "input": [[1, -1]]}', 400),
    (b'{"model": "model", "input": "a", "dimensions": 100000}', 400),
    (b'{"model": "other", "input": "a"}', 404),
)


@dataclass(frozen=True)
class Overload:
    """More clients than may wait.

    Attributes:
        clients: How many there were.
        seconds: How long they asked.
        answered: Requests that got their vector; each was checked.
        refused: Requests that got 429 with `Retry-After`.
        p99: Milliseconds of those answered.
        health: Milliseconds that `/health` took at the longest meanwhile.
        before: Milliseconds of a request alone before, the median.
        after: The same afterwards.
    """

    clients: int
    seconds: float
    answered: int
    refused: int
    p99: float
    health: float
    before: float
    after: float


@dataclass(frozen=True)
class Endurance:
    """Many requests beside clients that misbehave.

    Attributes:
        requests: Answered and checked.
        misdeeds: How often each was done.
        memory: MiB of the server after so many requests; after 0, it has met every number of tokens of a pass.
        files: Open files of the server before, and after the clients had left.
        seconds: All of it.
    """

    requests: int
    misdeeds: dict[str, int]
    memory: dict[int, float]
    files: tuple[int, int]
    seconds: float


async def metrics(port: int) -> dict[str, float]:
    """The gauges and counters without labels."""
    page = (await _once(port, b"", "GET", "/metrics")).decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", page, re.MULTILINE)}


async def _once(port: int, body: bytes, method: str, path: str) -> bytes:
    connection = Connection(port)
    answer = await connection.ask(body, method, path)
    connection.close()
    if answer.status != OK:
        raise Wrong(f"{path} answered {answer.status}: {answer.body[:300]!r}")
    return answer.body


async def _alone(port: int, known: Known) -> float:
    """Median milliseconds of requests one after the other."""
    connection, spent = Connection(port), []
    for number in itertools.islice(numbers(1, len(known.texts)), ALONE):
        begun = time.perf_counter()
        known.check(number, (await connection.ask(request(known.texts[number]))).vector())
        spent.append(time.perf_counter() - begun)
    connection.close()
    return float(np.median(spent)) * 1000


async def overload(port: int, known: Known, clients: int, seconds: float) -> Overload:
    """Ask with more clients than may wait.

    Raises:
        Wrong: An answer is neither the vector of its text nor a refusal in good form, or nobody was refused.
    """
    before = await _alone(port, known)
    end = time.perf_counter() + seconds
    spent: list[float] = []
    refused = 0

    def over() -> bool:
        now = time.perf_counter()
        return now >= end and (bool(refused and spent) or now >= end + PATIENCE)

    async def client(seed: int) -> None:
        nonlocal refused
        connection = Connection(port)
        for number in numbers(seed, len(known.texts)):
            if over():
                break
            begun = time.perf_counter()
            answer = await connection.ask(request(known.texts[number]))
            if answer.status == OK:
                known.check(number, answer.vector())
                spent.append(time.perf_counter() - begun)
            elif answer.status == OVERLOADED and int(answer.header("retry-after") or 0) >= 1:
                if json.loads(answer.body)["error"]["code"] != "rate_limit_exceeded":
                    raise Wrong(f"a refusal says {answer.body!r}")
                refused += 1
                await asyncio.sleep(AGAIN)
            else:
                raise Wrong(f"answered {answer.status} with {answer.head!r}")
        connection.close()

    healthy, *_ = await asyncio.gather(_health(port, over), *(client(seed) for seed in range(clients)))
    if not refused:
        raise Wrong(f"{clients} clients were not too many")
    await rest(port)
    p99 = float(np.percentile(spent, 99)) * 1000
    after = await _alone(port, known)
    times = (round(each, 1) for each in (p99, healthy, before, after))
    return Overload(clients, seconds, len(spent), refused, *times)


async def _health(port: int, over: Callable[[], bool]) -> float:
    """The most milliseconds that `/health` takes until it is over."""
    slowest = 0.0
    while not over():
        begun = time.perf_counter()
        await _once(port, b"", "GET", "/health")
        slowest = max(slowest, (time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PAUSE)
    return slowest


async def rest(port: int) -> None:
    """Wait until nothing is pending.

    Raises:
        Wrong: Something stays pending.
    """
    for _ in range(600):
        now = await metrics(port)
        if now["eddy_pending_tokens"] == now["eddy_pending_requests"] == 0:
            return
        await asyncio.sleep(0.05)
    raise Wrong(f"something is still pending: {now}")


async def endure(port: int, known: Known, requests: int, clients: int) -> Endurance:
    """So many requests by so many clients, while others misbehave.

    Raises:
        Wrong: An answer is not the vector of its text, or a misdeed is not answered as it must be.
    """
    begun = time.perf_counter()
    await _alone(port, known)
    await _meet(port)
    files = int((await metrics(port))["process_open_fds"])
    memory = {0: await _resident(port)}
    done = 0
    over = asyncio.Event()
    counted: Counter[str] = Counter()

    async def client(seed: int) -> None:
        nonlocal done
        connection = Connection(port)
        for number in numbers(seed, len(known.texts)):
            if done >= requests:
                break
            done += 1
            at = done
            answer = await connection.ask(request(known.texts[number]))
            if answer.status != OK:
                raise Wrong(f"answered {answer.status}: {answer.body[:300]!r}")
            known.check(number, answer.vector())
            if at % STEP == 0 or at == requests:
                memory[at] = await _resident(port)
        connection.close()

    async def misbehave(name: str, misdeed: Callable[[Any, Known, random.Random], Awaitable[None]]) -> None:
        draw = random.Random(name)
        while not over.is_set():
            await misdeed(Connection(port), known, draw)
            counted[name] += 1
            await asyncio.sleep(PAUSE * draw.random())

    bad = [asyncio.create_task(misbehave(name, misdeed)) for name, misdeed in MISDEEDS.items()]
    try:
        await asyncio.gather(*(client(seed) for seed in range(clients)))
    finally:
        over.set()
        await asyncio.gather(*bad)
    await rest(port)
    while (left := int((await metrics(port))["process_open_fds"])) > files and time.perf_counter() - begun < 600:
        await asyncio.sleep(0.1)
    return Endurance(done, dict(counted), memory, (files, left), round(time.perf_counter() - begun, 1))


async def _meet(port: int) -> None:
    """Have kernels prepared for every number of rows, which are kept."""
    for count in LENGTHS:
        await _once(port, json.dumps({"model": "model", "input": [5] * count}).encode(), "POST", "/v1/embeddings")


async def _resident(port: int) -> float:
    return round((await metrics(port))["process_resident_memory_bytes"] / 2**20, 1)


async def _malformed(connection: Connection, known: Known, draw: random.Random) -> None:
    for body, expected in MALFORMED:
        answer = await connection.ask(body)
        if answer.status != expected or set(json.loads(answer.body)) != {"error"}:
            raise Wrong(f"{body[:60]!r} was answered with {answer.status}, {answer.body[:200]!r}")
    connection.close()


async def _huge(connection: Connection, known: Known, draw: random.Random) -> None:
    """A body that is said to be huge, one that is, a text that is, and too many texts."""
    _, writer = await connection.open()
    writer.write(connection.head("POST", "/v1/embeddings", 10**12))
    answers = [await connection.read()]
    for inputs in ("a" * 9_000_000, "a" * 1_100_000, ["a"] * 2049):
        body = json.dumps({"model": "model", "input": inputs}).encode()
        try:
            answers.append(await connection.ask(body))
        except (ConnectionError, asyncio.IncompleteReadError):  # cut off before all of it was sent
            connection.close()
    if not {each.status for each in answers} <= {400, 413}:
        raise Wrong(f"huge requests were answered with {[each.status for each in answers]}")
    connection.close()


async def _dropped(connection: Connection, known: Known, draw: random.Random) -> None:
    """Leave in the head, in the body, or before the answer."""
    text = known.texts[draw.randrange(len(known.texts))]
    body = request(text)
    whole = connection.head("POST", "/v1/embeddings", len(body)) + body
    _, writer = await connection.open()
    writer.write(whole[: draw.choice([20, len(whole) - 10, len(whole)])])
    await writer.drain()
    await asyncio.sleep(draw.choice([0, 0.005]))
    writer.transport.abort()


async def _slow(connection: Connection, known: Known, draw: random.Random) -> None:
    """Send a request in pieces over a second; its answer is right all the same."""
    number = draw.randrange(len(known.texts))
    body = request(known.texts[number])
    whole = connection.head("POST", "/v1/embeddings", len(body)) + body
    _, writer = await connection.open()
    for at in range(0, len(whole), max(1, len(whole) // 20)):
        writer.write(whole[at : at + max(1, len(whole) // 20)])
        await writer.drain()
        await asyncio.sleep(0.05)
    known.check(number, (await connection.read()).vector())
    connection.close()


MISDEEDS = {"malformed": _malformed, "huge": _huge, "dropped": _dropped, "slow": _slow}
