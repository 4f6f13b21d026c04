"""`eddy compare`."""

from __future__ import annotations

import json
import sys
import textwrap
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.cli.options import AsJson, Device, Dtype, Instruction, MaxLength, Model, Picture, Role, given_texts
from eddy_embed.errors import EddyError

if TYPE_CHECKING:
    from rich.text import Text

    from eddy_embed.analysis.compare import ComparisonResult

GAP = 4
"""Blanks between two matrices."""
REASON = 36
"""Characters in a line of the reason why there is no matrix."""


def compare(
    texts: Annotated[list[str] | None, typer.Argument(help="Two texts or more.")] = None,
    model: Model = "eddy-tiny",
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Repeat for several. Default: all, see `eddy methods`.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "--input", "-i", help="A file with one text a line; - for standard input."),
    ] = None,
    role: Role = "document",
    instruction: Instruction = None,
    max_length: MaxLength = None,
    plot: Picture = None,
    as_json: AsJson = False,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Show the cosines of texts under several methods side by side."""
    from eddy_embed.analysis import compare, plots

    given = given_texts(texts, file)
    if plot is not None:
        plots.check_picture(plot)
    found = compare.compare(
        given,
        model,
        method,
        role=role,
        query_instruction=instruction,
        text_instruction=instruction,
        max_length=max_length,
        device=device,
        dtype=dtype,
        show_progress=sys.stderr.isatty(),
    )
    if as_json:
        rows = [{**vars(each), "cosines": None if each.cosines is None else each.cosines.tolist()} for each in found]
        typer.echo(json.dumps({"model": model, "texts": given, "methods": rows}, ensure_ascii=False))
    else:
        _show(given, found)
    if all(each.cosines is None for each in found):
        raise EddyError("none of the methods can be run on this model and these texts")
    if plot is not None:
        shown = {each.method: each.reason or "" if each.cosines is None else each.cosines for each in found}
        plots.draw_matrices(plot, shown)


def _show(texts: list[str], found: list[ComparisonResult]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, text in enumerate(texts, start=1):
        console.print(Text(f"{number:>3}  {textwrap.shorten(text, console.width - 5, placeholder=' …')}"))
    blocks = [_block(each) for each in found]
    while blocks:
        count, total = 0, -GAP
        # At least one in a row; lines of one that is wider than the terminal are never cut.
        while count < len(blocks) and (count == 0 or total + GAP + blocks[count][0].cell_len <= console.width):
            total += GAP + blocks[count][0].cell_len
            count += 1
        row, blocks = blocks[:count], blocks[count:]
        console.print()
        for lines in zip_longest(*row):
            cells = [line or Text(" " * block[0].cell_len) for line, block in zip(lines, row, strict=True)]
            joined = Text(" " * GAP).join(cells)
            joined.rstrip()
            console.print(joined, soft_wrap=True)


def _block(compared: ComparisonResult) -> list[Text]:
    """Lines of equal width: the method, then its matrix with the greatest cosine in bold, or the reason."""
    from rich.text import Text

    lines = [Text(compared.method, style="bold")]
    if compared.cosines is None:
        lines += [Text(line, style="dim") for line in textwrap.wrap(compared.reason or "", REASON)]
    else:
        cosines, count = compared.cosines, len(compared.cosines)
        lines.append(Text("    " + " ".join(f"{column:>6}" for column in range(1, count + 1)), style="dim"))
        greatest = max(cosines[i, j] for i in range(count) for j in range(i))
        for i in range(count):
            line = Text(f"{i + 1:>3} ", style="dim")
            for j in range(count):
                mark = "dim" if i == j else "bold green" if cosines[max(i, j), min(i, j)] == greatest else "not dim"
                line.append(f"{cosines[i, j]:>6.3f}" + " " * (j < count - 1), style=mark)
            lines.append(line)
    width = max(line.cell_len for line in lines)
    for line in lines:
        line.pad_right(width - line.cell_len)
    return lines
