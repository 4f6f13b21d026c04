"""The command line: `eddy embed`, `eddy explain`, `eddy methods`."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eddy_embed import __version__
from eddy_embed.errors import EddyError, InvalidText, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from eddy_embed.embedder import Embedder

app = typer.Typer(
    name="eddy",
    help="Turn a language model into an embedding model, without training it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[str, typer.Option(help="Bundled name, folder, or Hugging Face id.")]
MethodText = Annotated[str, typer.Option(help="Such as 'htp' or 'tp:prompt=prompteol'; see `eddy methods`.")]
Role = Annotated[Literal["document", "query"], typer.Option(help="What the texts are.")]
Instruction = Annotated[str | None, typer.Option(help="Put in front of every text.")]
MaxLength = Annotated[int | None, typer.Option(help="Most tokens in a pass. Default: the model's window.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps. Default: an accelerator if there is one.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eddy-embed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def methods() -> None:
    """List the methods, their parameters and defaults."""
    from eddy_embed import methods as registry

    for name in registry.names():
        summary, parameters = registry.describe(name)
        shown = ", ".join(f"{key}={'auto' if value is None else value}" for key, value in parameters.items())
        typer.echo(f"{typer.style(name, bold=True)}\n  {summary}\n  {shown}")


@app.command()
def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to embed.")] = None,
    model: Model = "eddy-tiny",
    method: MethodText = "htp",
    file: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one text a line; - for standard input.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .npy or .jsonl file. Default: JSON lines on standard output."),
    ] = None,
    role: Role = "document",
    instruction: Instruction = None,
    max_length: MaxLength = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Embed texts, one vector each."""
    if output is not None and output.suffix not in (".npy", ".jsonl"):
        raise typer.BadParameter(f"{output} must end in .npy or .jsonl", param_hint="--output")
    given = list(_lines(texts, file))
    if not given:
        raise typer.BadParameter("no texts; give some, or a file with --input", param_hint="TEXTS")
    embedder = _embedder(model, method, instruction, max_length, device, dtype)
    embedder.show_progress = len(given) > 1 and sys.stderr.isatty()
    vectors = embedder.encode_query(given) if role == "query" else embedder.encode_document(given)
    _write(given, vectors, output)
    counts = embedder.counts
    if counts.windowed_texts:
        typer.echo(
            f"{counts.windowed_texts} of {counts.texts} texts exceed the window and were read in several", err=True
        )


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="A text.")],
    model: Model = "eddy-tiny",
    method: MethodText = "htp",
    role: Role = "document",
    instruction: Instruction = None,
    max_length: MaxLength = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Show what happens to a text: its tokens, placeholders, copies, layers, pooled positions and cost."""
    typer.echo(str(_embedder(model, method, instruction, max_length, device, dtype).explain(text, role=role)))


@app.command()
def evaluate(
    systems: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method's text form, or bm25, overlap. Repeat for several."),
    ] = None,
    model: Model = "eddy-tiny",
    data: Annotated[
        Path | None, typer.Option(envvar="EDDY_EVAL_DATA", help="Folder with sts/, retrieval/, classification/.")
    ] = None,
    tasks: Annotated[list[str] | None, typer.Option("--task", "-t", help="Only this task. Repeat for several.")] = None,
    passage_size: Annotated[int, typer.Option(help="Most tokens in a passage; the best one finds its document.")] = 256,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .json file for scores and intervals.")
    ] = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Score methods on local tasks, with baselines, intervals and cost; the first method is the reference."""
    from eddy_embed import methods as registry
    from eddy_embed.embedder import Embedder
    from eddy_embed.evaluate import report
    from eddy_embed.evaluate.run import Evaluation
    from eddy_embed.evaluate.tasks import find_tasks

    missing = [name for name in ("bm25s", "scipy", "sklearn") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{', '.join(missing)} not installed; pip install 'eddy-embed[evaluate]'")
    if data is None:
        raise typer.BadParameter("name a folder, or set EDDY_EVAL_DATA", param_hint="--data")
    baselines = ("bm25", "overlap")
    wanted = [
        system if system in baselines else str(registry.parse(system))
        for system in dict.fromkeys([*(systems or ["plain"]), *baselines])
    ]
    outcomes = []
    evaluation = Evaluation(
        lambda method: Embedder(model, method=method, device=device, dtype=dtype, show_progress=sys.stderr.isatty()),
        passage_size,
    )
    for task in find_tasks(data, tasks):
        for system in wanted:
            typer.echo(f"{task.name}: {system}", err=True)
            outcome = evaluation.run(system, task)
            if outcome is not None:
                outcomes.append(outcome)
        evaluation.forget(task)
    typer.echo(report.table(outcomes, wanted[0]))
    if output is not None:
        about = {"model": model, "passage_size": passage_size, "dtype": dtype, "version": __version__}
        report.save(outcomes, wanted[0], output, about)


def _embedder(
    model: str, method: str, instruction: str | None, max_length: int | None, device: str | None, dtype: str
) -> Embedder:
    from eddy_embed import methods as registry

    registry.parse(method)  # a misspelt method should not wait for a model to load
    from eddy_embed.embedder import Embedder

    return Embedder(
        model,
        method=method,
        query_instruction=instruction,
        text_instruction=instruction,
        max_length=max_length,
        device=device,
        dtype=dtype,
    )


def _lines(texts: list[str] | None, file: Path | None) -> Iterator[str]:
    yield from texts or []
    if file is None:
        return
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        decoded = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{file}: byte {error.start} is not UTF-8; convert the file first") from None
    # Not splitlines(): form feeds and the like are characters of a text, not ends of a line.
    lines = decoded.removesuffix("\n").split("\n") if decoded else []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise InvalidText(f"{file}, line {number} is blank, and every line gives a vector; take it out")
        yield line.removesuffix("\r")


def _write(texts: list[str], vectors: NDArray[np.float32], output: Path | None) -> None:
    if output is not None and output.suffix == ".npy":
        import numpy as np

        np.save(output, vectors)
        return
    rows = (
        json.dumps({"text": text, "vector": vector.tolist()}, ensure_ascii=False)
        for text, vector in zip(texts, vectors, strict=True)
    )
    if output is None:
        for row in rows:
            typer.echo(row)
    else:
        output.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def main() -> None:
    """Run the command line; errors of ours and of the file system end in a sentence, not a traceback."""
    try:
        app()
    except (EddyError, OSError, MemoryError) as error:
        typer.echo(f"eddy: {error}", err=True)
        raise SystemExit(1) from None
