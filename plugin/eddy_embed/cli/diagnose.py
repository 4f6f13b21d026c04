"""`eddy diagnose`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eddy_embed.cli.options import (
    AsJson,
    Device,
    Dtype,
    MaxLength,
    MethodText,
    ModelArgument,
    given_texts,
    method_in_full,
)
from eddy_embed.cli.progress import Bar
from eddy_embed.utils.atomic_files import atomic_write

if TYPE_CHECKING:
    from rich.table import Table

    from eddy_embed.analysis.diagnose import Diagnosis

SINKS = 8
"""Sinks that are printed; diagnosis.json has all."""


def diagnose(
    model: ModelArgument,
    file: Annotated[
        Path, typer.Argument(help='Texts, one in a line; a .jsonl file with rows {"text": ...}; - for standard input.')
    ],
    method: MethodText,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder for report.html, diagnosis.json and the pictures."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help='A .jsonl file of texts that mean the same, rows {"a": ..., "b": ...}, for alignment.'),
    ] = None,
    tau: Annotated[float, typer.Option(help="TempScale's temperature, where the method has none.")] = 0.8,
    texts: Annotated[int, typer.Option(min=2, help="Most texts; as many are drawn where there are more.")] = 500,
    bins: Annotated[int, typer.Option(min=1, help="Bins of length, with about as many texts each.")] = 5,
    lengths: Annotated[
        str | None,
        typer.Option(help="Cut all texts to so many tokens instead, as in 16,64,256: same texts, other lengths."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of texts.")] = 0,
    pictures: Annotated[Literal["svg", "png"], typer.Option(help="Kind of the pictures.")] = "svg",
    as_json: AsJson = False,
    max_length: MaxLength = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Look at what a method makes of texts: length collapse, the space of vectors, attention, gradients."""
    from eddy_embed.analysis.plots import check_picture

    method = method_in_full(model, method)
    if output is not None:
        check_picture(output.absolute().parent / f"picture.{pictures}")
        output.mkdir(exist_ok=True)
    from eddy_embed.analysis.diagnose import Extent
    from eddy_embed.analysis.diagnose import diagnose as run
    from eddy_embed.analysis.diagnose.sampling import read_pairs, read_texts

    given = read_texts(file) if file.suffix.lower() == ".jsonl" else given_texts(None, file)
    alike = [] if pairs is None else read_pairs(pairs)
    extent = Extent(texts=texts, bins=bins, lengths=_lengths(lengths), seed=seed)
    options = {"max_length": max_length, "device": device, "dtype": dtype}
    with Bar() as bar:
        found = run(model, given, method=method, pairs=alike, tau=tau, extent=extent, step=bar.step, **options)
    if as_json:
        typer.echo(json.dumps(found.settings))
    else:
        _show(found)
    if output is not None:
        _write(found, output, pictures)


def _lengths(text: str | None) -> tuple[int, ...]:
    named = [] if text is None else [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() for each in named):
        raise typer.BadParameter(f"{text!r} must hold numbers of tokens, as in 16,64,256", param_hint="--lengths")
    return tuple(int(each) for each in named)


def _write(found: Diagnosis, folder: Path, form: Literal["svg", "png"]) -> None:
    from eddy_embed.analysis.diagnose.figures import draw
    from eddy_embed.analysis.diagnose.html_report import page

    report = page(found, draw(found, folder, form))
    written = {"diagnosis.json": json.dumps(found.settings, indent=1) + "\n", "report.html": report}
    for name, text in written.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())
    typer.echo(f"written: {folder / 'report.html'}", err=True)


def _show(found: Diagnosis) -> None:
    from rich.console import Console
    from rich.text import Text

    from eddy_embed.analysis.diagnose.html_report import rows_of_space, share_of_tokens

    console = Console(highlight=False)
    console.print(Text(f"{found.about['model']}, {found.about['method']}: {found.about['texts']} texts\n"))
    methods = [side.method for side in found.sides]
    space = [[name, *values] for name, values, _ in rows_of_space(found)]
    console.print(_table(["the space of vectors", *methods], space))
    heads = [f"{part}\n{side.name}" for part in ("cosine", "distance", "σₐ") for side in found.sides]
    rows = []
    for at, each in enumerate(found.bins):
        numbers = [f"{getattr(side, part)[at]:.3f}" for part in ("cosine", "distance") for side in found.sides]
        numbers += [f"{side.sigma[at][-1]:.3f}" if side.sigma else "" for side in found.sides]
        rows.append([each["tokens"], str(each["texts"]), *numbers])
    console.print(_table(["tokens", "texts", *heads], rows))
    if found.largest_token is not None:
        console.print(share_of_tokens(found))
    for sink in found.sinks[:SINKS]:
        console.print(
            Text(f"  {sink.piece!r}: {sink.norm:.0f} medians, {sink.share:.0%} of the mean, {sink.count} times")
        )
    if (told := found.sensitivity) is not None:
        last = f"{told.last_evenness:.0%} for the last token"
        console.print(f"Tokens that count: {told.mean_evenness:.0%} for the mean, {last}.")
    if (entries := found.entries) is not None:
        paid = sum(entries.paid) / len(entries.paid)
        console.print(f"Attention on the re-routed entry: {paid:.1%}; alike to all that is seen: {entries.even:.1%}.")
    for name, reason in found.left_out.items():
        console.print(Text(f"Left out, {name}: {reason}", style="dim"), soft_wrap=True)


def _table(heads: list[str], rows: list[list[str]]) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE)
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
