"""Attention, as a method sets it: a temperature on its logits, extra keys and values, and a record of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.checks import check_choice, check_count

Rule = Literal["fixed", "log", "rate"]


@dataclass(frozen=True)
class Temperature:
    """What divides the logits of every layer before the softmax (TempScale, Zhou et al. 2025, equation 8).

    Its n is the number of tokens of the sequence: of the text, its prompt and its placeholders, without padding.

    Attributes:
        tau: Temperature, above 0 and at most 1; lower is sharper. None: the lengths or the rule decide.
        query_tau: Temperature for queries, None for the same.
        lengths: Rows (n, temperature): the temperature from n tokens on; in order, the first with n = 1.
        rule: "fixed": divide by tau. "log": multiply by ln n, which is 0 for one token and changes nothing there, and
            divide by tau where there is one. "rate": multiply by 1 + rate * ln n instead. The last two are the paper's
            comparison rows (appendix F.3).
        rate: The rate of that rule.

    Raises:
        InvalidParameter: A value is outside its range, or would have no effect.
    """

    tau: float | None = None
    query_tau: float | None = None
    lengths: tuple[tuple[int, float], ...] = ()
    rule: Rule = "fixed"
    rate: float = 0.0

    def __post_init__(self) -> None:
        by_length = [(f"lengths, from {first}", tau) for first, tau in self.lengths]
        for name, value in (("tau", self.tau), ("query_tau", self.query_tau), *by_length):
            if value is not None and not 0 < value <= 1:
                raise InvalidParameter(f"tempscale: {name}={value} must be above 0 and at most 1")
        check_choice("tempscale: rule", self.rule, get_args(Rule))
        if not 0 <= self.rate < float("inf"):
            raise InvalidParameter(f"tempscale: rate={self.rate} must not be negative")
        if self.rate and self.rule != "rate":
            raise InvalidParameter(f"tempscale: rate={self.rate} has no effect with rule={self.rule}; add rule=rate")
        firsts = [first for first, _ in self.lengths]
        if firsts and (firsts[0] != 1 or any(one >= other for one, other in pairwise(firsts))):
            raise InvalidParameter(
                f"tempscale: lengths begin at {firsts} tokens; they must rise, from 1 on, so that every length has one"
            )
        ignored = [name for name in ("tau", "query_tau", "lengths") if getattr(self, name) not in (None, ())]
        if self.rule == "rate" and ignored:
            raise InvalidParameter(
                f"tempscale: {ignored[0]}={getattr(self, ignored[0])} has no effect with rule={self.rule}; drop one"
            )
        if self.lengths and self.tau is not None:
            raise InvalidParameter(f"tempscale: tau={self.tau} has no effect with lengths; leave one out")
        if self.rule == "fixed" and not self.lengths and self.tau is None:
            raise InvalidParameter("tempscale: tau is missing; give it, or lengths")

    def factor(self, length: int, query: bool) -> float:
        """Return the factor on the logits of a sequence of so many tokens."""
        if self.rule == "rate":
            return 1 + self.rate * math.log(length)
        return (math.log(length) if self.rule == "log" else 1) / self._tau(length, query)

    def _tau(self, length: int, query: bool) -> float:
        if query and self.query_tau is not None:
            return self.query_tau
        if self.tau is not None:
            return self.tau
        return next((tau for first, tau in reversed(self.lengths) if first <= length), 1.0)


@dataclass(frozen=True)
class ExtraKeyValues:
    """Keys and values of the last tokens, as extra entries that every query may attend to (KV-Embedding).

    Attributes:
        layers: Layers whose attention gets the entries, counted from 1; None: the backbone's default, "auto": those
            measured, filled in before anything runs.
        bias: Added to the logits of the entries, after everything else; minus infinity switches them off.
        entries: Number of last tokens.
        rebase: Whether rotary keys are moved to the positions right before the first token: the last one to -1, the one
            before it to -2, and so on.

    Raises:
        InvalidParameter: A value is outside its range.
    """

    layers: tuple[int, ...] | Literal["auto"] | None
    bias: float = 1.0
    entries: int = 1
    rebase: bool = False

    def __post_init__(self) -> None:
        if any(layer < 1 for layer in self.known):
            raise InvalidParameter(f"kv: layers={self.layers} are counted from 1")
        if math.isnan(self.bias) or self.bias == math.inf:
            raise InvalidParameter(f"kv: bias={self.bias} must be a number, or -inf for none")
        check_count("kv: n", self.entries)

    @property
    def known(self) -> tuple[int, ...]:
        """The layers, none while they are not filled in."""
        return self.layers if isinstance(self.layers, tuple) else ()


@dataclass(frozen=True)
class BackwardAttention:
    """States refined by the attention that other tokens pay to them (ReBA, Duan et al. 2025, section 3).

    With A[i, j] the largest (P + transposed P) / 2 of any layer and head, token i's state becomes the sum of
    A[i, j] * v_j over the tokens j from i on, where v are the states at the exit.

    Attributes:
        earlier: Whether the sum also includes the tokens before i.
        share: Whether the weights of what is read are divided by their sum (both as in the authors' code).
        last_layer_only: Whether A is the largest of the heads of the last layer that runs, instead of all layers.
    """

    earlier: bool = False
    share: bool = False
    last_layer_only: bool = False
