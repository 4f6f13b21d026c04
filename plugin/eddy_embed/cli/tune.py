"""`eddy tune`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.cli import options

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.results import TaskResult
    from eddy_embed.analysis.evaluate.systems import System

CANDIDATES = (
    *("plain:exit=0", "plain:exit=0+sif", "plain:exit=0+filter", "plain:exit=0+sif+filter"),
    *("plain:exit=1+sif", "plain:exit=2+sif", "echo:exit=1"),
)
"""Methods that were best somewhere, of those that run few layers (docs/results.md)."""
POSTS = ("", "+whiten:power=0.5", "+whiten")
BM25 = "bm25"


def tune(
    model: options.ModelArgument,
    data: Annotated[Path, typer.Option(help="A folder of your texts: .txt and .md files.")],
    questions: Annotated[
        Path,
        typer.Option(help='A .jsonl file with lines {"question": "...", "documents": ["name.md"]}: the files to find.'),
    ],
    more: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Try this method too. Repeat.", show_default=False)
    ] = None,
    output: options.Outcomes = None,
    passage_size: Annotated[int, typer.Option(min=1, help="Most tokens in a passage.")] = 256,
    fresh: options.Fresh = False,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Find the method that answers your own questions best: whether one is better than the recommended method.

    It tries methods that run few layers, each without whitening, with partial and with full; name others with --method.
    """
    options.measuring(data, output)
    from eddy_embed.analysis.evaluate import grid, tables
    from eddy_embed.analysis.evaluate.own_texts import read_own_texts
    from eddy_embed.analysis.evaluate.systems import System
    from eddy_embed.embedder import Embedder

    task = read_own_texts(data, questions)
    recommended, *others = (
        System.named(options.method_in_full(model, text)) for text in ("recommended", *(more or []))
    )
    with Embedder(model, method="plain", device=device, dtype=dtype, check=False) as embedder:
        texts = [f"{text}{post}" for text in (*CANDIDATES, recommended.text) for post in POSTS]
        there, _ = grid.runnable(texts, embedder.backbone)
    systems = list(dict.fromkeys([recommended, *others, *map(System.named, there), System(BM25)]))
    found = options.run_evaluation(
        model, systems, [task], passage_size, output, fresh, device=device, dtype=dtype, check=False
    )
    found.sort(key=lambda outcome: -outcome.score())
    typer.echo(tables.table(found, recommended.text))
    typer.echo(f"\n{tables.legend(found, recommended.text, passage_size)}")
    typer.echo(f"\n{_verdict(found, recommended, len(task.queries))}")


def _verdict(found: Sequence[TaskResult], recommended: System, questions: int) -> str:
    """What the questions show, and the method to use."""
    from eddy_embed.analysis.evaluate import grid

    best, _ = grid.choose([outcome for outcome in found if outcome.system.text != BM25])
    reference = next(outcome for outcome in found if outcome.system == recommended)
    value, low, high = difference = best.difference(reference)
    if best is reference or difference.tie:
        return f"{questions} questions show no method above the recommended one\nmethod  {recommended.text}"
    above = f"above {recommended.text}, the recommended one, by {value:.3f} ({low:.3f} to {high:.3f})"
    return f"{above} on {questions} questions\nmethod  {best.system.text}"
