"""The beginnings of texts, for clients that ask for no more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eddy_embed.parts.layout import TextRole

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder


def first_tokens(embedder: Embedder, texts: Sequence[str], most: int | None, *, role: TextRole) -> list[str]:
    """Cut each text after so many of its tokens; None: after as many as one pass takes beside what is around them."""
    tokenizer, planner = embedder._pipeline.planner.tokenizer, embedder._pipeline.planner
    if most is not None:
        return [tokenizer.first(text, most) for text in texts]

    def length(text: str) -> int:
        return planner.lengths([text], role)[0]

    def fitting(text: str) -> str:
        start = tokenizer.first(text, embedder.max_length)
        if length(start) <= embedder.max_length:
            return start
        sizes = range(1, embedder.count_tokens(start))
        size = bisect_right(sizes, embedder.max_length, key=lambda size: length(tokenizer.first(start, size)))
        return tokenizer.first(start, max(1, size))

    return [fitting(text) for text in texts]
