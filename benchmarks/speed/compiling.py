"""Layers that run as torch.compile makes them, over layers as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed import Embedder
from speed.timing import embedding

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(model: Any, tokenizer: Any, sorts: dict[str, list[str]], rounds: int) -> Iterator[dict[str, Any]]:
    """Ratios of times, for texts of each sort.

    Args:
        model: As Eddy loads one by name.
        tokenizer: Its tokenizer.
        sorts: Texts by name.
        rounds: Pairs.
    """
    fast, own = (Embedder(model, tokenizer=tokenizer, method="plain:exit=-1", compile=each) for each in (True, False))
    for sort, texts in sorts.items():
        yield {"sort": sort, "texts": len(texts), "time": embedding(fast, own, texts, rounds).row()}
