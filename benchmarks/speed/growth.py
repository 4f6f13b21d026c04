"""Time against the length of a text, the number of sequences in a pass, and the number of texts; with exponents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed import Embedder
from eddy_embed.analysis.plots import save
from speed.texts import text_of, uniform
from speed.timing import seconds

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
BATCH = (1, 2, 4, 8, 16, 32, 64)
TEXTS = (1, 10, 100, 1_000, 10_000, 100_000)
WORDS = 12
"""Of each of many texts."""


def curves(
    model: Any, tokenizer: Any, tokens: tuple[int, ...], batch: tuple[int, ...], texts: tuple[int, ...], rounds: int
) -> dict[str, dict[str, Any]]:
    """For each of three questions, the sizes, the seconds (least of the rounds), and the exponent of the upper half."""
    own = partial(Embedder, model, tokenizer=tokenizer, method="plain")
    window = max(*tokens, 64)
    alone = own(max_length=window, batch_tokens=window)
    lengths = {size: [text_of(alone, size)] for size in tokens}
    passes = {size: own(max_length=512, batch_tokens=512 * size) for size in batch}
    many = own(max_length=512)
    found = {
        "tokens of a text": {size: _least(alone, lengths[size], rounds) for size in tokens},
        "texts of 64 words in one pass": {size: _least(passes[size], uniform(size, 64), rounds) for size in batch},
        f"texts of {WORDS} words": {
            size: _least(many, uniform(size, WORDS), rounds if size < 1000 else 1) for size in texts
        },
    }
    return {
        name: {"sizes": list(points), "seconds": list(points.values()), "exponent": exponent(points)}
        for name, points in found.items()
    }


def exponent(points: dict[int, float]) -> float:
    """Slope of log time over log size, in the upper half of the sizes."""
    upper = sorted(points.items())[len(points) // 2 :] if len(points) > 2 else sorted(points.items())
    sizes, times = np.log(np.array(upper)).T
    return round(float(np.polyfit(sizes, times, 1)[0]), 3)


def draw(path: Path, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """One panel for each question, both axes logarithmic, a curve for each model.

    Args:
        path: Of the picture.
        found: The curves of each model, by its name.
    """
    from matplotlib.figure import Figure

    questions = list(next(iter(found.values())))
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    for axes, question in zip(figure.subplots(1, len(questions)), questions, strict=True):
        for name, curves in found.items():
            curve = curves[question]
            told = f"{name}: exponent {curve['exponent']:.2f}"
            axes.loglog(curve["sizes"], curve["seconds"], marker="o", markersize=3, label=told)
        axes.set(xlabel=question)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def _least(embedder: Embedder, texts: list[str], rounds: int) -> float:
    embedder.encode_document(texts[:64])
    return round(min(seconds(partial(embedder.encode_document, texts)) for _ in range(rounds)), 6)
