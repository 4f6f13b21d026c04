"""What the commands do that write to a library, ask it, and measure it; this imports torch and Chroma."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from chroma_eddy import ALPHA
from eddy_demo import handbook
from eddy_demo.ask import FoundPassage, check_question
from eddy_demo.ask import ask as ask_index
from eddy_demo.cli import console
from eddy_demo.cli.console import pluralize, program_name
from eddy_demo.cli.embedding_work import deepen, load_embedder
from eddy_demo.cli.lock import lock_for_command
from eddy_demo.cli.options import err, out
from eddy_demo.errors import LibraryMismatch, NoLibrary
from eddy_demo.evaluate import read_questions, score_library
from eddy_demo.library.choices import choose_settings
from eddy_demo.library.defaults import BUNDLED_MODEL, PREFERRED_MODEL
from eddy_demo.library.index import current_settings, open_library
from eddy_demo.library.ingest import Failures, changed_documents, missing_documents, remove_documents
from eddy_demo.library.ingest import ingest as ingest_documents
from eddy_demo.library.rebuild import change_plan, finish_rebuild
from eddy_demo.library.settings import LibrarySettings, delete_library, holds_library, read_settings
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch
from readers_eddy.documents import ReadResult, SkippedFile, read_documents

Choices = tuple[Any, ...]
"""Arguments of `choose_settings`, as the user named them; None where not."""


def ingest(
    paths: list[Path],
    library: Path,
    choices: Choices,
    device: str | None,
    rebuild: bool,
    sync: bool,
) -> None:
    """Embed documents and store them."""
    with lock_for_command(library):
        result = _read(paths, library)
        failed = ingest_read(library, result, choices, device, rebuild)[2]
        handle_missing(library, paths, result, sync)
        deepen(library, device)
    if result.skipped or failed:
        raise typer.Exit(1)


def ask(
    question: str,
    library: Path,
    k: int,
    ranking: tuple[float | None, bool],
    choices: Choices,
    device: str | None,
    as_json: bool,
) -> None:
    """Print the passages that fit a question best; `ranking` is the weight of vectors, and whether to re-rank."""
    check_question(question)
    if not holds_library(library):
        read_settings(library)  # raises, with the remedy
    settings = choose_settings(library, *choices)
    alpha, rerank = ALPHA if ranking[0] is None else ranking[0], ranking[1]
    try:
        passages = _ask(library, load_embedder(settings, device), [question], k, alpha, rerank)[0]
    except (LibraryMismatch, FingerprintMismatch):
        anew = choose_settings(library, *choices)
        if anew == settings:
            raise
        passages = _ask(library, load_embedder(anew, device), [question], k, alpha, rerank)[
            0
        ]  # it was rebuilt meanwhile
    if as_json:
        typer.echo(json.dumps([asdict(passage) for passage in passages], indent=2, ensure_ascii=False))
    else:
        console.print_answers(out, question, passages)


def demo(
    paths: list[Path] | None,
    question: list[str] | None,
    library: Path,
    k: int,
    choices: Choices,
    device: str | None,
    rebuild: bool,
) -> None:
    """Ingest documents and ask questions."""
    started = time.monotonic()
    with lock_for_command(library):
        result = _read(paths or [handbook.folder()], library)
        settings, embedder, _ = ingest_read(library, result, choices, device, rebuild)
        embedder = embedder or load_embedder(settings, device)
        questions = question or list(handbook.QUESTIONS)
        for text, passages in zip(questions, _ask(library, embedder, questions, k), strict=True):
            console.print_answers(out, text, passages)
        read_and_asked = f"{pluralize(len(result.documents), 'document')}, {pluralize(len(questions), 'question')}"
        out.print(f"\n{read_and_asked}: {time.monotonic() - started:.0f} seconds.", style="dim")
        _print_next_steps(library, settings, handbook_is_asked=not paths)
        deepen(library, device)


def _print_next_steps(library: Path, settings: LibrarySettings, handbook_is_asked: bool) -> None:
    if settings.model == BUNDLED_MODEL:
        out.print(
            f"{BUNDLED_MODEL} is a small model, there without a download. One that finds more: eddy models get "
            f"{PREFERRED_MODEL}, then the same with --rebuild.",
            style="dim",
        )
    example = "How do I use my own model?" if handbook_is_asked else "..."
    out.print("\nAsk the same library a question of your own:", style="bold")
    out.print(Text(f"  {program_name()} ask {shlex.quote(example)}{console.library_option(library)}"), soft_wrap=True)
    out.print("Read documents of your own:", style="bold")
    out.print(Text(f"  {program_name()} ingest PATH --library my-library"), soft_wrap=True)


def evaluate(
    queries: Path, qrels: Path | None, libraries: list[Path], rerank: bool, device: str | None, as_json: bool
) -> None:
    """Print how often the search finds what answers."""
    questions = read_questions(queries, qrels)
    scores = []
    for folder in libraries:
        with open_library(folder, load_embedder(current_settings(folder), device)) as opened:
            scores += score_library(opened, questions, rerank)
    if as_json:
        typer.echo(json.dumps([asdict(score) for score in scores], indent=2))
    else:
        console.print_scores(out, scores, len(questions))


def _read(paths: list[Path], library: Path) -> ReadResult:
    with err.status("Reading …"):
        return read_documents(paths, exclude=library)


def handle_missing(library: Path, paths: list[Path], result: ReadResult, sync: bool) -> None:
    """Name the documents whose files no longer exist, and take them out if `sync`."""
    missing = missing_documents(library, paths, result)
    if sync and missing:
        remove_documents(library, missing)
    console.print_missing(err, list(missing.values()), removed=sync)


def _delete_library(library: Path, device: str | None, choices: Choices) -> None:
    """Delete a library, after a check that the model and method of the new one work."""
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(empty) / "library"
        load_embedder(choose_settings(folder, *choices), device)
    delete_library(library)


def _ask(
    library: Path, embedder: Embedder, questions: list[str], k: int, alpha: float = ALPHA, rerank: bool = False
) -> list[list[FoundPassage]]:
    with open_library(library, embedder) as opened:
        entries = opened.read(opened.entries)
        console.print_incomplete(err, opened.read(opened.incomplete), entries)
        if not entries:
            raise NoLibrary(f"the library in {library} has no document; add some with: eddy-demo ingest PATH")
        return [ask_index(opened, question, k, alpha, rerank) for question in questions]


def ingest_read(
    library: Path, result: ReadResult, choices: Choices, device: str | None, rebuild: bool
) -> tuple[LibrarySettings, Embedder | None, Failures]:
    """Write new and changed documents, and report on them.

    Returns:
        The library's settings, the embedder (None if nothing was to write), and the errors of texts.
    """
    if rebuild:
        _delete_library(library, device, choices)
    finish_rebuild(library)
    settings = choose_settings(library, *choices)
    if holds_library(library):
        change_plan(library, settings)
    console.print_skipped(err, result.skipped, result.other_types)
    changed = changed_documents(library, result.documents)
    unchanged = len(result.documents) - len(changed)
    same = f"{pluralize(unchanged, 'document')} unchanged" if unchanged else ""
    if not changed:
        err.print(f"{library}: nothing to do{', ' if same else ''}{same}.")
        return settings, None, {}
    console.print_notes(err, changed)
    if not holds_library(library):
        console.print_default_method(err, settings)
    embedder = load_embedder(settings, device)
    started = time.monotonic()
    with console.progress_bar(err, sum(len(document.text) for document in changed), len(changed)) as progress:
        report, failed = ingest_documents(library, settings, embedder, changed, progress)
    seconds = time.monotonic() - started
    written = pluralize(report.written + report.relabelled, "document")
    err.print(
        f"{library}: {written} written ({pluralize(report.passages, 'passage')}, "
        f"{pluralize(report.tokens, 'token')}, {seconds:.1f} s){', ' if same else ''}{same}."
    )
    named = {document.key: document.name for document in changed}
    lost = [SkippedFile(named[key], f"it cannot be embedded: {error}") for key, error in failed.items()]
    console.print_skipped(err, lost, Counter())
    return settings, embedder, failed
