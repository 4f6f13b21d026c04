"""Echo (Springer et al. 2024): the text twice, the second copy read."""

from __future__ import annotations

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout

LAYOUTS = {
    "rewrite": Layout("Rewrite the sentence: {text}, rewritten sentence: {text}"),
    "released": Layout(
        "Document:{text}\nDocument again:{text}", "Query:{text}\nQuery again:{text}", end=True, start=None
    ),
    "htp": Layout("{text}{text}", "Query: {text} Query again: {text}"),
    "bare": Layout("{text} {text}"),
}


def echo(preset: str = "rewrite", exit: int | None = -1) -> Method:
    """The text twice, mean over the second copy, whose tokens have seen the whole text.

    A model that was trained to be read at its last token is read there instead.

    Args:
        preset: Wording: "rewrite" (the paper's), "released" (its code's, which also pools the end token), "htp" (as
            the HTP paper runs it), "bare" (nothing but the text, a space, the text).
        exit: Layer read, counted over h[0] .. h[L].

    Raises:
        InvalidParameter: The preset is unknown.
    """
    if preset not in LAYOUTS:
        raise InvalidParameter(f"echo: preset={preset!r} is unknown; choose one of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[preset]
    readout = Readout(exit=exit, pool=None, end=layout.end)
    return build(echo, {"preset": preset, "exit": exit}, layout=layout, readout=readout)
