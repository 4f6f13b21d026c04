"""Figures of a diagnosis, each with a caption that explains it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eddy_embed.analysis.diagnose.results import Diagnosis, Entries, Sensitivity
from eddy_embed.analysis.plots import figure, integers, save

Format = Literal["svg", "png"]
BEFORE, AFTER, GREY, MARK = "tab:blue", "tab:orange", "0.45", "tab:red"


def draw(found: Diagnosis, folder: Path, form: Format) -> dict[str, Path]:
    """Draw everything that was found into a folder; returns the file of each picture by its name."""
    pictures = {"length": _length(found), "layers": _layers(found)}
    if found.sides[0].sigma:
        pictures["attention"] = _attention(found)
    if found.sensitivity is not None:
        pictures["sensitivity"] = _sensitivity(found.sensitivity)
    if found.entries is not None:
        pictures["entries"] = _entries(found.entries)
    files = {name: folder / f"{name}.{form}" for name in pictures}
    for name, drawn in pictures.items():
        save(drawn, files[name])
    return files


def _length(found: Diagnosis) -> Any:
    drawn, (left, right) = figure(10, 4, 1, 2)
    labels = [f"{each['tokens']}\n({each['texts']})" for each in found.bins]
    for axes, part in ((left, "cosine"), (right, "distance")):
        for side, colour in zip(found.sides, (BEFORE, AFTER), strict=False):
            axes.plot(range(len(labels)), getattr(side, part), marker="o", color=colour, label=side.method)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlabel("length in tokens (texts)")
    _titled(left, "Cosine of two texts of like length", "rising: long texts are harder to tell apart", "mean cosine")
    _titled(right, "Distance to the centre of all texts", "falling: long texts crowd at the centre", "mean distance")
    _legend(left)
    return drawn


def _layers(found: Diagnosis) -> Any:
    drawn, grid = figure(13, 4, 1, 3)
    parts = (
        ("dimension", "Intrinsic dimension", "directions in which the vectors really extend", "TwoNN estimate"),
        ("cosine", "Narrowness of the cone", "1: all vectors point one way; 0: in all directions", "mean cosine"),
        ("uniformity", "Uniformity", "lower: spread more evenly; 0: all equal", "log mean exp(-2 d²)"),
    )
    layers = [level.layer for level in found.levels]
    for axes, (part, title, hint, label) in zip(grid, parts, strict=True):
        values = [getattr(level, part) for level in found.levels]
        _titled(axes, title, hint, label)
        if all(math.isnan(value) for value in values):
            reason = textwrap.fill(found.left_out.get("intrinsic dimension", "no estimate"), 34)
            place = {"ha": "center", "va": "center", "transform": axes.transAxes}
            axes.text(0.5, 0.5, reason, color=GREY, parse_math=False, **place)
            axes.set(xticks=[], yticks=[])
            continue
        axes.plot(layers, values, marker="o", markersize=4, color=BEFORE)
        axes.plot(layers[-1:], values[-1:], "o", markersize=9, color=MARK, label="read here")
        axes.set_xlabel("layer l of h[l]")
        integers(axes.xaxis)
    _legend(axes)
    return drawn


def _attention(found: Diagnosis) -> Any:
    drawn, ((sigma, share), (depth, states)) = figure(11, 7.6, 2, 2)
    labels = [each["tokens"] for each in found.bins]
    at = range(len(labels))
    for side, colour in zip(found.sides, (BEFORE, AFTER), strict=False):
        if not side.sigma:
            continue
        sigma.plot(at, [row[-1] for row in side.sigma], marker="o", color=colour, label=side.method)
        share.plot(at, [100 * row[-1] for row in side.share], marker="o", color=colour)
        for rows, style, length in ((0, "-", labels[0]), (-1, "--", labels[-1])):
            known = side.sigma[rows]
            name = f"{length} tokens, {side.name}"
            depth.plot(range(1, len(known) + 1), known, style, marker="o", markersize=3, color=colour, label=name)
            values = [100 * value for value in side.states[rows]]
            first = len(known) + 1 - len(values)
            states.plot(range(first, first + len(values)), values, style, marker="o", markersize=3, color=colour)
    if found.even_sigma:
        sigma.plot(at, found.even_sigma, ":", color=GREY, label="alike to all earlier tokens")
    for axes in (sigma, share):
        axes.set_xticks(at, labels)
        axes.set_xlabel("length in tokens")
    for axes in (depth, states):
        axes.set_xlabel("layer")
        integers(axes.xaxis)
    last = len(found.sides[0].sigma[0])
    hint = "higher: more of what tells tokens apart gets through"
    _titled(sigma, f"σₐ of attention in layer {last}", hint, "σₐ, mean over heads")
    _titled(share, f"High-frequency share in layer {last}", "0: every token pays the same attention", "% of energy")
    _titled(depth, "σₐ by layer, shortest and longest texts", hint, "σₐ, mean over heads")
    _titled(states, "What tells tokens apart in the states", "0: all tokens of the text have one state", "% of energy")
    _legend(sigma)
    _legend(depth)
    return drawn


def _sensitivity(told: Sensitivity) -> Any:
    drawn, (left, right) = figure(12, 4.6, 1, 2, width_ratios=(1, 1.5))
    curves = ((told.mean, BEFORE, "mean", told.mean_evenness), (told.last, AFTER, "last token", told.last_evenness))
    for curve, colour, name, even in curves:
        left.plot(
            _percent(curve.places), curve.places, color=colour, label=f"{name}: {100 * even:.0f} % of the tokens count"
        )
    left.axhline(1, color=GREY, linestyle=":", label="every token alike")
    left.set(yscale="log", xlabel="place in the text, %")
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("{x:g}")
    _titled(left, "How much tokens move the vector", f"mean over {told.texts} texts", "gradient, mean = 1")
    _legend(left)
    _bars(right, told.tokens, [(curve.example, colour, name) for curve, colour, name, _ in curves])
    _titled(right, "One text, token by token", "a bar: how much the vector moves with the token", "gradient, mean = 1")
    _legend(right)
    return drawn


def _entries(told: Entries) -> Any:
    drawn, (left, middle, right) = figure(14, 4.6, 1, 3, width_ratios=(1, 1, 1.5))
    left.bar([str(layer) for layer in told.layers], [100 * paid for paid in told.paid], 0.6, color=BEFORE)
    left.set_xlim(-1, len(told.layers))
    left.axhline(100 * told.even, color=GREY, linestyle=":", label="alike to all that is seen")
    left.set_xlabel("re-routed layer")
    _titled(left, "Attention on the re-routed entry", "mean over heads and tokens", "% of a token's attention")
    _legend(left)
    middle.plot(_percent(told.curve.places), [100 * paid for paid in told.curve.places], color=BEFORE)
    middle.set(xlabel="place in the text, %", ylim=(0, None))
    _titled(middle, "Where in the text", "mean over the re-routed layers", "% of a token's attention")
    _bars(right, told.tokens, [([100 * paid for paid in told.curve.example], BEFORE, "")])
    _titled(right, "One text, token by token", "mean over the re-routed layers", "% of a token's attention")
    return drawn


def _percent(places: Sequence[float]) -> Any:
    """The middle of each place of a text, in percent of its length."""
    return (np.arange(len(places)) + 0.5) * 100 / len(places)


def _bars(axes: Any, tokens: Sequence[str], series: Sequence[tuple[Sequence[float], str, str]]) -> None:
    """Bars of several series beside each other for every token."""
    at, width = np.arange(len(tokens)), 0.8 / len(series)
    for number, (values, colour, name) in enumerate(series):
        axes.bar(at + (number - (len(series) - 1) / 2) * width, values, width, color=colour, label=name)
    axes.set_xticks(at, [token.strip() or "␣" for token in tokens], rotation=90, fontsize=8, parse_math=False)


def _titled(axes: Any, title: str, hint: str, label: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=20)
    axes.text(0, 1.02, hint, transform=axes.transAxes, fontsize=9, color=GREY)
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Any) -> None:
    for text in axes.legend(frameon=False, fontsize="small").get_texts():
        text.set_parse_math(False)
