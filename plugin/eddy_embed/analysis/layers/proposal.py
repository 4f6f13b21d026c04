"""From the curve of intrinsic dimensions to the layers that KV-Embedding re-routes (Tang and Yang, section 3.2.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Literal

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods import kv

CLEAR = 0.1
"""A minimum is clear where both neighbouring maxima tower over it by this share of theirs; the paper gives no test."""
NEAR = 1.1
"""With several minima or none: states with at most this multiple of the lowest dimension; the paper says "low"."""
EARLY = 0.2
"""With several minima or none: the share of the layers left out in front."""
WINDOW = 0.1
"""Equation 4: the share of the layers that the window has behind the minimum."""

Rule = Literal["one minimum", "low region"]


@dataclass(frozen=True)
class Proposal:
    """Layers to re-route, and why these.

    Attributes:
        layers: Counted from 1.
        rule: "one minimum": a window from the only clear minimum on (equation 4). "low region": all states of low
            dimension behind the early layers.
        minima: Indices l of the states h[l] that are clear minima.
    """

    layers: tuple[int, ...]
    rule: Rule
    minima: tuple[int, ...]

    @property
    def method(self) -> str:
        """The method in text form, such as `kv:layers=13-22`."""
        return str(kv(layers=_ranges(self.layers)))


def clear_minima(dimensions: Sequence[float]) -> tuple[int, ...]:
    """States whose dimension is a tenth or more below the neighbouring maxima on both sides.

    A neighbouring maximum is the highest state before the curve falls below the minimum again, so that a small bump
    on the way down divides nothing. States without an estimate (NaN) are passed over.

    Args:
        dimensions: Of h[0] .. h[L-1], shape (L,).
    """
    known = [(index, value) for index, value in enumerate(dimensions) if not math.isnan(value)]
    values = [value for _, value in known]
    found = []
    for at, (index, value) in enumerate(known):
        # Of equal minima with nothing between them the first one counts.
        left = _tower(values[:at][::-1], above=value)
        right = _tower(values[at + 1 :], above=math.nextafter(value, -math.inf))
        if value <= (1 - CLEAR) * min(left, right):
            found.append(index)
    return tuple(found)


def propose(dimensions: Sequence[float], width: int | None = None) -> Proposal:
    """The layers to re-route.

    One clear minimum h[l]: states l .. min(L, l + floor(0.1 L)) (equation 4). Otherwise: the states behind the first
    floor(0.2 L) layers with a dimension of at most 1.1 times their lowest. Re-routed is the layer whose input is the
    state; h[L] is the input of none.

    Args:
        dimensions: Of h[0] .. h[L-1], NaN where there is no estimate, shape (L,).
        width: Layers of the window that each of these states opens; None: floor(0.1 L) + 1 behind one clear minimum,
            1 otherwise.

    Raises:
        InvalidParameter: The width is no number of layers of the model, or no state behind the early layers has an
            estimate.
    """
    depth = len(dimensions)
    if width is not None and (isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= depth):
        raise InvalidParameter(f"width={width!r} must be a number of layers from 1 to the model's {depth}")
    minima = clear_minima(dimensions)
    if len(minima) == 1:
        rule: Rule = "one minimum"
        opened, reach = list(minima), width or int(WINDOW * depth) + 1
    else:
        rule = "low region"
        early = int(EARLY * depth)
        late = {index: value for index, value in enumerate(dimensions) if index >= early and not math.isnan(value)}
        if not late:
            raise InvalidParameter(
                "no state behind the early layers has an intrinsic dimension; give more, and more various, sentences"
            )
        lowest = min(late.values())
        opened, reach = [index for index, value in late.items() if value <= NEAR * lowest], width or 1
    layers = {state + 1 for first in opened for state in range(first, min(depth, first + reach))}
    return Proposal(tuple(sorted(layers)), rule, minima)


def _tower(values: list[float], above: float) -> float:
    """The highest of the values up to the first that is not above; -inf where there is none before it."""
    return max(takewhile(lambda value: value > above, values), default=-math.inf)


def _ranges(layers: tuple[int, ...]) -> tuple[int, int] | int | str:
    """Layers as the parameter of `kv`: a number, a range, or a list of both."""
    # Layers that follow each other are as far from their places.
    places = groupby(enumerate(layers), lambda pair: pair[1] - pair[0])
    runs = [[layer for _, layer in run] for _, run in places]
    if len(runs) == 1:
        return layers[0] if len(layers) == 1 else (layers[0], layers[-1])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
