"""KV-Embedding: every token attends to the last token's keys and values; and in which layers it may.

`propose` and `intrinsic_dimension` are the procedure by which `kv:layers=auto` finds layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method, MethodTerm
from eddy_embed.methods.registry import build, layer_numbers, register
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Pool, Readout
from eddy_embed.utils.arrays import Doubles

AUTO = "auto"
"""In place of layers: those that `propose` chooses on general text, found before anything else runs."""
CLEAR = 0.1
"""A minimum is clear where both neighbouring maxima tower over it by this share of theirs; the paper gives no test."""
NEAR = 1.1
"""With several minima or none: states with at most this multiple of the lowest dimension; the paper says "low"."""
EARLY = 0.2
"""With several minima or none: the share of the layers left out in front."""
WINDOW = 0.1
"""Equation 4: the share of the layers that the window has behind the minimum."""
DROPPED = 0.1
"""Share of the points with the largest ratios that TwoNN's fit leaves out, as Facco et al. do: they obey it least."""
DISTANCES = 2**22
"""Distances held at once."""

Rule = Literal["one minimum", "low region"]


@register
def kv(
    layers: tuple[int, int] | int | str | None = None,
    bias: float = 1.0,
    n: int = 1,
    rebase: bool = False,
    verb: str = "Compress",
    pool: Pool = "hybrid",
    exit: int | None = -1,
) -> Method:
    """In some layers every token also attends to the keys and values of the last one, which has seen everything.

    Section 3.2; the entry's logit is biased by b after scale, cap and temperature. Its key keeps its position, unless
    `rebase` moves it to the paper's virtual position.

    Args:
        layers: One, (first, last), or a list such as "11,12,21,27-32", counted from 1; "" for none. "auto": measured
            once on general text. None: those of the shipped table.
        bias: b, added to the logits of the entries; -inf switches them off.
        n: Entries: the last n tokens.
        rebase: Whether the entry's key is moved to position -1, one before the first token (the paper counts tokens
            from 1 and says 0); with n entries the last token's to -1, that of the one before it to -2, and so on. For
            models with rotary positions.
        verb: What the prompt asks for (table 22): one word, as in "Compress the Context in one word:", or a phrase up
            to the colon, such as "Extract key concept" and "Compress to one word".
        pool: "hybrid" over the text and its prompt, as in the paper, or another.
        exit: Layer read, counted over h[0] .. h[L].

    Raises:
        InvalidParameter: A value is outside its range.
    """
    parameters = dict(locals())
    if not verb.strip() or "{" in verb or "}" in verb:
        raise InvalidParameter(f"kv: verb={verb!r} must be a word or a phrase")
    asked = verb if " " in verb.strip() else f"{verb} the {{kind}} in one word"
    document, query = (f'"{kind}: {{text}}" {asked.format(kind=kind)}:' for kind in ("Context", "Query"))
    return build(
        kv,
        parameters,
        layout=Layout(document, query),
        reroute=ExtraKeyValues(_layers(layers), float(bias), n, rebase),
        readout=Readout(exit=exit, pool=pool, prompt=True),
    )


@register
def reroute(
    layers: tuple[int, int] | int | str | None = None, bias: float = 1.0, n: int = 1, rebase: bool = False
) -> Method:
    """The entries of kv alone, without its prompt and readout: join it to a method that has them.

    Args:
        layers: As in kv.
        bias: As in kv.
        n: As in kv.
        rebase: As in kv.

    Raises:
        InvalidParameter: A value is outside its range.
    """
    return build(reroute, dict(locals()), reroute=ExtraKeyValues(_layers(layers), float(bias), n, rebase))


def with_layers(method: Method, layers: tuple[int, ...]) -> Method:
    """Return a method whose layers were to be found, with those that were."""
    assert method.reroute is not None
    named = {"layers": _ranges(layers)}
    terms = [
        MethodTerm(term.name, tuple({**dict(term.parameters), **named}.items()))
        if dict(term.parameters).get("layers") == AUTO
        else term
        for term in method.terms
    ]
    return replace(method, reroute=replace(method.reroute, layers=layers), terms=tuple(terms))


