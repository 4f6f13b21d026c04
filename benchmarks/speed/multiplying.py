"""Time oneDNN's matrix products against MKL's, prepacked weights against stored ones, bfloat16 against float32."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from eddy_embed import Embedder
from eddy_embed.model.speed import onednn_linear
from speed.timing import embedding

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(model: Any, halved: Any, tokenizer: Any, sorts: dict[str, list[str]], rounds: int) -> Iterator[dict[str, Any]]:
    """Ratios of times, for texts of each sort.

    Args:
        model: In float32.
        halved: The same shape in bfloat16.
        tokenizer: Of both.
        sorts: Texts by name.
        rounds: Pairs.

    Raises:
        SystemExit: Torch has no oneDNN here.
    """
    if not onednn_linear.available():
        raise SystemExit("this build of torch has no oneDNN to multiply with, or no other library beside it")
    own = partial(Embedder, tokenizer=tokenizer, method="plain:exit=-1")
    made = {}
    for by_onednn in (True, False):
        with mock.patch.object(onednn_linear, "slower_in_mkl", return_value=by_onednn):
            made[by_onednn] = own(model)
    laid = []
    pairs = [("oneDNN over MKL", made[True], made[False])]
    for kind, each in (("float32", model), ("bfloat16", halved)):
        other = copy.deepcopy(each)
        onednn_linear.prepack(other)
        laid.append(own(other))
        if any(tensor.is_mkldnn for tensor in other.parameters()):
            pairs.append((f"{kind}, prepacked over as stored", laid[-1], own(each)))
    pairs.append(("bfloat16 over float32", laid[1], laid[0]))
    for sort, texts in sorts.items():
        for what, one, other in pairs:
            yield {"sort": sort, "texts": len(texts), "what": what, "time": embedding(one, other, texts, rounds).row()}
