"""A bias on the logits by the distance of two tokens, kept as one number for each distance and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def between(bias: torch.Tensor, first: int, end: int, seen: int, last: int) -> torch.Tensor:
    """The bias of some queries and keys.

    Args:
        bias: For keys from n - 1 tokens before their query to n - 1 behind it, shape (heads, 2n - 1).
        first: The first query.
        end: The one after the last.
        seen: The first key.
        last: The one after the last.

    Returns:
        Shape (heads, end - first, last - seen).
    """
    same = bias.shape[1] // 2
    # Rows of neighbouring queries are the same numbers, moved by one: the last query's begin furthest to the left.
    needed = bias[:, same + seen - end + 1 : same + last - first]
    return needed.unfold(1, last - seen, 1).flip(1)
