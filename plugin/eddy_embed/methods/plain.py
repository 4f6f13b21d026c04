"""The text as it is: the baseline of every paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.layout import Layout
from eddy_embed.methods.build import build
from eddy_embed.readout import Pool, Readout

if TYPE_CHECKING:
    from eddy_embed.method import Method


def plain(pool: Pool = "mean", exit: int | None = -1) -> Method:
    """The text as it is, pooled.

    Args:
        pool: "mean", "last", "hybrid" or "weighted" (SGPT, Muennighoff 2022).
        exit: Layer read, counted over h[0] .. h[L].
    """
    return build(plain, {"pool": pool, "exit": exit}, layout=Layout(), readout=Readout(exit=exit, pool=pool))
