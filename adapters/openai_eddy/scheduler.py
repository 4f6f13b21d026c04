"""Continuous batching: collects the items of many requests into batches. Knows neither models nor HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_RETRY_SECONDS = 60
"""Longest time after which a refused client may retry: by then the queue may be empty."""
SPEED_SMOOTHING = 0.3
"""Weight of the last batch in the moving average of the speed."""
FORGETTING = 0.9
"""Factor by which the largest number of concurrent requests falls with each batch."""


class Overloaded(Exception):
    """The queue is full; by an estimate, it is empty after `retry_after` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; ask again in {retry_after} s")
        self.retry_after = retry_after


class Closing(Exception):
    """The scheduler accepts no more requests."""


class ItemFailed(Exception):
    """The item with this index in its request failed; the exception's `__cause__` is the reason."""

    def __init__(self, index: int) -> None:
        super().__init__(f"item {index} failed")
        self.index = index


@dataclass(eq=False)
class _Request(Generic[Key, Item, Result]):
    """A submitted request."""

    key: Key
    items: Sequence[Item]
    costs: Sequence[int]
    future: asyncio.Future[list[Result]]
    next: int = 0  # index of the first item that was not put into a batch yet
    results: dict[int, Result] = field(default_factory=dict)  # by index of the item

    def deliver(self, index: int, result: Result | Exception) -> None:
        """Store an item's result; after the last one, or an error, complete the future."""
        if self.future.done():  # the client is gone, or an earlier item failed
            return
        if isinstance(result, Exception):
            failed = ItemFailed(index)
            failed.__cause__ = result
            self.future.set_exception(failed)
            return
        self.results[index] = result
        if len(self.results) == len(self.items):
            self.future.set_result([self.results[at] for at in range(len(self.items))])


class Scheduler(Generic[Key, Item, Result]):
    """Runs the items of many requests in batches in one worker thread, and gives each request its own results.

    A batch takes one item of each waiting request in turn until the budget is full, so a long request does not hold up
    a short one. Items of a batch have the same key. Before a batch that is not full the scheduler waits shortly if it
    has recently seen more concurrent requests: clients that were answered together ask again together, and stay
    together if the first of them does not run alone. A client that asks alone does not wait.

    Attributes:
        pending: Total cost of accepted items that are not done.
        requests: Number of accepted requests that are not done.
    """

    def __init__(
        self,
        run: Callable[[Key, list[Item]], Sequence[Result | Exception]],
        *,
        budget: int,
        wait: float,
        max_pending: int,
        observe: Callable[[int, int, int, float], None] = lambda *_: None,
    ) -> None:
        """Configure the scheduler; nothing runs before `start`.

        Args:
            run: Runs a batch in the worker thread; returns each item's result or error, in their order.
            budget: Maximum cost of a batch; a costlier item runs alone.
            wait: Maximum time in seconds to wait for as many requests as were recently concurrent.
            max_pending: Maximum pending cost; a request that exceeds it by itself is accepted when nothing is pending.
            observe: Called after each batch with the number of its items and of their requests, its cost and seconds.
        """
        self._run, self._observe = run, observe
        self._budget, self._wait, self._max_pending = budget, wait, max_pending
        self._queue: deque[_Request[Key, Item, Result]] = deque()
        self._queued_cost = 0
        self._recently_concurrent = 0.0
        self.pending = self.requests = 0
        self._speed = math.nan
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to run batches, in the running event loop."""
        self._arrived, self._batch_ready = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy-model")
        self._task = asyncio.create_task(self._run_batches())

    async def close(self) -> None:
        """Accept nothing more, finish everything accepted, and end the thread."""
        self._closing = True
        if self._task is not None:
            self._arrived.set()
            self._batch_ready.set()
            await self._task
            self._thread.shutdown(wait=False)

    async def submit(self, key: Key, items: Sequence[Item], costs: Sequence[int]) -> list[Result]:
        """Run the items of a request; cancelling the call withdraws items that have not run yet.

        Raises:
            Overloaded: Too much is pending.
            Closing: `close` was called.
            ItemFailed: An item failed; later items may not have run.
        """
        loop = asyncio.get_running_loop()
        total = sum(costs)
        if self._closing:
            raise Closing
        if self.pending and self.pending + total > self._max_pending:
            raise Overloaded(self.seconds_left())
        request: _Request[Key, Item, Result] = _Request(key, items, costs, loop.create_future())
        self._queue.append(request)
        self._queued_cost += total
        self.pending += total
        self.requests += 1
        self._recently_concurrent = max(self._recently_concurrent, self.requests)
        self._arrived.set()
        if self._is_batch_ready():
            self._batch_ready.set()
        try:
            return await request.future
        finally:
            self._withdraw(request)

    def seconds_left(self) -> int:
        """Estimate the time until all pending items are done, in whole seconds, at least 1."""
        if math.isnan(self._speed):
            return 1
        return max(1, min(MAX_RETRY_SECONDS, math.ceil(self.pending / self._speed)))

    def _withdraw(self, request: _Request[Key, Item, Result]) -> None:
        """Remove a request, and its items that have not run if it was cancelled or has failed."""
        rest = sum(request.costs[request.next :])
        if request.next < len(request.items):
            self._queue.remove(request)
        request.next = len(request.items)
        self._queued_cost -= rest
        self.pending -= rest
        self.requests -= 1

    async def _run_batches(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            await self._wait_for_batch()
            if batch := self._take_batch():
                await self._run_batch(batch)

    def _is_batch_ready(self) -> bool:
        """Whether a batch is full, or as many requests wait as were recently concurrent."""
        return self._queued_cost >= self._budget or len(self._queue) >= math.ceil(self._recently_concurrent)

    async def _wait_for_batch(self) -> None:
        """Wait shortly for further requests, unless a batch is ready."""
        if self._wait <= 0 or self._closing or self._is_batch_ready():
            return
        self._batch_ready.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._batch_ready.wait(), self._wait)

    def _take_batch(self) -> list[tuple[_Request[Key, Item, Result], int]]:
        """Take the next batch from the queue: requests of the first one's key, an item of each in turn."""
        batch: list[tuple[_Request[Key, Item, Result], int]] = []
        others: list[_Request[Key, Item, Result]] = []
        spent = 0
        while self._queue:
            request = self._queue.popleft()
            if batch and request.key != batch[0][0].key:
                others.append(request)
                continue
            cost = request.costs[request.next]
            if batch and spent + cost > self._budget:
                self._queue.appendleft(request)
                break
            batch.append((request, request.next))
            spent += cost
            request.next += 1
            if request.next < len(request.items):
                self._queue.append(request)
        self._queue.extendleft(reversed(others))
        self._queued_cost -= spent
        return batch

    async def _run_batch(self, batch: list[tuple[_Request[Key, Item, Result], int]]) -> None:
        self._recently_concurrent = max(self.requests, FORGETTING * self._recently_concurrent)
        start = time.perf_counter()
        items = [request.items[index] for request, index in batch]
        results: Sequence[Result | Exception]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, batch[0][0].key, items)
        except Exception as error:
            results = [error] * len(batch)
        seconds = time.perf_counter() - start
        cost = sum(request.costs[index] for request, index in batch)
        self.pending -= cost
        speed = cost / max(seconds, 1e-6)
        self._speed = speed if math.isnan(self._speed) else self._speed + SPEED_SMOOTHING * (speed - self._speed)
        for (request, index), result in zip(batch, results, strict=True):
            request.deliver(index, result)
        self._observe(len(batch), len({id(request) for request, _ in batch}), cost, seconds)
