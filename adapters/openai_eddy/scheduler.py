"""Requests to batches: what waits, in whose turn, in which company, and what is refused. Knows no model and no HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")

LONGEST_RETRY = 60
"""Seconds after which a refused client may ask again at the latest: by then the queue may have emptied."""
NEW = 0.3
"""Share of the last batch in the running mean of the speed."""
LATELY = 1.0
"""Seconds for which the most requests that were there at once are remembered, at least."""


class Overloaded(Exception):
    """More waits already than may.

    Attributes:
        retry_after: Whole seconds until what waits now will be done, as far as the speed so far tells.
    """

    def __init__(self, retry_after: int) -> None:
        """Say when to come back."""
        super().__init__(f"the queue is full; ask again in {retry_after} s")
        self.retry_after = retry_after


class Closing(Exception):
    """Nothing is accepted any more."""


class ItemFailed(Exception):
    """One item of a request failed; the reason is the exception's `__cause__`.

    Attributes:
        index: Which item of the request.
    """

    def __init__(self, index: int) -> None:
        """Name the item."""
        super().__init__(f"item {index} failed")
        self.index = index


@dataclass(frozen=True)
class Batch:
    """What ran together.

    Attributes:
        items: Number of items.
        requests: Number of requests that they belong to.
        cost: Sum of their costs.
        seconds: How long it took.
    """

    items: int
    requests: int
    cost: int
    seconds: float


@dataclass(eq=False)
class _Ticket(Generic[Key, Item, Result]):
    """A request: its items in order, the next one to run, and where the results go."""

    key: Key
    items: Sequence[Item]
    costs: Sequence[int]
    future: asyncio.Future[list[Result]]
    next: int = 0
    done: int = 0
    results: dict[int, Result] = field(default_factory=dict)


class _Peak:
    """The most requests that were there at once, lately."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._now, self._before = 0, 0

    @property
    def most(self) -> int:
        return max(self._now, self._before)

    def see(self, count: int, at: float) -> None:
        age = at - self._since
        if age > LATELY:
            self._before = self._now if age <= 2 * LATELY else 0
            self._now, self._since = 0, at
        self._now = max(self._now, count)


