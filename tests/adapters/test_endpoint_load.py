"""The endpoint under load and beside clients that misbehave: every answer is a refusal, or its own text's vector."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable

import httpx
import numpy as np
import pytest
from tests.adapters.serving import NAME, Served, head, serving, until

from eddy_embed import Embedder
from openai_eddy.limits import Limits

pytestmark = pytest.mark.slow
METHOD = "plain:exit=1"
TEXTS = [f"Boat number {number} carries {number * 7} dogs. " * (1 + number % 4) for number in range(24)]
MALFORMED = (b"{", b'{"input": "\xff"}', b"[" * 5000, b'{"model": "eddy-tiny", "input": [[1, -1]]}')


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method=METHOD, dtype="float32")


@pytest.fixture(scope="module")
def vectors(embedder: Embedder) -> np.ndarray:
    return embedder.encode_document(TEXTS)


async def ask(client: httpx.AsyncClient, vectors: np.ndarray, number: int) -> bool:
    """Whether a text was answered, with its own vector; otherwise it was refused with a time."""
    answer = await client.post("/v1/embeddings", json={"model": NAME, "input": TEXTS[number]})
    if answer.status_code == 429:
        assert int(answer.headers["retry-after"]) >= 1
        return False
    np.testing.assert_allclose(answer.json()["data"][0]["embedding"], vectors[number], rtol=0, atol=1e-5)
    return True


async def test_load_beyond_what_may_wait(embedder: Embedder, vectors: np.ndarray) -> None:
    """`/health` answers all along."""
    answered: list[bool] = []
    with serving({METHOD: embedder}, Limits(requests=3)) as served:
        async with httpx.AsyncClient(base_url=served.root, timeout=60) as client:

            async def insist(seed: int) -> None:
                while time.monotonic() < end:
                    answered.append(await ask(client, vectors, random.Random(seed).randrange(len(TEXTS))))
                    assert (await client.get("/health")).status_code == 200

            end = time.monotonic() + 1
            await asyncio.gather(*(insist(seed) for seed in range(12)))
        assert set(answered) == {True, False}


async def malformed(client: httpx.AsyncClient, served: Served) -> None:
    for body in MALFORMED:
        answer = await client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400 and set(answer.json()) == {"error"}


async def huge(client: httpx.AsyncClient, served: Served) -> None:
    for inputs in ("a" * 9_000_000, "a" * 1_100_000, ["a"] * 2049):
        try:
            answer = await client.post("/v1/embeddings", json={"model": NAME, "input": inputs})
            assert answer.status_code in (400, 413)
        except httpx.TransportError:  # cut off before all of it was sent
            pass


async def dropped(client: httpx.AsyncClient, served: Served) -> None:
    """Leave in the head, in the body, or before the answer."""
    body = b'{"model": "eddy-tiny", "input": "Nobody waits for this."}'
    whole = head(len(body)) + body
    for sent in (20, len(whole) - 10, len(whole)):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(whole[:sent])
        await writer.drain()
        writer.transport.abort()


async def test_nobody_notices_clients_that_misbehave(embedder: Embedder, vectors: np.ndarray) -> None:
    with serving({METHOD: embedder}) as served:

        def files() -> int:
            return int(float(re.findall(r"^process_open_fds (\S+)", served.http.get("/metrics").text, re.M)[0]))

        before = files()
        async with httpx.AsyncClient(base_url=served.root, timeout=60) as client:

            async def misbehave(misdeed: Callable[[httpx.AsyncClient, Served], Awaitable[None]]) -> None:
                for _ in range(20):
                    await misdeed(client, served)

            async def behave(seed: int) -> None:
                dice = random.Random(seed)
                for _ in range(40):
                    assert await ask(client, vectors, dice.randrange(len(TEXTS)))

            bad = (misbehave(each) for each in (malformed, huge, dropped))
            await asyncio.gather(*bad, *(behave(seed) for seed in range(4)))
        await asyncio.to_thread(until, served.at_rest)
        assert files() <= before
