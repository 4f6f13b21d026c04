"""A picture as a file: scores over a parameter or a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.extras import check_installed

SUFFIXES = (".png", ".svg")


def check_picture(path: Path) -> None:
    """Refuse a file that could not be drawn, before the work that it would show."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"{path} must end in {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    check_installed("plot", "matplotlib")


def draw_scores(
    path: Path,
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]],
    label: str,
    order: Sequence[str] = (),
) -> None:
    """Draw scores with their intervals over sizes, whose `label` says what they are, panels side by side.

    Panels hold by title, and then by the name of a curve, the score, low and high at each size, in the order of sizes;
    `order` is theirs where the first curves may lack some that later ones have.
    """
    from matplotlib.figure import Figure

    # Without pyplot, which would keep a list of figures and look for a screen.
    drawn = Figure(figsize=(5.5 * len(panels), 3.8), dpi=150, layout="constrained")
    grid = drawn.subplots(1, len(panels), squeeze=False)
    for axes, (title, curves) in zip(grid[0], panels.items(), strict=True):
        there = dict.fromkeys(size for points in curves.values() for size in points)
        sizes = [*(size for size in order if size in there), *(size for size in there if size not in order)]
        for name, points in curves.items():
            at = [sizes.index(size) for size in points]
            values, low, high = zip(*points.values(), strict=True)
            (line,) = axes.plot(at, values, marker="o", markersize=4, label=name)
            axes.fill_between(at, low, high, color=line.get_color(), alpha=0.12)
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_title(title, parse_math=False)
        axes.set_xlabel(label)
        axes.legend(frameon=False, fontsize="small")
    save(drawn, path)


def save(drawn: Any, path: Path) -> None:
    """Write a picture; the same picture gives the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "eddy"}):
        drawn.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
