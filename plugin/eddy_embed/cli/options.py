"""What the commands share: options, texts, and an embedder of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eddy_embed.errors import InvalidText
from eddy_embed.utils.memory import collector_paused

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder

_MODEL = "A name that `eddy models` shows, a folder or .gguf file, or a Hugging Face id."


def _available(model: str) -> str:
    """Return the name of a model; one that is nowhere is refused before torch is imported, which takes seconds."""
    from eddy_embed.model.loading.names import locate, reachable

    reachable(model, locate(model), {})
    return model


ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL, callback=_available)]
"""Of every command that takes no texts."""
ModelOption = Annotated[str, typer.Option("--model", help=_MODEL, callback=_available)]
"""Of those whose arguments are texts."""
MethodText = Annotated[str, typer.Option(help="Such as 'htp' or 'tp:prompt=prompteol'; see `eddy methods`.")]
Role = Annotated[Literal["document", "query"], typer.Option(help="What the texts are.")]
Instruction = Annotated[str | None, typer.Option(help="Put in front of every text.")]
MaxLength = Annotated[int | None, typer.Option(help="Most tokens in a pass. Default: the model's window.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps. Default: an accelerator if there is one.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "float64"],
    typer.Option(help="Type of the model's numbers."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def open_embedder(model: str, method: str, instruction: str | None, **options: Any) -> Embedder:
    """Return an embedder; a misspelt method is refused before anything is read."""
    with collector_paused():
        from eddy_embed.embedder import Embedder

    text = method_in_full(model, method)
    return Embedder(model, method=text, query_instruction=instruction, text_instruction=instruction, **options)


def method_in_full(model: str, method: str, **options: Any) -> str:
    """Return a method's text, with what is recommended for the model in place of `recommended`, which is then said.

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
    """Return texts named on the command line, then the lines of a file, none of them blank; - is standard input."""
    from eddy_embed.encoding.validation import checked_texts

    if file_name := next(filter(os.path.isfile, texts or []), None):
        raise typer.BadParameter(
            f"{file_name} is a file, and its name alone would be the text; did you mean --input {file_name}? To embed "
            "the name, write it to standard input, and use --input -",
            param_hint="TEXTS",
        )
    checked = checked_texts(texts or [])
    return checked if file is None else [*checked, *_lines(file)]


def _lines(file: Path) -> Iterator[str]:
    name = "standard input" if str(file) == "-" else str(file)
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{name}: byte {error.start} is not UTF-8; convert the file first") from None
    if not text:
        raise InvalidText(f"{name} is empty; give it one text a line")
    # Not splitlines(): form feeds and the like are characters of a text, not ends of a line.
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise InvalidText(f"{file}, line {number} is blank, and every line gives a vector; take it out")
        yield line.removesuffix("\r")
