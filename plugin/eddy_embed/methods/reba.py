"""ReBA (Duan et al. 2025): the text again, and its first copy's states refined by the attention paid to them."""

from __future__ import annotations

from typing import Literal, cast

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.attention import BackwardAttention
from eddy_embed.parts.layout import Layout, Repetition
from eddy_embed.parts.readout import Readout
from eddy_embed.utils.checks import check_choice


@register
def reba(
    k: int = 2,
    pool: str = "last",
    joiner: str | None = None,
    piece: int | None = None,
    variant: str = "paper",
    exit: int | None = -1,
    last_layer_only: bool = False,
) -> Method:
    """The text repeated; each token of the first copy becomes a sum over later states, weighted by their attention.

    Section 3: e_i is the sum of A[i, j] * v_j over j >= i (equation 4), with A the largest symmetrised attention of
    any layer and head (algorithm 1).

    Args:
        k: Number of copies of the text.
        pool: "last": e of the first copy's last token. "mean": the mean of all e (equation 5), which also gives
            vectors for parts of a text.
        joiner: String between the copies, which are then tokenized together; None: the text's ids are repeated.
        piece: Tokens of a piece, for long texts (section 6): the text is read once, and each piece repeated by itself.
        variant: "paper", or "released" for what the authors' code does: weights that sum to 1, and for "last" the
            last copy's last token, over all states before it; truncation, if chosen, cuts the repeated text.
        exit: Layer read, counted over h[0] .. h[L]; attention is that of the layers up to it.
        last_layer_only: Whether it is that of the last of these layers alone (appendix A.1.3).

    Raises:
        InvalidParameter: A value is outside its range, or two do not go together.
    """
    given = dict(locals())
    check_choice("reba: pool", pool, ("last", "mean"))
    check_choice("reba: variant", variant, ("paper", "released"))
    released = variant == "released"
    if released and piece is not None:
        raise InvalidParameter(f"reba: piece={piece} is not in the released code; leave out piece or variant=released")
    read = cast("Literal['last', 'mean']", pool)
    return build(
        reba,
        given,
        layout=Layout(repetition=Repetition(k, joiner, piece, cut=released), start=None if released else "auto"),
        watch=BackwardAttention(released and pool == "last", released, last_layer_only),
        readout=Readout(exit=exit, pool=read, text_end=not released, half=released and pool == "mean"),
    )
