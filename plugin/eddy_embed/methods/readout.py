"""The readout by name, where joined methods bring two or another one is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.build import build
from eddy_embed.readout import Pool, Readout

if TYPE_CHECKING:
    from eddy_embed.method import Method


def readout(pool: Pool = "mean", exit: int | None = -1, placeholders: bool = False, prompt: bool = False) -> Method:
    """Where vectors are read, whatever the methods joined to it would read.

    Args:
        pool: "mean", "last", "hybrid" or "weighted" (SGPT, Muennighoff 2022).
        exit: Layer read, counted over h[0] .. h[L]. None: the published one for the methods and the backbone, else -2.
        placeholders: Whether the mean also covers placeholders.
        prompt: Whether the mean also covers the prompt around the text, an instruction included.

    Raises:
        InvalidParameter: What a mean covers is said, and there is none.
    """
    if pool == "last" and (placeholders or prompt):
        name = "placeholders" if placeholders else "prompt"
        raise InvalidParameter(
            f"readout: {name}=true has no effect with pool=last, which reads one token; leave it out"
        )
    given = {"pool": pool, "exit": exit, "placeholders": placeholders, "prompt": prompt}
    return build(readout, given, readout=Readout(exit, pool, placeholders, prompt), decides=True)
