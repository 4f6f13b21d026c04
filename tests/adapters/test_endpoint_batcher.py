"""The queue alone: company, turns, budget and failures."""

from __future__ import annotations

import asyncio
import threading

from openai_eddy.batcher import Batcher


class Runner:
    """Runs batches when it is let, and remembers them; the result of a text is the text, twice."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, key: str, texts: list[str]) -> list[str | Exception]:
        self.batches.append((key, "".join(texts)))
        assert self.gate.wait(30)
        if "!" in texts:
            raise RuntimeError("all of them")
        return [ValueError(text) if text == "x" else text * 2 for text in texts]


async def held(batcher: Batcher, run: Runner) -> asyncio.Task:
    """A request that occupies the thread until the gate is opened."""
    run.gate.clear()
    task = asyncio.create_task(batcher.submit("a", "0", [1]))
    while not run.batches:
        await asyncio.sleep(0.001)
    return task


def asking(batcher: Batcher, key: str, texts: str, cost: int = 2) -> asyncio.Task:
    return asyncio.create_task(batcher.submit(key, texts, [cost] * len(texts)))


async def test_requests_go_together_and_each_gets_its_own() -> None:
    run = Runner()
    batcher = Batcher(run, budget=6, wait=0)
    first = await held(batcher, run)
    tasks = [asking(batcher, "a", "bcde"), asking(batcher, "a", "f"), asking(batcher, "b", "g")]
    await asyncio.sleep(0)
    run.gate.set()
    assert await asyncio.gather(first, *tasks) == [["00"], ["bb", "cc", "dd", "ee"], ["ff"], ["gg"]]
    # The short one does not wait for the long one's end, and another key goes before what is left of the first.
    assert run.batches[1:] == [("a", "bfc"), ("b", "g"), ("a", "de")]
    assert await batcher.submit("a", "hij", [3, 50, 3]) == ["hh", "ii", "jj"]  # what costs too much goes alone
    assert run.batches[4:] == [("a", "h"), ("a", "i"), ("a", "j")] and batcher.pending == 0


async def test_those_who_ask_together_are_waited_for_and_one_alone_is_not() -> None:
    run = Runner()
    batcher = Batcher(run, budget=100, wait=30)
    for _ in range(3):
        assert await asyncio.wait_for(batcher.submit("a", "b", [1]), 20) == ["bb"]
    run.batches.clear()
    batcher._wait = 1
    first = await held(batcher, run)
    together = [asking(batcher, "a", letter) for letter in "cde"]
    await asyncio.sleep(0)
    run.gate.set()
    assert await first == ["00"]
    together.append(asking(batcher, "a", "f"))  # the batch still waits
    assert await asyncio.gather(*together) == [["cc"], ["dd"], ["ee"], ["ff"]]
    assert run.batches == [("a", "0"), ("a", "cdef")]
