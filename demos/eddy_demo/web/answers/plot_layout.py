"""Pictures of a page as numbers: where tokens and arcs stand, where points do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy_demo.display_text import printable

if TYPE_CHECKING:
    from eddy_demo.web.answers.explain import Lengths
    from eddy_embed.explanation import Explanation

WIDTH = 900
ROW = 96
_LETTER, _PAD, _GAP, _HEIGHT = 7.3, 7.0, 4.0, 24.0
_MARKS = str.maketrans({"Ġ": "·", "▁": "·", "Ċ": "⏎", "\n": "⏎", "\t": "⇥"})
"""How tokenizers spell spaces and line ends, and how they are shown."""
_TOP = 58.0
"""Room for arcs above a row of tokens."""
_NAMES = {"TEXT": "word", "PROMPT": "prompt", "SPECIAL": "special", "BPST": "held", "PST": "held", "REPEAT": "repeat"}


@dataclass(frozen=True)
class Box:
    """A token: where it stands, what it is, what share of the vector it has."""

    x: float
    y: float
    width: float
    text: str
    kind: str
    share: float
    title: str


@dataclass(frozen=True)
class Arc:
    """A copy of a state, from one token to another."""

    path: str
    title: str


@dataclass(frozen=True)
class Tokens:
    """A text as the model sees it."""

    boxes: tuple[Box, ...]
    arcs: tuple[Arc, ...]
    height: float


def tokens(explanation: Explanation) -> Tokens:
    """The first window of a text, in rows."""
    boxes: list[Box] = []
    x, y = 0.0, _TOP
    most = max((token.weight for token in explanation.tokens), default=0.0) or 1.0
    for at, token in enumerate(explanation.tokens):
        shown = printable(token.piece).translate(_MARKS)
        width = max(len(shown), 1) * _LETTER + 2 * _PAD
        if x and x + width > WIDTH:
            x, y = 0.0, y + ROW
        role = token.role.name
        told = [f"{at}: {shown.strip() or '␣'}", role.lower(), f"weight {token.weight:.4f}"]
        if token.source is not None:
            told.append(f"gets the state of {token.source}")
        boxes.append(Box(x, y, width, shown, _NAMES.get(role, "prompt"), token.weight / most, ", ".join(told)))
        x += width + _GAP
    arcs = tuple(
        Arc(_arc(boxes[token.source], boxes[at]), f"{token.source} → {at}")
        for at, token in enumerate(explanation.tokens)
        if token.source is not None
    )
    return Tokens(tuple(boxes), arcs, y + _HEIGHT + 14)


def _arc(source: Box, target: Box) -> str:
    x1, x2 = source.x + source.width / 2, target.x + target.width / 2
    y1, y2 = source.y - 2, target.y - 3
    rise = min(18 + abs(x2 - x1) / 12, _TOP - 8) if y1 == y2 + 1 else 34
    return f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 - rise:.1f} {x2:.1f} {y2 - rise:.1f} {x2:.1f} {y2:.1f}"


@dataclass(frozen=True)
class Dot:
    """A text in the picture of lengths."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True)
class Plot:
    """Points over the length of texts, a line through the means of pairs, and both axes."""

    dots: tuple[Dot, ...]
    line: str
    marks: tuple[Dot, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    width: float = 900.0
    height: float = 380.0


_LEFT, _RIGHT, _ABOVE, _BELOW = 56.0, 16.0, 14.0, 44.0


def plot(found: Lengths) -> Plot:
    """The picture of lengths."""
    width, height = 900.0, 380.0
    logs = [math.log2(point.tokens) for point in found.points]
    least, most = math.floor(min(logs)), max(math.ceil(max(logs)), math.floor(min(logs)) + 1)
    values = [point.cosine for point in found.points] + [each[1] for each in found.bins]
    low, high = math.floor(min(0.0, *values) * 5) / 5, math.ceil(max(values) * 5) / 5 or 0.2

    def x(log: float) -> float:
        return round(_LEFT + (log - least) / (most - least) * (width - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_ABOVE + (high - value) / (high - low) * (height - _ABOVE - _BELOW), 1)

    dots = tuple(
        Dot(x(log), y(point.cosine), point.kind, f"{point.kind} of {point.tokens} tokens: {point.cosine:.3f}")
        for log, point in zip(logs, found.points, strict=True)
    )
    marks = tuple(
        Dot(x(math.log2(middle)), y(mean), "pairs", f"pairs of about {middle:.0f} tokens: {mean:.3f} ({count} texts)")
        for middle, mean, count in found.bins
    )
    steps = range(round(low * 5), round(high * 5) + 1)
    return Plot(
        dots,
        " ".join(f"{mark.x},{mark.y}" for mark in marks),
        marks,
        tuple((x(log), f"{2**log:,}") for log in range(least, most + 1)),
        tuple((y(step / 5), f"{step / 5:.1f}") for step in steps),
    )
