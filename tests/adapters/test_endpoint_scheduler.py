"""The scheduler alone: company, turns, budget, refusal, what is taken back, and the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from openai_eddy.scheduler import Closing, ItemFailed, Overloaded, Scheduler


class Runner:
    """Runs batches when it is let, and remembers them; an item's result is the item, doubled."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, key: str, items: list[int]) -> list[int | Exception]:
        self.batches.append((key, items))
        assert self.gate.wait(30)
        if 99 in items:
            raise RuntimeError("all of them")
        return [ValueError(f"{item} is odd") if item % 2 else 2 * item for item in items]


def scheduler(run: Runner, budget: int = 10, wait: float = 0.0, most: int = 1000) -> Scheduler:
    made = Scheduler(run, budget=budget, wait=wait, max_pending=most)
    made.start()
    return made


async def held(made: Scheduler, run: Runner) -> asyncio.Task:
    """A request that occupies the thread until the gate is opened."""
    run.gate.clear()
    task = asyncio.create_task(made.submit("a", [0], [1]))
    while not run.batches:
        await asyncio.sleep(0.001)
    return task


async def test_requests_go_together_and_each_gets_its_own() -> None:
    run = Runner()
    made = scheduler(run, budget=6)
    first = await held(made, run)
    long = asyncio.create_task(made.submit("a", [10, 12, 14, 16], [2, 2, 2, 2]))
    await asyncio.sleep(0)
    short = asyncio.create_task(made.submit("a", [20], [2]))
    other = asyncio.create_task(made.submit("b", [30], [2]))
    await asyncio.sleep(0)
    run.gate.set()
    assert await asyncio.gather(first, long, short, other) == [[0], [20, 24, 28, 32], [40], [60]]
    # The short one does not wait for the long one's end, and another key goes alone, before what came behind it.
    assert run.batches[1:] == [("a", [10, 20, 12]), ("b", [30]), ("a", [14, 16])]
    await made.close()
    assert (made.pending, made.requests) == (0, 0)


async def test_what_costs_more_than_the_budget_goes_alone() -> None:
    run = Runner()
    made = scheduler(run, budget=10)
    assert await made.submit("a", [2, 4, 6], [3, 50, 3]) == [4, 8, 12]
    assert [items for _, items in run.batches] == [[2], [4], [6]]
    await made.close()


async def test_who_asks_alone_is_not_held_up() -> None:
    run = Runner()
    made = scheduler(run, wait=20)
    for _ in range(2):
        assert await asyncio.wait_for(made.submit("a", [2], [1]), 10) == [4]
    await made.close()


@pytest.mark.parametrize("budget", [4, 100])
async def test_those_who_asked_together_are_waited_for(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a batch is full, or as many are there as lately; that is forgotten."""
    run = Runner()
    made = scheduler(run, budget=budget, wait=20)
    together = await asyncio.wait_for(asyncio.gather(*(made.submit("a", [n], [1]) for n in (2, 4, 6, 8))), 10)
    assert together == [[4], [8], [12], [16]] and [items for _, items in run.batches] == [[2, 4, 6, 8]]
    again = [asyncio.create_task(made.submit("a", [2], [1]))]
    await asyncio.sleep(0.05)
    assert len(run.batches) == 1  # it waits still
    again += [asyncio.create_task(made.submit("a", [n], [1])) for n in (4, 6, 8)]
    await asyncio.wait_for(asyncio.gather(*again), 10)
    assert [items for _, items in run.batches[1:]] == [[2, 4, 6, 8]]
    monkeypatch.setattr("openai_eddy.scheduler.FORGETTING", 0.0)
    made._wait = 0.01  # for the one that waits in vain
    assert await made.submit("a", [2], [1]) == [4]
    made._wait = 20
    assert await asyncio.wait_for(made.submit("a", [2], [1]), 10) == [4]
    await made.close()


async def test_a_failure_stays_with_its_own() -> None:
    run = Runner()
    made = scheduler(run, budget=100)
    first = await held(made, run)
    good, bad = (asyncio.create_task(made.submit("a", items, [1, 1])) for items in ([2, 4], [6, 7]))
    await asyncio.sleep(0)
    run.gate.set()
    with pytest.raises(ItemFailed) as failure:
        await bad
    assert failure.value.index == 1 and str(failure.value.__cause__) == "7 is odd"
    assert await good == [4, 8] and await first == [0]
    with pytest.raises(ItemFailed):  # where the batch itself fails
        await made.submit("a", [99], [1])
    assert await made.submit("a", [2], [1]) == [4]
    await made.close()
    assert (made.pending, made.requests) == (0, 0)


async def test_too_much_is_refused_and_the_rest_is_not() -> None:
    run = Runner()
    made = scheduler(run, budget=5, most=20)
    first = await held(made, run)
    second = asyncio.create_task(made.submit("a", [2] * 4, [4] * 4))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as refusal:
        await made.submit("a", [2], [4])
    assert refusal.value.retry_after >= 1
    third = asyncio.create_task(made.submit("a", [4], [3]))
    await asyncio.sleep(0)
    run.gate.set()
    assert [await first, await second, await third] == [[0], [4] * 4, [8]]
    # More than may wait, and nothing waits: otherwise it could never be had.
    assert await made.submit("a", [2], [21]) == [4]
    await made.close()


async def test_what_a_client_leaves_behind_is_not_run() -> None:
    run = Runner()
    made = scheduler(run, budget=1)
    first = await held(made, run)
    left = asyncio.create_task(made.submit("a", [2, 4, 6], [1, 1, 1]))
    stays = asyncio.create_task(made.submit("a", [8], [1]))
    await asyncio.sleep(0)
    left.cancel()
    first.cancel()  # runs already
    await asyncio.sleep(0)
    run.gate.set()
    assert await stays == [16]
    assert [items for _, items in run.batches] == [[0], [8]]
    await made.close()
    assert (made.pending, made.requests, made._queued_cost) == (0, 0, 0)


async def test_closing_finishes_what_was_accepted() -> None:
    run = Runner()
    made = scheduler(run, budget=1, wait=20)
    first = asyncio.create_task(made.submit("a", [0], [1]))
    while not run.batches:
        await asyncio.sleep(0.001)
    run.gate.clear()
    second = asyncio.create_task(made.submit("a", [2, 4], [1, 1]))
    await asyncio.sleep(0)
    end = asyncio.create_task(made.close())
    await asyncio.sleep(0)
    with pytest.raises(Closing):
        await made.submit("a", [6], [1])
    run.gate.set()
    await asyncio.wait_for(end, 10)
    assert (await first, await second) == ([0], [4, 8])
