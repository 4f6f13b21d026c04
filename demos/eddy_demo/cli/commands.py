"""`eddy-demo`: documents to a library, questions to passages."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from eddy_demo import handbook
from eddy_demo.cli import console
from eddy_demo.cli.options import (
    DEFAULT_LIBRARY,
    CardsOption,
    ConcurrencyOption,
    CountOption,
    DeviceOption,
    LibraryOption,
    MethodOption,
    ModelOption,
    RayOption,
    RebuildOption,
    SameMethodOption,
    SameModelOption,
    err,
    out,
)
from eddy_demo.errors import NoLibrary
from eddy_demo.library.ray_cluster import Cluster, asked_cluster
from eddy_demo.library.recipe import MODEL, PASSAGE_SIZE, choose_recipe, delete, holds_library, read_recipe

if TYPE_CHECKING:
    from eddy_demo.ask import Answer
    from eddy_demo.library.recipe import Recipe
    from eddy_demo.readers.documents import Reading
    from eddy_embed import Embedder


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files or folders: .txt .md .html .pdf .docx, and .jsonl, a row a document."),
    ],
    library: LibraryOption = DEFAULT_LIBRARY,
    model: ModelOption = None,
    method: MethodOption = None,
    passage_size: Annotated[
        int | None,
        typer.Option(min=8, help=f"Most tokens in a passage. New libraries: {PASSAGE_SIZE}.", show_default=False),
    ] = None,
    late: Annotated[
        bool | None,
        typer.Option(
            "--late/--separate",
            help="Read passages out of the pass over their document, or embed each by itself. New libraries: late.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = None,
    rebuild: RebuildOption = False,
    sync: Annotated[
        bool, typer.Option("--sync", help="Take out documents of these paths whose files are no longer there.")
    ] = False,
    ray: RayOption = None,
    concurrency: ConcurrencyOption = None,
    num_gpus: CardsOption = None,
) -> None:
    """Embed documents and store them.

    Again: only what is new or has changed.
    """
    from eddy_demo.library.library_lock import writing

    with writing(library):
        reading = _read(paths)
        if rebuild:
            _clear(library, device, model, method, passage_size, late)
        recipe = choose_recipe(library, model, method, passage_size, late)
        _ingest(library, recipe, reading, device, asked_cluster(ray, concurrency, num_gpus, device))
        _take_out_gone(library, paths, reading, sync)
    if reading.skipped:
        raise typer.Exit(1)


def ask(
    question: Annotated[str, typer.Argument(help="In quotes.")],
    library: LibraryOption = DEFAULT_LIBRARY,
    k: CountOption = 3,
    model: SameModelOption = None,
    method: SameMethodOption = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Show the passages nearest to a question.

    Each with its document, exact characters, true cosine, and the best sentence highlighted.
    """
    from eddy_demo.ask import check_question

    check_question(question)
    if not holds_library(library):
        read_recipe(library)  # says what to do
    recipe = choose_recipe(library, model, method)
    embedder = _load(recipe, device)
    found = _ask(library, embedder, [question], k)[0]
    if as_json:
        typer.echo(json.dumps([asdict(answer) for answer in found], indent=2, ensure_ascii=False))
    else:
        console.answers(out, question, found)


def demo(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Documents; Eddy's own handbook if left out.", show_default=False)
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option("--question", "-q", help="Instead of the three on the handbook.", show_default=False),
    ] = None,
    library: LibraryOption = DEFAULT_LIBRARY,
    k: CountOption = 2,
    model: ModelOption = None,
    method: MethodOption = None,
    device: DeviceOption = None,
    rebuild: RebuildOption = False,
) -> None:
    """Ingest the handbook and ask it three questions.

    Or documents and questions of your own.
    """
    from eddy_demo.library.library_lock import writing

    started = time.monotonic()
    with writing(library):
        reading = _read(paths or [handbook.folder()])
        if rebuild:
            _clear(library, device, model, method)
        recipe = choose_recipe(library, model, method)
        embedder = _ingest(library, recipe, reading, device)
    embedder = embedder or _load(recipe, device)
    questions = question or list(handbook.QUESTIONS)
    for asked, found in zip(questions, _ask(library, embedder, questions, k), strict=True):
        console.answers(out, asked, found)
    read_and_asked = f"{console.count(len(reading.documents), 'document')}, {console.count(len(questions), 'question')}"
    out.print(f"\n{read_and_asked}: {time.monotonic() - started:.0f} seconds.", style="dim")
    if recipe.model == MODEL:
        out.print(f"{MODEL} is a small model, there without a download; a larger --model finds more.", style="dim")
    example = "How do I use my own model?" if not paths else "..."
    out.print("\nAsk the same library a question of your own:", style="bold")
    out.print(Text(f"  {console.command()} ask {shlex.quote(example)}{_library_option(library)}"), soft_wrap=True)
    out.print("Read documents of your own:", style="bold")
    out.print(Text(f"  {console.command()} ingest PATH --library my-library"), soft_wrap=True)


