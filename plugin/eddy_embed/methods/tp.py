"""Token Prepending (Fu et al. 2024): the sequence's last state stands ahead of the text in the next layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.echo import echo
from eddy_embed.methods.method import Method
from eddy_embed.methods.plain import plain
from eddy_embed.methods.prompts import cot, knowledge, metaeol, prompteol
from eddy_embed.methods.registry import build
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.parts.layout import Layout

PROMPTS: dict[str, Callable[..., Method]] = {
    "plain": plain,
    "prompteol": prompteol,
    "cot": cot,
    "knowledge": knowledge,
    "metaeol": metaeol,
    "echo": echo,
}


def tp(
    prompt: str = "plain",
    range: tuple[int, int] | None = None,
    exit: int | None = None,
    placeholders: int = 1,
    source: str = "last",
    released_text: bool = False,
    seed: int = 0,
) -> Method:
    """A placeholder ahead of the text gets the last token's state, layer after layer.

    Section 4.2 and figure 2 of the paper; layers counted as its released code does, one less than in its equation,
    where an ending layer k of 8 is range (1, 8). Over `plain`, with mean pooling, it is the papers' "TP w. Mean".

    Args:
        prompt: The wording and readout it stands on: "plain", "prompteol", "cot", "knowledge", "metaeol" or "echo".
        range: (s, e): copies on h[s] .. h[e-1]. None: the published one for the backbone, or
            [1, min(7, max(2, L/4))].
        exit: Layer read, counted over h[0] .. h[L]. None: the published one for the backbone, else -2.
        placeholders: How many placeholders get the state.
        source: Whose state: the "last" token's of the sequence, or that of the last token of the "text".
        released_text: Whether the text is rewritten as in the authors' code: a period behind it unless it ends in one
            of . ? " ', single quotation marks for double ones, a period for a question mark at its end.
        seed: Seed of the placeholders' values.

    Raises:
        InvalidParameter: The prompt or the source is unknown, or there is no placeholder.
    """
    if prompt not in PROMPTS:
        raise InvalidParameter(f"tp: prompt={prompt!r} is unknown; choose one of {', '.join(PROMPTS)}")
    if placeholders < 1:
        raise InvalidParameter(f"tp: placeholders={placeholders} must be at least 1")
    base = PROMPTS[prompt](exit=exit)
    given = {
        "prompt": prompt,
        "range": range,
        "exit": exit,
        "placeholders": placeholders,
        "source": source,
        "released_text": released_text,
        "seed": seed,
    }
    revision = "quoted" if released_text else None
    layout = replace(base.layout or Layout(), placeholders=placeholders, source=source, revision=revision)  # type: ignore[arg-type]
    return build(tp, given, layout=layout, rewire=CopyEdges(range, seed), readout=base.readout)
