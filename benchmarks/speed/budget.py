"""How many tokens should share a pass: the same texts in passes of several sizes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eddy_embed import Embedder
from speed.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 8192
BUDGETS = (512, 1024, 2048, 4096)


def rows(model: Any, tokenizer: Any, texts: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Time of each size over that of the largest."""
    own = partial(Embedder, model, tokenizer=tokenizer, method="plain:exit=-1")
    base = own(batch_tokens=LARGEST)
    for budget in BUDGETS:
        one = own(batch_tokens=budget)
        found = ratio(partial(one.encode_document, texts), partial(base.encode_document, texts), rounds)
        yield {"batch_tokens": budget, "over": LARGEST, "time": found.row()}
