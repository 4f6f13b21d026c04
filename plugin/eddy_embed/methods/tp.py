"""Token Prepending (Fu et al. 2024): a token before the text gets the sequence's last state in the next layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.plain import plain
from eddy_embed.methods.prompts import cot, echo, knowledge, metaeol, prompteol
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout
from eddy_embed.utils.checks import check_count

_PROMPTS: tuple[Callable[..., Method], ...] = (plain, prompteol, cot, knowledge, metaeol, echo)
PROMPTS = {function.__name__: function for function in _PROMPTS}


@register
def tp(
    prompt: str = "plain",
    range: tuple[int, int] | None = None,
    exit: int | None = None,
    placeholders: int = 1,
    source: str = "last",
    released_text: bool = False,
    seed: int = 0,
    init: str = "scaled",
) -> Method:
    """A placeholder before the text gets the last token's state, layer after layer.

    Section 4.2 and figure 2 of the paper; layers counted as its released code does, one less than in its equation,
    where an ending layer k of 8 is range (1, 8). Over `plain`, with mean pooling, it is the papers' "TP w. Mean".

    Args:
        prompt: The wording and readout: "plain", "prompteol", "cot", "knowledge", "metaeol" or "echo"; or a wording of
            your own with `{text}`, read at its last token, where `{placeholder}` says where placeholders stand.
        range: (s, e): copies on h[s] .. h[e-1]. None: the published one for the backbone, or [1, min(7, max(2, L/4))].
        exit: Layer read, counted over h[0] .. h[L]. None: the published one for the backbone, else -2.
        placeholders: Number of placeholders that get the state.
        source: The token whose state they get: the sequence's "last", or the last of the "text".
        released_text: Whether the text is rewritten as in the authors' code: a period after it unless it ends in one
            of . ? " ', single quotation marks for double ones, a period for a question mark at its end.
        seed: Seed of the placeholders' values.
        init: These values, up to the first copy (table 4): "scaled", Gaussian and as spread as the model's embeddings;
            "gaussian", of deviation 1; "uniform" from 0 to 1; "zeros"; "ones"; or "space", the embedding of a blank.

    Raises:
        InvalidParameter: The prompt, the source or the values are unknown, or there is no placeholder.
    """
    given = dict(locals())
    if prompt not in PROMPTS and "{" not in prompt:
        raise InvalidParameter(
            f"tp: prompt={prompt!r} is unknown; choose one of {', '.join(PROMPTS)}, or write a wording with {{text}}"
        )
    check_count("tp: placeholders", placeholders)
    worded = {"template": prompt} if prompt not in PROMPTS else {}
    base = PROMPTS[prompt](exit=exit) if not worded else Method(readout=Readout(exit=exit, pool="last"))
    layout = base.layout or Layout()
    if released_text:
        layout = replace(layout, revision="quoted", start=None)
    layout = replace(layout, placeholders=placeholders, source=source, **worded)  # type: ignore[arg-type]
    rewire = CopyEdges(range, seed, init)  # type: ignore[arg-type]
    return build(tp, given, layout=layout, rewire=rewire, readout=base.readout)
