"""What the commands share: options, texts, and an embedder of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eddy_embed.analysis.text_files import decoded
from eddy_embed.cli.progress import Bar
from eddy_embed.errors import InvalidText
from eddy_embed.utils.extras import check_installed
from eddy_embed.utils.garbage import collector_paused

if TYPE_CHECKING:
    from eddy_embed.analysis.evaluate.results import TaskResult
    from eddy_embed.analysis.evaluate.systems import System
    from eddy_embed.analysis.evaluate.tasks import Task
    from eddy_embed.embedder import Embedder

_MODEL = "A name that `eddy models` shows, a folder or .gguf file, or a Hugging Face id."


def _available(model: str) -> str:
    """The name of a model; one that is nowhere is refused before torch is imported, which takes seconds."""
    from eddy_embed.model.loading.names import locate, reachable

    reachable(model, locate(model), {})
    return model


Model = Annotated[str, typer.Option(help=_MODEL, callback=_available)]
ModelArgument = Annotated[str, typer.Argument(help=_MODEL, callback=_available)]
MethodText = Annotated[str, typer.Option(help="Such as 'htp' or 'tp:prompt=prompteol'; see `eddy methods`.")]
Role = Annotated[Literal["document", "query"], typer.Option(help="What the texts are.")]
Instruction = Annotated[str | None, typer.Option(help="Put in front of every text.")]
MaxLength = Annotated[int | None, typer.Option(help="Most tokens in a pass. Default: the model's window.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps. Default: an accelerator if there is one.")]
Picture = Annotated[Path | None, typer.Option("--plot", help="Draw it as a picture too: a .png or .svg file.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "float64", "int8"],
    typer.Option(help="Type of the model's numbers."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
TaskFolder = Annotated[
    Path | None, typer.Option(envvar="EDDY_EVAL_DATA", help="Folder with sts/, retrieval/, classification/, wsd/.")
]
Outcomes = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A .jsonl file that keeps every outcome as soon as it is there."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what the output holds already.")]


def open_embedder(model: str, method: str, instruction: str | None, **options: Any) -> Embedder:
    """An embedder; a misspelt method, or a device that is not here, is refused before anything is read."""
    with collector_paused():
        from eddy_embed.embedder import Embedder
        from eddy_embed.model.loading.pretrained import check_numbers

    check_numbers(options["device"], options["dtype"])
    text = method_in_full(model, method)
    return Embedder(model, method=text, query_instruction=instruction, text_instruction=instruction, **options)


def method_in_full(model: str, method: str, **options: Any) -> str:
    """A method's text, with what is recommended for the model in place of `recommended`, which is then said.

    Args:
        model: Its name.
        method: Text form; a misspelt one is refused.
        **options: Where a hub model is looked for, as for `read_backbone`.
    """
    from eddy_embed import methods as registry

    asked = registry.parse(method)
    if asked.recommended is None:
        return method
    from eddy_embed.model.loading.pretrained import read_backbone

    text = str(registry.resolve(asked, read_backbone(model, **options)))
    typer.echo(f"Method {text}: recommended for {asked.recommended.use} on {model}", err=True)
    return text


def given_texts(texts: list[str] | None, file: Path | None) -> list[str]:
    """Texts named on the command line, then the lines of a file, none of them blank; - is standard input."""
    from eddy_embed.encoding.validation import checked_texts

    if file_name := next(filter(os.path.isfile, texts or []), None):
        raise typer.BadParameter(
            f"{file_name} is a file, and its name alone would be the text; did you mean --input {file_name}? To embed "
            "the name, write it to standard input, and use --input -",
            param_hint="TEXTS",
        )
    given = checked_texts(texts or [])
    return given if file is None else [*given, *_lines(file)]


def _lines(file: Path) -> Iterator[str]:
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    text = decoded(str(file), raw)
    if not text:
        raise InvalidText(f"{'standard input' if str(file) == '-' else file} is empty; give it one text a line")
    # Not splitlines(): form feeds and the like are characters of a text, not ends of a line.
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise InvalidText(f"{file}, line {number} is blank, and every line gives a vector; take it out")
        yield line.removesuffix("\r")


def measuring(data: Path | None, output: Path | None) -> Path:
    """The folder of the tasks, where everything that measuring needs is there."""
    check_installed("evaluate", "bm25s", "scipy", "sklearn")
    if data is None:
        raise typer.BadParameter("name a folder, or set EDDY_EVAL_DATA", param_hint="--data")
    if output is not None and output.suffix != ".jsonl":
        raise typer.BadParameter(f"{output} must end in .jsonl", param_hint="--output")
    return data


def run_evaluation(
    model: str,
    systems: list[System],
    tasks: list[Task],
    passage_size: int,
    output: Path | None,
    fresh: bool,
    *,
    late: bool = True,
    **options: Any,
) -> list[TaskResult]:
    """Results of systems on tasks, with progress on standard error; `options` are those of `Embedder`."""
    from eddy_embed.analysis.evaluate.results import ResultStore
    from eddy_embed.analysis.evaluate.runner import Evaluation
    from eddy_embed.embedder import Embedder

    load, store = partial(Embedder, model, **options), ResultStore(output, fresh=fresh)
    with Bar() as bar:
        return Evaluation(load, passage_size, store, bar.say, bar.step, late).run(systems, tasks)