def _layers(layers: tuple[int, int] | int | str | None) -> tuple[int, ...] | Literal["auto"] | None:
    return layers if layers is None or layers == AUTO else layer_numbers("kv", layers)  # type: ignore[return-value]


# --- Which layers


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
    """Return states whose dimension is a tenth or more below the neighbouring maxima on both sides.

    A neighbouring maximum is the highest state before the curve falls below the minimum again, so that a small bump
    on the way down divides nothing. States without an estimate (NaN) are passed over.

    Args:
        dimensions: Of h[0] .. h[L-1], shape (L,).
    """
    known = [(index, value) for index, value in enumerate(dimensions) if not math.isnan(value)]
    values = [value for _, value in known]
    minima = []
    for at, (index, value) in enumerate(known):
        # Of equal minima with nothing between them the first one counts.
        left = _tower(values[:at][::-1], above=value)
        right = _tower(values[at + 1 :], above=math.nextafter(value, -math.inf))
        if value <= (1 - CLEAR) * min(left, right):
            minima.append(index)
    return tuple(minima)


def propose(dimensions: Sequence[float], width: int | None = None) -> Proposal:
    """Return the layers to re-route.

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
    if width is not None and not 1 <= width <= depth:
        raise InvalidParameter(f"width={width} must be a number of layers from 1 to the model's {depth}")
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
    """Return the highest of the values up to the first that is not above; -inf where there is none before it."""
    return max(takewhile(lambda value: value > above, values), default=-math.inf)


def _ranges(layers: tuple[int, ...]) -> tuple[int, int] | int | str:
    """Return layers as the parameter of `kv`: a number, a range, or a list of both."""
    # Layers that follow each other are as far from their places.
    places = groupby(enumerate(layers), lambda pair: pair[1] - pair[0])
    runs = [[layer for _, layer in run] for _, run in places]
    if len(runs) == 1:
        return layers[0] if len(layers) == 1 else (layers[0], layers[-1])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# --- Intrinsic dimension: TwoNN, Facco et al. 2017


def distinct(points: NDArray[Any]) -> Doubles:
    """Return each point once, in float64, shape (points, width): at distance 0 there is no ratio."""
    return np.unique(np.asarray(points, np.float64), axis=0)


def neighbours(points: Doubles) -> Doubles:
    """Return distances of three or more different points to their two nearest, shape (points, 2)."""
    # Around the mean, because the squares below lose the digits that all points have in common.
    centred = points - points.mean(axis=0)
    squares = np.einsum("nd,nd->n", centred, centred)
    nearest = np.empty((len(points), 2))
    rows = max(1, DISTANCES // len(points))
    for first in range(0, len(points), rows):
        block = centred[first : first + rows]
        apart = squares - 2 * (block @ centred.T)  # without the row's own square, which changes no order
        apart[np.arange(len(block)), np.arange(first, first + len(block))] = np.inf
        two = np.argpartition(apart, 1, axis=1)[:, :2]
        for column in (0, 1):
            nearest[first : first + rows, column] = np.linalg.norm(block - centred[two[:, column]], axis=1)
    return np.sort(nearest, axis=1)


def intrinsic_dimension(points: NDArray[Any]) -> float:
    """Return intrinsic dimension of points.

    The ratios mu = r2/r1 of the distances to the second and the first neighbour follow F(mu) = 1 - mu^-d where the
    density is even (equation 5); d is the slope of -log(1 - F) over log mu, fitted through the origin.

    Args:
        points: Shape (points, width); equal ones count once.

    Returns:
        The dimension; NaN where three different points or more are not there, or all are equally far apart.
    """
    cloud = distinct(points)
    count = len(cloud)
    if count < 3:
        return float("nan")
    near = neighbours(cloud)
    fitted = int((1 - DROPPED) * count)
    x = np.sort(np.log(near[:, 1] / near[:, 0]))[:fitted]
    y = -np.log1p(-np.arange(1, fitted + 1) / count)
    spread = float(x @ x)
    return float(x @ y) / spread if spread > 0 else float("nan")
