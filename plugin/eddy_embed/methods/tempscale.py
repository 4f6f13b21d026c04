"""TempScale (Zhou et al. 2025): a sharper softmax in every layer, against the collapse of long texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.attention import Temperature
from eddy_embed.methods.build import build

if TYPE_CHECKING:
    from eddy_embed.method import Method


def tempscale(tau: float = 0.8, query_tau: float | None = None, rule: str = "fixed", rate: float = 0.0) -> Method:
    """Every layer's logits divided by a temperature, whatever the rest of the method: join it to another.

    Equation 8 of the paper, which tests it on encoders; on decoders it is our extension.

    Args:
        tau: Temperature, above 0 and at most 1.
        query_tau: Temperature for queries, None for the same.
        rule: "fixed", or one of the paper's comparison rows: "log" multiplies by ln n, "rate" by 1 + rate * ln n.
        rate: The rate of that rule.
    """
    given = {"tau": tau, "query_tau": query_tau, "rule": rule, "rate": rate}
    return build(tempscale, given, temperature=Temperature(tau, query_tau, rule, rate))  # type: ignore[arg-type]
