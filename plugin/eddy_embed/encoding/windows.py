"""A text longer than the model's window: which sentences each pass reads, and which tokens it answers for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy_embed.errors import TextTooLong

if TYPE_CHECKING:
    from collections.abc import Sequence

OVERLAP = 8
"""Consecutive windows share at most 1/OVERLAP of the budget."""


@dataclass(frozen=True)
class Window:
    """Units `first` .. `last`, both included, read in one pass."""

    first: int
    last: int


def plan(costs: Sequence[int], budget: int) -> list[Window]:
    """Ranges of whole units that fit the budget and overlap by whole units.

    Args:
        costs: Tokens that each unit takes in a window, its placeholders included.
        budget: Most tokens that the units of a window may take together.

    Returns:
        Windows in order, which cover every unit. Each begins and ends later than the one before it, and no unit is in
        more than two.

    Raises:
        TextTooLong: One unit alone exceeds the budget.
    """
    for unit, cost in enumerate(costs):
        if cost > budget:
            raise TextTooLong(f"unit {unit} takes {cost} tokens, more than the {budget} that fit in a window")
    windows: list[Window] = []
    first = 0
    while first < len(costs):
        last, total = first, costs[first]
        while last + 1 < len(costs) and total + costs[last + 1] <= budget:
            last += 1
            total += costs[last]
        windows.append(Window(first, last))
        if last + 1 == len(costs):
            break
        # The next window must take in unit last+1, so the overlap shares the budget with it.
        room = min(budget // OVERLAP, budget - costs[last + 1])
        earliest = windows[-2].last + 1 if len(windows) > 1 else 0
        first = last + 1
        while first - 1 > max(windows[-1].first, earliest - 1) and room >= costs[first - 1]:
            first -= 1
            room -= costs[first]
    return windows
