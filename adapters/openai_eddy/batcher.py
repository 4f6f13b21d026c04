"""One queue for the texts of many requests, which run in batches. Knows neither models nor HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class _Request:
    key: Any
    texts: Sequence[str]
    costs: Sequence[int]
    future: asyncio.Future[list[Any]]
    next: int = 0  # index of the first text that is in no batch yet
    results: dict[int, Any] = field(default_factory=dict)


class Batcher:
    """Runs the texts of many requests in batches in one worker thread, and gives each request its own results.

    A batch takes one text of each waiting request in turn until the budget is full, so a long request does not hold up
    a short one. Texts of a batch have the same key. While several clients ask, a batch that is not full waits as long
    as requests keep coming; a client that asks alone does not wait.

    Args:
        run: Runs a batch in the worker thread; returns the result or error of each text, in their order.
        budget: Maximum cost of a batch; a costlier text runs alone.
        wait: Seconds without a new request after which a batch is complete.
    """

    def __init__(self, run: Callable[[Any, list[str]], Sequence[Any]], budget: int, wait: float) -> None:
        self._run, self._budget, self._wait = run, budget, wait
        self._queue: deque[_Request] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy-model")
        self._task: asyncio.Task[None] | None = None
        self._together = 1  # requests in the last batch
        self.pending = 0  # total cost of accepted texts that are not done

    async def submit(self, key: Any, texts: Sequence[str], costs: Sequence[int]) -> list[Any]:
        """Return the result or error of each text; cancelling the call withdraws those that have not run yet."""
        request = _Request(key, texts, costs, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self.pending += sum(costs)
        if self._task is None:
            self._task = asyncio.create_task(self._run_batches())
        try:
            return await request.future
        finally:
            if request.next < len(texts):
                self._queue.remove(request)
                self.pending -= sum(costs[request.next :])

    async def _run_batches(self) -> None:
        while self._queue:
            seen = 0
            while seen < len(self._queue) and max(self._together, len(self._queue)) > 1 and self.pending < self._budget:
                seen = len(self._queue)
                await asyncio.sleep(self._wait)
            if batch := self._take():
                await self._run_batch(batch)
        self._task = None

    def _take(self) -> list[tuple[_Request, int]]:
        """Take the next batch from the queue: requests of the key of the first one, a text of each in turn."""
        batch: list[tuple[_Request, int]] = []
        key = self._queue[0].key if self._queue else None
        alike, spent = deque(request for request in self._queue if request.key == key), 0
        while alike and (not batch or spent + alike[0].costs[alike[0].next] <= self._budget):
            request = alike.popleft()
            batch.append((request, request.next))
            spent += request.costs[request.next]
            request.next += 1
            if request.next < len(request.texts):
                alike.append(request)
        self._queue = deque(request for request in self._queue if request.key != key) + alike
        return batch

    async def _run_batch(self, batch: list[tuple[_Request, int]]) -> None:
        self._together = len({id(request) for request, _ in batch})
        loop, texts = asyncio.get_running_loop(), [request.texts[index] for request, index in batch]
        try:
            results: Sequence[Any] = await loop.run_in_executor(self._thread, self._run, batch[0][0].key, texts)
        except Exception as error:
            results = [error] * len(batch)
        for (request, index), result in zip(batch, results, strict=True):
            self.pending -= request.costs[index]
            request.results[index] = result
            if len(request.results) == len(request.texts) and not request.future.done():
                request.future.set_result([request.results[at] for at in range(len(request.texts))])
