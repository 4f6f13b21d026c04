"""TempScale (Zhou et al. 2025): a sharper softmax in every layer, against the collapse of long texts."""

from __future__ import annotations

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.attention import Temperature

TAU = 0.8
"""The paper's default."""


@register
def tempscale(
    tau: float | None = None,
    query_tau: float | None = None,
    lengths: str | None = None,
    rule: str = "fixed",
    rate: float = 0.0,
) -> Method:
    """Every layer's logits divided by a temperature, whatever the rest of the method: join it to another.

    Equation 8 of the paper, which tests it on encoders; on decoders it is our extension.

    Args:
        tau: Temperature, above 0 and at most 1. None: 0.8, unless lengths or a rule decide.
        query_tau: Temperature for queries, None for the same.
        lengths: Temperatures by the number of tokens of the sequence, such as "1:1,512:0.9,2048:0.8": 1 below 512
            tokens, 0.9 from there, 0.8 from 2,048. The paper finds lower ones best for longer texts (appendix E.6);
            texts with different temperatures get vectors that are made differently.
        rule: "fixed", or one of the paper's comparison rows (appendix F.3): "log" multiplies by ln n, also with a
            temperature, "rate" by 1 + rate * ln n without one, with n the number of tokens of the sequence, prompt and
            placeholders included.
        rate: The rate of that rule.

    Raises:
        InvalidParameter: A value is outside its range, or would have no effect.
    """
    parameters = dict(locals())
    table = () if lengths is None else _table(lengths)
    if tau is None and not table and rule == "fixed":
        tau = TAU
    return build(tempscale, parameters, temperature=Temperature(tau, query_tau, table, rule, rate))  # type: ignore[arg-type]


def _table(lengths: str) -> tuple[tuple[int, float], ...]:
    rows = []
    for row in lengths.split(","):
        first, _, tau = row.partition(":")
        try:
            rows.append((int(first), float(tau)))
        except ValueError:
            raise InvalidParameter(
                f"tempscale: lengths={lengths!r} must be pairs of a number of tokens and a temperature, such as "
                "1:1,512:0.9,2048:0.8"
            ) from None
    return tuple(rows)
