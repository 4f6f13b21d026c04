"""The commands that write to a library, ask it, and measure it."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from chroma_eddy.query.options import ALPHA
from eddy_demo import handbook
from eddy_demo.ask import FoundPassage, check_question
from eddy_demo.ask import ask as ask_index
from eddy_demo.cli import console, options
from eddy_demo.cli.console import pluralize, program_name
from eddy_demo.cli.options import err, out
from eddy_demo.errors import NoLibrary
from eddy_demo.evaluate import read_questions, score_library
from eddy_demo.library.defaults import BUNDLED_MODEL, PREFERRED_MODEL
from eddy_demo.library.index import open_library
from eddy_demo.library.ingest import changed_documents, load_embedder, missing_documents, remove_documents
from eddy_demo.library.ingest import ingest as ingest_documents
from eddy_demo.library.library_lock import lock_for_command
from eddy_demo.library.ray_cluster import RayCluster, ray_cluster
from eddy_demo.library.recipe import (
    DEFAULT_PASSAGE_SIZE,
    LibraryRecipe,
    choose_recipe,
    delete_library,
    holds_library,
    read_recipe,
)
from eddy_demo.readers.documents import ReadResult, read_documents
from eddy_embed import Embedder


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="Files or folders: .txt .md .html .pdf .docx, and .jsonl, a row a document.")
    ],
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: options.Method = None,
    passage_size: Annotated[
        int | None,
        typer.Option(
            min=8, help=f"Most tokens in a passage. New libraries: {DEFAULT_PASSAGE_SIZE}.", show_default=False
        ),
    ] = None,
    late: Annotated[
        bool | None,
        typer.Option(
            "--late/--separate",
            help="Take passage vectors from a pass over the document, or embed each by itself. New libraries: late.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = None,
    rebuild: options.Rebuild = False,
    sync: Annotated[
        bool, typer.Option("--sync", help="Remove documents of these paths whose files no longer exist.")
    ] = False,
    ray: options.Ray = None,
    concurrency: options.Concurrency = None,
    num_gpus: options.Gpus = None,
) -> None:
    """Embed documents and store them.

    Run again, it embeds only new and changed documents.
    """
    with lock_for_command(library):
        result = _read(paths)
        if rebuild:
            _delete_library(library, device, model, method, passage_size, late)
        recipe = choose_recipe(library, model, method, passage_size, late)
        _ingest(library, recipe, result, device, ray_cluster(ray, concurrency, num_gpus, device))
        _handle_missing(library, paths, result, sync)
    if result.skipped:
        raise typer.Exit(1)


def ask(
    question: Annotated[str, typer.Argument(help="In quotes.")],
    library: options.Library = options.DEFAULT_LIBRARY,
    k: options.Count = 3,
    alpha: options.Alpha = ALPHA,
    model: options.SameModel = None,
    method: options.SameMethod = None,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Show the passages that fit a question best, by meaning and by words.

    Each has its document, exact characters, true cosine, and the best sentence highlighted.
    """
    check_question(question)
    if not holds_library(library):
        read_recipe(library)  # raises, with the remedy
    recipe = choose_recipe(library, model, method)
    embedder = _load(recipe, device)
    passages = _ask(library, embedder, [question], k, alpha)[0]
    if as_json:
        typer.echo(json.dumps([asdict(passage) for passage in passages], indent=2, ensure_ascii=False))
    else:
        console.print_answers(out, question, passages)


def demo(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Documents; Eddy's own handbook if left out.", show_default=False)
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option("--question", "-q", help="Instead of the three on the handbook.", show_default=False),
    ] = None,
    library: options.Library = options.DEFAULT_LIBRARY,
    k: options.Count = 2,
    model: options.Model = None,
    method: options.Method = None,
    device: options.Device = None,
    rebuild: options.Rebuild = False,
) -> None:
    """Ingest the handbook and ask it three questions, or use documents and questions of your own."""
    started = time.monotonic()
    with lock_for_command(library):
        result = _read(paths or [handbook.folder()])
        if rebuild:
            _delete_library(library, device, model, method)
        recipe = choose_recipe(library, model, method)
        embedder = _ingest(library, recipe, result, device)
    embedder = embedder or _load(recipe, device)
    questions = question or list(handbook.QUESTIONS)
    for text, passages in zip(questions, _ask(library, embedder, questions, k), strict=True):
        console.print_answers(out, text, passages)
    read_and_asked = f"{pluralize(len(result.documents), 'document')}, {pluralize(len(questions), 'question')}"
    out.print(f"\n{read_and_asked}: {time.monotonic() - started:.0f} seconds.", style="dim")
    if recipe.model == BUNDLED_MODEL:
        out.print(
            f"{BUNDLED_MODEL} is a small model, there without a download. One that finds more: eddy models get "
            f"{PREFERRED_MODEL}, then the same with --rebuild.",
            style="dim",
        )
    example = "How do I use my own model?" if not paths else "..."
    out.print("\nAsk the same library a question of your own:", style="bold")
    out.print(Text(f"  {program_name()} ask {shlex.quote(example)}{_library_option(library)}"), soft_wrap=True)
    out.print("Read documents of your own:", style="bold")
    out.print(Text(f"  {program_name()} ingest PATH --library my-library"), soft_wrap=True)


