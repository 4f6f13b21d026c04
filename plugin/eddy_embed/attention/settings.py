"""What a method asks of attention, and what a layer does inside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from eddy_embed.errors import InvalidParameter

Kernel = Literal["fused", "blocked"]


@dataclass(frozen=True)
class Temperature:
    """What divides the logits of every layer before the softmax (TempScale, Zhou et al. 2025, equation 8).

    Attributes:
        tau: Temperature, above 0 and at most 1; lower is sharper.
        query_tau: Temperature for queries, None for the same.
        rule: "fixed": divide by tau. "log": multiply by ln n instead. "rate": multiply by 1 + rate * ln n instead;
            n is the number of tokens of the sequence. The last two are the paper's comparison rows.
        rate: The rate of that rule.
    """

    tau: float = 0.8
    query_tau: float | None = None
    rule: Literal["fixed", "log", "rate"] = "fixed"
    rate: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values outside their range.

        Raises:
            InvalidParameter: With the value.
        """
        for name, value in (("tau", self.tau), ("query_tau", self.query_tau)):
            if value is not None and not 0 < value <= 1:
                raise InvalidParameter(f"tempscale: {name}={value} must be above 0 and at most 1")
        if self.rule not in ("fixed", "log", "rate"):
            raise InvalidParameter(f"tempscale: rule={self.rule!r} is unknown; choose fixed, log or rate")
        if not 0 <= self.rate < float("inf"):
            raise InvalidParameter(f"tempscale: rate={self.rate} must not be negative")
        if self.rate and self.rule != "rate":
            raise InvalidParameter(f"tempscale: rate={self.rate} has no effect with rule={self.rule}; add rule=rate")

    def factor(self, length: int, query: bool) -> float:
        """The factor on the logits of a sequence of so many tokens."""
        if self.rule == "log":
            return math.log(length)
        if self.rule == "rate":
            return 1 + self.rate * math.log(length)
        return 1 / (self.query_tau if query and self.query_tau is not None else self.tau)


@dataclass(frozen=True)
class Reroute:
    """Keys and values of the last tokens, as further entries that every query may attend to (KV-Embedding).

    Attributes:
        layers: Layers whose attention gets the entries, counted from 1; None: the backbone's default, filled in
            before anything runs.
        bias: Added to the logits of the entries, after everything else; minus infinity switches them off.
        entries: How many of the last tokens.
    """

    layers: tuple[int, ...] | None
    bias: float = 1.0
    entries: int = 1

    def __post_init__(self) -> None:
        """Refuse values outside their range.

        Raises:
            InvalidParameter: With the value.
        """
        if any(layer < 1 for layer in self.layers or ()):
            raise InvalidParameter(f"kv: layers={self.layers} are counted from 1")
        if math.isnan(self.bias) or self.bias == math.inf:
            raise InvalidParameter(f"kv: bias={self.bias} must be a number, or -inf for none")
        if self.entries < 1:
            raise InvalidParameter(f"kv: n={self.entries} must be at least 1")


@dataclass(frozen=True)
class Traits:
    """What a layer does inside its attention, as the layer itself declared it on a first pass.

    Attributes:
        scale: Factor on the logits.
        cap: Soft cap c of c * tanh(logit / c), None for none.
        window: Keys that a query sees, itself included, None for all.
    """

    scale: float
    cap: float | None
    window: int | None

    @property
    def kernel(self) -> Kernel:
        """The kernel that computes this layer exactly."""
        return "fused" if self.cap is None and self.window is None else "blocked"
