"""What the commands share: options, texts, and an embedder of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eddy_embed.errors import InvalidText
from eddy_embed.utils.extras import check_installed

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder

_MODEL = "A name that `eddy models` shows, a folder or .gguf file, or a Hugging Face id."
Model = Annotated[str, typer.Option(help=_MODEL)]
ModelArgument = Annotated[str, typer.Argument(help=_MODEL)]
MethodText = Annotated[str, typer.Option(help="Such as 'htp' or 'tp:prompt=prompteol'; see `eddy methods`.")]
Role = Annotated[Literal["document", "query"], typer.Option(help="What the texts are.")]
Instruction = Annotated[str | None, typer.Option(help="Put in front of every text.")]
MaxLength = Annotated[int | None, typer.Option(help="Most tokens in a pass. Default: the model's window.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps. Default: an accelerator if there is one.")]
Picture = Annotated[Path | None, typer.Option("--plot", help="Draw it as a picture too: a .png or .svg file.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")]
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
    """An embedder; a misspelt method is refused before a model loads."""
    text = method_in_full(model, method)
    from eddy_embed.embedder import Embedder

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


def given_texts(texts: list[str] | None, file: Path | None) -> Iterator[str]:
    """Texts named on the command line, then the lines of a file, none of them blank; - is standard input."""
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


def measuring(data: Path | None, output: Path | None) -> Path:
    """The folder of the tasks, where everything that measuring needs is there."""
    check_installed("evaluate", "bm25s", "scipy", "sklearn")
    if data is None:
        raise typer.BadParameter("name a folder, or set EDDY_EVAL_DATA", param_hint="--data")
    if output is not None and output.suffix != ".jsonl":
        raise typer.BadParameter(f"{output} must end in .jsonl", param_hint="--output")
    return data