def hits(
    queries: Annotated[Path, typer.Option(help='Rows {"id", "text"} (.jsonl).')],
    qrels: Annotated[Path, typer.Option(help="Table: query-id, doc-id, score, separated by tabs.")],
    library: Annotated[
        list[Path] | None, typer.Option("--library", "-l", help="Folder of a library; may be repeated.")
    ] = None,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Measure how often the search finds the right document.

    Compares the search of `ask` with meaning alone and words alone.
    """
    questions = read_questions(queries, qrels)
    scores = []
    for folder in library or [options.DEFAULT_LIBRARY]:
        with open_library(folder, _load(read_recipe(folder), device)) as opened:
            scores += score_library(opened, questions)
    if as_json:
        typer.echo(json.dumps([asdict(score) for score in scores], indent=2))
    else:
        console.print_scores(out, scores, len(questions))


def _read(paths: list[Path]) -> ReadResult:
    with err.status("Reading …"):
        return read_documents(paths)


def _handle_missing(library: Path, paths: list[Path], result: ReadResult, sync: bool) -> None:
    missing = missing_documents(library, paths, result)
    if sync:
        remove_documents(library, missing)
    console.print_missing(err, list(missing.values()), removed=sync)


def _delete_library(library: Path, device: str | None, *choices: Any) -> None:
    """Delete a library, after a check that the model and method of the new one work."""
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(empty) / "library"
        _load(choose_recipe(folder, *choices), device)
    delete_library(library)


def _load(recipe: LibraryRecipe, device: str | None) -> Embedder:
    if recipe.model == BUNDLED_MODEL or Path(recipe.model).is_dir():
        # Nothing is downloaded, and the bars for reading files would stay on the terminal.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with err.status(f"Loading {recipe.model} with {recipe.method} …"):
        return load_embedder(recipe, device)


def _ask(
    library: Path, embedder: Embedder, questions: list[str], k: int, alpha: float = ALPHA
) -> list[list[FoundPassage]]:
    with open_library(library, embedder) as opened:
        incomplete = opened.incomplete().values()
        for outcome, has_earlier_version in (("Left out", False), ("Found as it was before", True)):
            names = [entry.metadata["name"] for entry in incomplete if bool(entry.digest) == has_earlier_version]
            if names:
                shown = ", ".join(names)
                err.print(f"{outcome}, because writing it was interrupted: {shown}. Ingest it again.", style="yellow")
        if not opened.entries():
            raise NoLibrary(f"the library in {library} has no document; add some with: eddy-demo ingest PATH")
        return [ask_index(opened, question, k, alpha) for question in questions]


def _ingest(
    library: Path, recipe: LibraryRecipe, result: ReadResult, device: str | None, cluster: RayCluster | None = None
) -> Embedder | None:
    """Write new and changed documents and report on them; return the embedder, None if nothing was to write."""
    console.print_skipped(err, result.skipped)
    changed = changed_documents(library, result.documents)
    unchanged = len(result.documents) - len(changed)
    same = f"{pluralize(unchanged, 'document')} unchanged" if unchanged else ""
    if not changed:
        err.print(f"{library}: nothing to do, {same}.")
        return None
    console.print_notes(err, changed)
    if not holds_library(library):
        console.print_default_method(err, recipe)
    embedder = _load(recipe, device)
    started = time.monotonic()
    with console.progress_bar(err, sum(len(document.text) for document in changed), len(changed)) as progress:
        report = ingest_documents(library, recipe, embedder, changed, progress, cluster)
    seconds = time.monotonic() - started
    err.print(
        f"{library}: {pluralize(report.written, 'document')} written ({pluralize(report.passages, 'passage')}, "
        f"{pluralize(report.tokens, 'token')}, {seconds:.1f} s){', ' if same else ''}{same}."
    )
    console.print_fitting(err, recipe, report)
    return report.embedder


def _library_option(library: Path) -> str:
    return "" if library == options.DEFAULT_LIBRARY else f" --library {shlex.quote(str(library))}"
