"""Positions for the drawings of the page: tokens with arcs, and points over length."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eddy_demo.display_text import printable
from eddy_demo.web.answers.explain import LengthAnalysis
from eddy_embed.encoding.explain import Explanation

# All positions and sizes are in units of the drawing's viewBox; `why.html` repeats those that do not vary.
_WIDTH = 900
_ROW_HEIGHT = 96
_LETTER, _PADDING, _GAP, _BOX_HEIGHT = 7.3, 7.0, 4.0, 24.0
_ARC_ROOM = 58.0
"""Height above a row of tokens for arcs."""
_WHITE_SPACE = str.maketrans({"Ġ": "·", "▁": "·", "Ċ": "⏎", "\n": "⏎", "\t": "⇥"})
"""How tokenizers spell white space, and how the page shows it."""
_CSS_CLASSES = {
    "TEXT": "word",
    "PROMPT": "prompt",
    "SPECIAL": "special",
    "BPST": "held",
    "PST": "held",
    "REPEAT": "repeat",
}


@dataclass(frozen=True)
class TokenBox:
    """A token: its position, CSS class, and share of the vector relative to the largest share."""

    x: float
    y: float
    width: float
    text: str
    kind: str
    share: float
    title: str


@dataclass(frozen=True)
class CopyArc:
    """A copy of a state from one token to another: an SVG path."""

    path: str
    title: str


@dataclass(frozen=True)
class TokenLayout:
    """The tokens of a text."""

    boxes: tuple[TokenBox, ...]
    arcs: tuple[CopyArc, ...]
    height: float


def layout_tokens(explanation: Explanation) -> TokenLayout:
    """Lay out the first window of a text in rows."""
    boxes: list[TokenBox] = []
    x, y = 0.0, _ARC_ROOM
    max_weight = max((token.weight for token in explanation.tokens), default=0.0) or 1.0
    for at, token in enumerate(explanation.tokens):
        shown = printable(token.piece).translate(_WHITE_SPACE)
        width = max(len(shown), 1) * _LETTER + 2 * _PADDING
        if x and x + width > _WIDTH:
            x, y = 0.0, y + _ROW_HEIGHT
        role = token.role.name
        facts = [f"{at}: {shown.strip() or '␣'}", role.lower(), f"weight {token.weight:.4f}"]
        if token.source is not None:
            facts.append(f"gets the state of {token.source}")
        kind = _CSS_CLASSES.get(role, "prompt")
        boxes.append(TokenBox(x, y, width, shown, kind, token.weight / max_weight, ", ".join(facts)))
        x += width + _GAP
    arcs = tuple(
        CopyArc(_arc(boxes[token.source], boxes[at]), f"{token.source} → {at}")
        for at, token in enumerate(explanation.tokens)
        if token.source is not None
    )
    return TokenLayout(tuple(boxes), arcs, y + _BOX_HEIGHT + 14)


def _arc(source: TokenBox, target: TokenBox) -> str:
    x1, x2 = source.x + source.width / 2, target.x + target.width / 2
    y1, y2 = source.y - 2, target.y - 3
    rise = min(18 + abs(x2 - x1) / 12, _ARC_ROOM - 8) if y1 == y2 + 1 else 34
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 - rise:.1f} {x2:.1f} {y2 - rise:.1f} {x2:.1f} {y2:.1f}"


@dataclass(frozen=True)
class PlotDot:
    """A point with its CSS class and tooltip."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class LengthPlot:
    """Cosines over length."""

    dots: tuple[PlotDot, ...]
    line: str  # points of the line through `marks`, for an SVG polyline
    marks: tuple[PlotDot, ...]  # mean cosines of two texts of similar length
    across: tuple[tuple[float, str], ...]  # positions and labels of the horizontal axis
    up: tuple[tuple[float, str], ...]


_PLOT_HEIGHT = 380.0
_LEFT, _RIGHT, _ABOVE, _BELOW = 56.0, 16.0, 14.0, 44.0


def layout_lengths(analysis: LengthAnalysis) -> LengthPlot:
    """Lay out an analysis of lengths, on a logarithmic horizontal axis."""
    logs = [math.log2(point.tokens) for point in analysis.points]
    least = math.floor(min(logs))
    most = max(math.ceil(max(logs)), least + 1)
    cosines = [point.cosine for point in analysis.points] + [mean for _, mean, _ in analysis.bins]
    low, high = math.floor(min(0.0, *cosines) * 5) / 5, math.ceil(max(cosines) * 5) / 5 or 0.2

    def x(log: float) -> float:
        return round(_LEFT + (log - least) / (most - least) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(cosine: float) -> float:
        return round(_ABOVE + (high - cosine) / (high - low) * (_PLOT_HEIGHT - _ABOVE - _BELOW), 1)

    dots = tuple(
        PlotDot(x(log), y(point.cosine), point.kind, f"{point.kind} of {point.tokens} tokens: {point.cosine:.3f}")
        for log, point in zip(logs, analysis.points, strict=True)
    )
    marks = tuple(
        PlotDot(
            x(math.log2(middle)), y(mean), "pairs", f"pairs of about {middle:.0f} tokens: {mean:.3f} ({count} texts)"
        )
        for middle, mean, count in analysis.bins
    )
    steps = range(round(low * 5), round(high * 5) + 1)
    return LengthPlot(
        dots,
        " ".join(f"{mark.x},{mark.y}" for mark in marks),
        marks,
        tuple((x(log), f"{2**log:,}") for log in range(least, most + 1)),
        tuple((y(step / 5), f"{step / 5:.1f}") for step in steps),
    )
