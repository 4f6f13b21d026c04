"""One failing item among many: the others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def isolate_failures(
    run: Callable[[list[Item]], Sequence[Result]],
    items: list[Item],
    kinds: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> list[Result | Exception]:
    """Run items together; after a failure of such a kind run halves, until only items that fail alone have an error."""
    if not items:
        return []
    try:
        return [*run(items)]
    except kinds as error:
        if len(items) == 1:
            return [error]
    # Outside the handler: the exception keeps the failed pass's tensors alive.
    middle = len(items) // 2
    return [*isolate_failures(run, items[:middle], kinds), *isolate_failures(run, items[middle:], kinds)]
