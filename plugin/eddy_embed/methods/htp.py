"""Hierarchical Token Prepending (Ding et al. 2025): summaries of blocks before the blocks themselves."""

from __future__ import annotations

from dataclasses import replace

from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.parts.layout import Blocks, Layout
from eddy_embed.parts.readout import Readout
from eddy_embed.utils.checks import check_choice


@register
def htp(
    k: int = 1,
    range: tuple[int, int] | None = None,
    exit: int | None = None,
    pool: str | None = None,
    local_only: bool = False,
    global_only: bool = False,
    every: int | str | None = None,
    source: str = "end",
    released_text: bool = False,
    seed: int = 0,
) -> Method:
    """Placeholders by blocks of sentences get the state of their block's last token; mean over the text.

    Equation 3 (layout) and sections 4.2 to 4.4.

    Args:
        k: Sentences of a block.
        range: (s, e): copies on h[s] .. h[e-1]. None: table 9's for the backbone, else [1, min(7, max(2, L/4))].
        exit: Layer read, counted over h[0] .. h[L]. None: the published one for the backbone, else -2.
        pool: "mean": over the text's tokens (released). "all": over placeholders too (section 4.4 read literally),
            after one more copy if the exit lies inside the range. None: the pooling of an embedding model, else the
            mean.
        local_only: Only the placeholder before each block (table 4).
        global_only: Only those before all blocks (table 4).
        every: Tokens of a block instead (section 5.4); "auto": the document's tokens divided by its sentences.
        source: The token whose state the placeholders of a block get. "end": the last that overlaps the block's
            characters (the paper). "released": the one before the next placeholder; for the last block the first one
            after the text, an end token if nothing else follows.
        released_text: Whether the text is rewritten as in the authors' code: a period after each sentence unless it
            ends in one of . ! ? ", one blank between two.
        seed: Seed of the placeholders' values.

    Raises:
        InvalidParameter: A value is outside its range.
    """
    given = dict(locals())
    if pool is not None:
        check_choice("htp: pool", pool, ("mean", "all"))
    blocks = Blocks(k, every, local=not global_only, summary=not local_only, source=source)  # type: ignore[arg-type]
    layout = Layout(blocks=blocks)
    if released_text:
        layout = replace(layout, revision="sentences", start=None)
    readout = Readout(exit=exit, pool=None if pool is None else "mean", placeholders=pool == "all")
    return build(htp, given, layout=layout, rewire=CopyEdges(range, seed), readout=readout)