class Scheduler(Generic[Key, Item, Result]):
    """Runs the items of many requests together, in one worker thread, and gives each request its own results.

    A batch takes one item of each waiting request in turn, so a short request is not held up by a long one, until the
    budget is full. Only items of one key go together. Ahead of a batch that is not full it waits shortly for company,
    if there was more of it lately: clients that were answered together ask again together, and stay together if the
    first of them is not sent on alone. Who asks alone is not held up.

    Attributes:
        pending: Cost of what was accepted and is not done.
        requests: Requests that were accepted and are not done.
    """

    def __init__(
        self,
        run: Callable[[Key, list[Item]], Sequence[Result | Exception]],
        *,
        budget: int,
        wait: float,
        most: int,
        observe: Callable[[Batch], None] = lambda _: None,
    ) -> None:
        """Take what runs a batch; nothing runs before `start`.

        Args:
            run: Called in the worker thread; gives each item its result or its error, in their order.
            budget: Most cost in a batch; a costlier item runs alone.
            wait: Seconds to wait, at most, for as many requests as there were at once lately.
            most: Most cost that may be pending; a request that exceeds it by itself is accepted when nothing is.
            observe: Told of each batch.
        """
        self._run = run
        self._budget = budget
        self._wait = wait
        self._most = most
        self._observe = observe
        self._turns: deque[_Ticket[Key, Item, Result]] = deque()
        self._queued = 0
        self._peak = _Peak()
        self.pending = 0
        self.requests = 0
        self._speed = math.nan
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        self._arrived, self._complete = asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy-model")
        self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Accept nothing more, finish what was accepted, and end the thread."""
        self._closing = True
        if self._task is not None:
            self._arrived.set()
            self._complete.set()
            await self._task
            self._thread.shutdown(wait=False)

    async def submit(self, key: Key, items: Sequence[Item], costs: Sequence[int]) -> list[Result]:
        """Run a request. Cancelling this takes back what has not run yet.

        Args:
            key: What its items must have in common with others to go together.
            items: At least one.
            costs: Of each item.

        Returns:
            A result for each item.

        Raises:
            Overloaded: Too much is waiting already.
            Closing: `close` was called.
            ItemFailed: One of the items failed; those behind it may not have run.
        """
        loop = asyncio.get_running_loop()
        total = sum(costs)
        if self._closing:
            raise Closing
        if self.pending and self.pending + total > self._most:
            raise Overloaded(self.seconds_left())
        ticket: _Ticket[Key, Item, Result] = _Ticket(key, items, costs, loop.create_future())
        self._turns.append(ticket)
        self._queued += total
        self.pending += total
        self.requests += 1
        self._peak.see(self.requests, loop.time())
        self._arrived.set()
        if self._gathered():
            self._complete.set()
        try:
            return await ticket.future
        finally:
            self._withdraw(ticket)

    def seconds_left(self) -> int:
        """Whole seconds that what is pending will take, 1 at least."""
        if math.isnan(self._speed):
            return 1
        return max(1, min(LONGEST_RETRY, math.ceil(self.pending / self._speed)))

    def _withdraw(self, ticket: _Ticket[Key, Item, Result]) -> None:
        """Forget what of a request is still waiting: nothing where it was answered, the rest where nobody asks."""
        rest = sum(ticket.costs[ticket.next :])
        if ticket.next < len(ticket.items):
            self._turns.remove(ticket)
        ticket.next = len(ticket.items)
        self._queued -= rest
        self.pending -= rest
        self.requests -= 1

    async def _work(self) -> None:
        while self._turns or not self._closing:
            if not self._turns:
                self._arrived.clear()
                await self._arrived.wait()
            await self._company()
            if batch := self._take():
                await self._do(batch)

    def _gathered(self) -> bool:
        """Whether a batch is full, or as many wait as were there at once lately."""
        return self._queued >= self._budget or len(self._turns) >= self._peak.most

    async def _company(self) -> None:
        """Let others join what waits, for a moment."""
        if self._wait <= 0 or self._closing or self._gathered():
            return
        self._complete.clear()
        try:
            await asyncio.wait_for(self._complete.wait(), self._wait)
        except asyncio.TimeoutError:
            return

    def _take(self) -> list[tuple[_Ticket[Key, Item, Result], int]]:
        """Items of the next batch: of the first request's key, one of each request in turn."""
        taken: list[tuple[_Ticket[Key, Item, Result], int]] = []
        others: list[_Ticket[Key, Item, Result]] = []
        spent = 0
        while self._turns:
            ticket = self._turns.popleft()
            if taken and ticket.key != taken[0][0].key:
                others.append(ticket)
                continue
            cost = ticket.costs[ticket.next]
            if taken and spent + cost > self._budget:
                self._turns.appendleft(ticket)
                break
            taken.append((ticket, ticket.next))
            spent += cost
            ticket.next += 1
            if ticket.next < len(ticket.items):
                self._turns.append(ticket)
        self._turns.extendleft(reversed(others))
        self._queued -= spent
        return taken

    async def _do(self, batch: list[tuple[_Ticket[Key, Item, Result], int]]) -> None:
        begun = time.perf_counter()
        items = [ticket.items[index] for ticket, index in batch]
        results: Sequence[Result | Exception]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, batch[0][0].key, items)
        except Exception as error:
            results = [error] * len(batch)
        seconds = time.perf_counter() - begun
        cost = sum(ticket.costs[index] for ticket, index in batch)
        self.pending -= cost
        speed = cost / max(seconds, 1e-6)
        self._speed = speed if math.isnan(self._speed) else self._speed + NEW * (speed - self._speed)
        for (ticket, index), result in zip(batch, results, strict=True):
            _deliver(ticket, index, result)
        self._observe(Batch(len(batch), len({id(ticket) for ticket, _ in batch}), cost, seconds))


def _deliver(ticket: _Ticket[Key, Item, Result], index: int, result: Result | Exception) -> None:
    if ticket.future.done():  # its client is gone, or an item before this one failed
        return
    if isinstance(result, Exception):
        failed = ItemFailed(index)
        failed.__cause__ = result
        ticket.future.set_exception(failed)
        return
    ticket.results[index] = result
    ticket.done += 1
    if ticket.done == len(ticket.items):
        ticket.future.set_result([ticket.results[at] for at in range(len(ticket.items))])
