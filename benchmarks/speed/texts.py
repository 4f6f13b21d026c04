"""Texts of a wanted size."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from texts import story

if TYPE_CHECKING:
    from eddy_embed import Embedder

TOLERANCE = 0.01
MIXED = (5, 1500)
"""Least and most words of a mixed text."""


def positions(embedder: Embedder, text: str) -> int:
    """Tokens that run through the model for a text, whatever the method adds."""
    return embedder.explain(text).sequence_tokens


def text_of(embedder: Embedder, wanted: int) -> str:
    """A story whose sequence has so many tokens under the embedder's method, to 1 %.

    Raises:
        ValueError: There is none, since the method adds or splits too much.
    """
    words = story(2 * wanted).split(" ")
    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        if positions(embedder, " ".join(words[:middle])) < wanted:
            low = middle + 1
        else:
            high = middle
    text = " ".join(words[:low])
    found = positions(embedder, text)
    if abs(found - wanted) > max(4, TOLERANCE * wanted):
        raise ValueError(f"{embedder.method}: no text gives {wanted} tokens, the nearest one {found}")
    return text


def mixed(count: int, seed: int = 0) -> list[str]:
    """Texts of 5 to 1,500 words, log-normal: many short ones, a few long ones."""
    draw = random.Random(seed)
    lengths = [max(MIXED[0], min(MIXED[1], round(draw.lognormvariate(4.6, 1.0)))) for _ in range(count)]
    return [_exactly(length, number) for number, length in enumerate(lengths)]


def uniform(count: int, words: int) -> list[str]:
    """Texts of one length."""
    return [_exactly(words, number) for number in range(count)]


def _exactly(words: int, seed: int) -> str:
    return " ".join(story(words, seed).split()[:words])
