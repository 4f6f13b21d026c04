"""Options that several commands share, and the consoles of the two output streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eddy_demo.library.defaults import BUNDLED_MODEL, PREFERRED_MODEL

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)

Library = Annotated[
    Path, typer.Option("--library", "-l", envvar="EDDY_LIBRARY", help="Folder of the library.", show_default="library")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A name that `eddy models` shows, a path, or a Hugging Face id. "
        f"New libraries: {PREFERRED_MODEL} where it is on this machine, else {BUNDLED_MODEL}.",
        show_default=False,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="As in plain, tp or htp:range=1-7,exit=-2. New libraries: the one that `eddy methods MODEL` shows.",
        show_default=False,
    ),
]
Fast = Annotated[
    bool | None,
    typer.Option(
        "--fast/--best",
        help="Embed without the model's layers alone, or with them at once, by what is recommended. "
        "Left out: first without, so that it can be asked at once, then with them.",
        show_default=False,
    ),
]
_FIXED = "The library has its own; another is refused."
SameModel = Annotated[str | None, typer.Option("--model", help=_FIXED, show_default=False)]
SameMethod = Annotated[str | None, typer.Option("--method", help=_FIXED, show_default=False)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps; chosen by itself if left out.", show_default=False)]
Count = Annotated[int, typer.Option("-k", min=1, max=100, help="How many passages to show.")]
Alpha = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Weight of vectors: 0 for keywords alone, 1 for them alone.", show_default=False),
]
Rerank = Annotated[
    bool,
    typer.Option("--rerank", help="Re-rank the best passages with the library's model: finds more, takes seconds."),
]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Delete the library in the folder first.")]
DEFAULT_LIBRARY = Path("library")
