"""`eddy layers`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.cli.options import AsJson, Device, Dtype, ModelArgument

if TYPE_CHECKING:
    from eddy_embed.analysis.layers import LayerMeasurement

AXIS = 44
"""Characters of the curve's axis."""


def layers(
    model: ModelArgument,
    sample: Annotated[
        Path, typer.Option(help="Your own text: a .txt or .md file, a folder of them, or - for standard input.")
    ],
    lines: Annotated[bool, typer.Option("--lines", help="Every line of the sample is a sentence.")] = False,
    sentences: Annotated[int, typer.Option(help="How many different sentences to measure on.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of their choice, where the sample has more.", min=0)] = 0,
    width: Annotated[
        int | None, typer.Option(help="Layers from each minimum on. Default: a tenth of the model's, and one.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language code for sentences, xx for any.")] = "en",
    as_json: AsJson = False,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Find the layers that kv may re-route: where the states of your own sentences have the fewest dimensions."""
    from eddy_embed.analysis.layers import measure, read_sentences

    found = read_sentences(sample, lines=lines, language=language)
    measured = measure(
        model,
        found,
        count=sentences,
        seed=seed,
        width=width,
        device=device,
        dtype=dtype,
        show_progress=sys.stderr.isatty(),
    )
    if as_json:
        typer.echo(json.dumps(measured.settings))
    else:
        _show(measured, len(set(found)))


def _show(measured: LayerMeasurement, there: int) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    known = [value for value in measured.dimensions if not math.isnan(value)]
    low, high = min(known), max(known)
    rows = [
        Text(f"{measured.model}, {measured.layers} layers; {measured.sentences} of {there} different sentences\n"),
        Text(f"{'state':<7} {'enters':<9} {'dimension':>9}  {low:<{AXIS // 2}.2f}{high:>{AXIS - AXIS // 2}.2f}"),
    ]
    for state, value in enumerate(measured.dimensions):
        row = Text(f"{f'h[{state}]':<7} {f'layer {state + 1}':<9} ")
        if math.isnan(value):
            alike = "all states are alike" if measured.different[state] == 1 else "too few different states"
            row.append(f"{'-':>9}  {alike}", style="dim")
        else:
            chosen = state + 1 in measured.proposal.layers
            at = round((value - low) / (high - low) * (AXIS - 1)) if high > low else 0
            row.append(f"{value:>9.2f}  {' ' * at}{'●' if chosen else '○'}", style="bold" if chosen else "")
            row.append("  re-route" * chosen, style="bold")
        rows.append(row)
    rows.append(Text(f"\n{_reason(measured)}"))
    rows.append(Text.assemble("method  ", (measured.proposal.method, "bold")))
    for row in rows:
        console.print(row, soft_wrap=True)


def _reason(measured: LayerMeasurement) -> str:
    minima = measured.proposal.minima
    if measured.proposal.rule == "one minimum":
        return f"One clear minimum, h[{minima[0]}]: the layers from the one that it enters on."
    many = f"{len(minima)} clear minima" if minima else "No clear minimum"
    return f"{many}: the layers behind the first fifth whose input is within a tenth of the lowest dimension."
