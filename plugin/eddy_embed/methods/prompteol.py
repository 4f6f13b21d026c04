"""PromptEOL (Jiang et al. 2023): the text in one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.layout import Layout
from eddy_embed.methods.build import build
from eddy_embed.readout import Readout

if TYPE_CHECKING:
    from eddy_embed.method import Method

TEMPLATE = 'This sentence : "{text}" means in one word:"'


def prompteol(exit: int | None = -1) -> Method:
    """The text inside a prompt that asks for one word, last token read.

    Args:
        exit: Layer read, counted over h[0] .. h[L].
    """
    return build(prompteol, {"exit": exit}, layout=Layout(TEMPLATE), readout=Readout(exit=exit, pool="last"))
