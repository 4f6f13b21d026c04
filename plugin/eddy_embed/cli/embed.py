"""`eddy methods`, `eddy embed`, `eddy explain`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from eddy_embed.cli import options
from eddy_embed.utils.atomic_files import atomic_write

if TYPE_CHECKING:
    from eddy_embed.utils.arrays import Floats


def methods(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Show what is recommended for this model instead, and why.")
    ] = None,
) -> None:
    """List the methods, their parameters and defaults; for a model, the recommended ones with their scores."""
    from eddy_embed import methods as registry

    if model is not None:
        _show_recommended(model)
        return
    for name in registry.names():
        summary, parameters = registry.describe(name)
        shown = ", ".join(f"{key}={'auto' if value is None else value}" for key, value in parameters.items())
        typer.echo(f"{typer.style(name, bold=True)}\n  {summary}\n  {shown}")


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to embed.")] = None,
    model: options.ModelOption = "eddy-tiny",
    method: options.MethodText = "recommended",
    file: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one text a line; - for standard input.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .npy or .jsonl file. Default: JSON lines on standard output."),
    ] = None,
    role: options.Role = "document",
    instruction: options.Instruction = None,
    max_length: options.MaxLength = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Embed texts, one vector each; of two, say the cosine too."""
    if output is not None and output.suffix not in (".npy", ".jsonl"):
        raise typer.BadParameter(f"{output} must end in .npy or .jsonl", param_hint="--output")
    checked = options.given_texts(texts, file)
    if not checked:
        raise typer.BadParameter("no texts; give some, or a file with --input", param_hint="TEXTS")
    # Open the output first, so that an unwritable path fails before any embedding.
    with nullcontext() if output is None else atomic_write(output) as sink:
        embedder = options.open_embedder(model, method, instruction, max_length=max_length, device=device, dtype=dtype)
        embedder.show_progress = sys.stderr.isatty()
        vectors = embedder.encode_query(checked) if role == "query" else embedder.encode_document(checked)
        if output is not None and output.suffix == ".npy":
            _write_array(vectors, cast("BinaryIO", sink))
        else:
            _write_rows(checked, vectors, sink)
    if len(checked) == 2:
        typer.echo(f"Cosine of the two: {vectors[0] @ vectors[1]:.3f}", err=True)
    if many := embedder.counts.windowed_texts:
        typer.echo(f"{many} of {embedder.counts.texts} texts exceed the window and were read in several", err=True)


def explain(
    text: Annotated[str, typer.Argument(help="A text.")],
    model: options.ModelOption = "eddy-tiny",
    method: options.MethodText = "recommended",
    role: options.Role = "document",
    instruction: options.Instruction = None,
    max_length: options.MaxLength = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Show what happens to a text: its tokens, placeholders, copies, layers, pooled positions and cost."""
    from eddy_embed.encoding.validation import checked_texts

    checked_texts(text)
    embedder = options.open_embedder(model, method, instruction, max_length=max_length, device=device, dtype=dtype)
    typer.echo(str(embedder.explain(text, role=role)))


def _show_recommended(model: str) -> None:
    """Print the method recommended for each use on a model, with scores that it was chosen by."""
    from eddy_embed.methods import entry_for
    from eddy_embed.model.loading.pretrained import read_backbone

    entry = entry_for(read_backbone(model, local_files_only=True))
    for use, chosen in entry.uses.items():
        typer.echo(f"{use}: {typer.style(chosen.method, bold=True)} ({entry.grounds})")
        baseline = f"{chosen.baseline}+{chosen.post}" if chosen.post else chosen.baseline
        for measured, (score, baseline_score) in chosen.scores.items():
            typer.echo(f"  {measured}: {chosen.fitted} {score:.3f}, {baseline} {baseline_score:.3f}")
        if chosen.post:
            typer.echo(f"  join +{chosen.post} where a library is large enough to fit it")


def _write_array(vectors: Floats, sink: BinaryIO) -> None:
    from numpy.lib import format as npy

    npy.write_array_header_1_0(sink, npy.header_data_from_array_1_0(vectors))
    # Not np.save, whose errors do not say that the disk is full.
    sink.write(vectors.tobytes())


def _write_rows(texts: list[str], vectors: Floats, sink: BinaryIO | None) -> None:
    for text, vector in zip(texts, vectors, strict=True):
        row = json.dumps({"text": text, "vector": vector.tolist()}, ensure_ascii=False)
        if sink is None:
            typer.echo(row)
        else:
            sink.write(f"{row}\n".encode())