def hits(
    queries: Annotated[Path, typer.Option(help='Rows {"id", "text"} (.jsonl).')],
    qrels: Annotated[Path, typer.Option(help="Table: query-id, doc-id, score, separated by tabs.")],
    library: Annotated[
        list[Path] | None, typer.Option("--library", "-l", help="Folder of a library; may be repeated.")
    ] = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Measure how often the right document is found.

    By the search that `ask` uses, and by BM25 over the same passages.
    """
    from eddy_demo.evaluate import read_questions, score_bm25, score_library
    from eddy_demo.library.index import open_library

    questions = read_questions(queries, qrels)
    scores = []
    folders = library or [DEFAULT_LIBRARY]
    for folder in folders:
        with open_library(folder, _load(read_recipe(folder), device)) as opened:
            scores.append(score_library(opened, questions))
            if folder is folders[-1]:
                scores.append(score_bm25(opened, questions))
    if as_json:
        typer.echo(json.dumps([asdict(score) for score in scores], indent=2))
    else:
        console.scores(out, scores, len(questions))


def _read(paths: list[Path]) -> Reading:
    from eddy_demo.readers.documents import read

    with err.status("Reading …"):
        return read(paths)


def _take_out_gone(library: Path, paths: list[Path], reading: Reading, sync: bool) -> None:
    from eddy_demo.library.ingest import gone_documents, remove_documents

    gone = gone_documents(library, paths, reading)
    if sync:
        remove_documents(library, gone)
    console.gone(err, list(gone.values()), taken_out=sync)


def _clear(library: Path, device: str | None, *choices: Any) -> None:
    """Delete a library, once it is certain that the model and method for the new one work."""
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(empty) / "library"
        _load(choose_recipe(folder, *choices), device)
    delete(library)


def _load(recipe: Recipe, device: str | None) -> Embedder:
    if recipe.model == MODEL or Path(recipe.model).is_dir():
        # Nothing to download: a bar over milliseconds of reading would only stay behind on the terminal.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with err.status(f"Loading {recipe.model} with {recipe.method} …"):
        from eddy_demo.library.ingest import load_embedder

        return load_embedder(recipe, device)


def _ask(library: Path, embedder: Embedder, questions: list[str], k: int) -> list[list[Answer]]:
    from eddy_demo.ask import ask as ask_library
    from eddy_demo.library.index import names_of, open_library

    with open_library(library, embedder) as opened:
        for said, names in (
            ("Left out", names_of(opened, lambda found: not found)),
            ("Found as it was before", names_of(opened, lambda found: found)),
        ):
            if names:
                shown = ", ".join(names)
                err.print(f"{said}, because writing it was interrupted: {shown}. Ingest it again.", style="yellow")
        if not opened.entries():
            raise NoLibrary(f"the library in {library} has no document; add some with: eddy-demo ingest PATH")
        return [ask_library(opened, question, k) for question in questions]


def _ingest(
    library: Path, recipe: Recipe, reading: Reading, device: str | None, cluster: Cluster | None = None
) -> Embedder | None:
    """Write what is new or has changed, and say so; the embedder if one was needed."""
    from eddy_demo.library.ingest import FEW, changed_documents, ingest

    console.skipped(err, reading.skipped)
    changed = changed_documents(library, reading.documents)
    unchanged = len(reading.documents) - len(changed)
    same = f"{console.count(unchanged, 'document')} unchanged" if unchanged else ""
    if not changed:
        err.print(f"{library}: nothing to do, {same}.")
        return None
    console.notes(err, changed)
    if not holds_library(library):
        console.default(err, recipe)
    embedder = _load(recipe, device)
    started = time.monotonic()
    with console.bar(err, sum(len(document.text) for document in changed), len(changed)) as progress:
        report = ingest(library, recipe, embedder, changed, progress, cluster)
    seconds = time.monotonic() - started
    err.print(
        f"{library}: {console.count(report.written, 'document')} written ({console.count(report.passages, 'passage')}, "
        f"{console.count(report.tokens, 'token')}, {seconds:.1f} s){', ' if same else ''}{same}."
    )
    console.fitted(err, recipe, report, FEW)
    return report.embedder


def _library_option(library: Path) -> str:
    return "" if library == DEFAULT_LIBRARY else f" --library {shlex.quote(str(library))}"
