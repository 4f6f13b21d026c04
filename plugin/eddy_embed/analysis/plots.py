"""Pictures as files: scores over a parameter or a size, and a curve over layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


def draw_curve(path: Path, dimensions: Sequence[float], layers: Collection[int], title: str) -> None:
    """Draw intrinsic dimensions over the states h[0] .. h[L-1], with those marked that enter one of the layers."""
    drawn, axes = figure(6.4, 3.6)
    axes.plot(range(len(dimensions)), dimensions, marker="o", markersize=4, color="0.35")
    marked = [layer - 1 for layer in sorted(layers)]
    label = "enters a layer to re-route"
    axes.plot(marked, [dimensions[state] for state in marked], "o", markersize=8, color="tab:red", label=label)
    axes.set(xlabel="state h[l]", ylabel="intrinsic dimension", title=title)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    save(drawn, path)


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
    drawn, grid = figure(5.5 * len(panels), 3.8, 1, len(panels), squeeze=False)
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


def figure(width: float, height: float, *grid: int, **options: Any) -> tuple[Any, Any]:
    """An empty picture and its axes; without pyplot, which would keep a list of figures and look for a screen."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), dpi=150, layout="constrained")
    return drawn, drawn.subplots(*grid, **options)


def save(drawn: Any, path: Path) -> None:
    """Write a picture; the same picture gives the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "eddy"}):
        drawn.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
