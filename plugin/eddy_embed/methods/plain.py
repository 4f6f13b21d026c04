"""The text as it is: the baseline of every paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.build import build
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Pool, Readout

if TYPE_CHECKING:
    from eddy_embed.methods.method import Method


INSTRUCTED = {"bare": "{instruction} {prompt}", "htp": "{instruction} Text: {prompt}"}


def plain(pool: Pool | None = None, exit: int | None = -1, preset: str = "bare") -> Method:
    """The text as it is, pooled.

    Args:
        pool: "mean", "last", "hybrid", "weighted" (SGPT, Muennighoff 2022) or, for encoders, "cls". None: as the model
            was trained to be read, if it is an embedding model, else the mean.
        exit: Layer read, counted over h[0] .. h[L].
        preset: What stands between an instruction and the text: a blank, "bare", or " Text: ", as the HTP paper runs
            its models, "htp".

    Raises:
        InvalidParameter: The pooling or the preset is unknown.
    """
    if preset not in INSTRUCTED:
        raise InvalidParameter(f"plain: preset={preset!r} is unknown; choose one of {', '.join(INSTRUCTED)}")
    given = {"pool": pool, "exit": exit, "preset": preset}
    layout = Layout(instructed=INSTRUCTED[preset])
    return build(plain, given, layout=layout, readout=Readout(exit=exit, pool=pool))
