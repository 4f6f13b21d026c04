"""What the commands do; this imports Chroma, and torch where a model is loaded."""

from __future__ import annotations

import json
import os
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from chroma_eddy import ALPHA, Document, IndexInUse, StoredDocument
from eddy_demo import handbook
from eddy_demo.ask import FoundPassage, check_question
from eddy_demo.ask import ask as ask_index
from eddy_demo.cli import console
from eddy_demo.cli.console import err, out, pluralize, program_name
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError, LibraryMismatch, NoLibrary
from eddy_demo.evaluate import read_questions, score_library
from eddy_demo.library import library as libraries
from eddy_demo.library.library import (
    Failures,
    Progress,
    RebuildProgress,
    change_plan,
    choose_settings,
    current_settings,
    delete_upload,
    finish_rebuild,
    lock_library,
    next_settings,
    open_library,
    open_stored,
    read_entries,
    read_progress,
    rebuild_library,
    remove_documents,
)
from eddy_demo.library.settings import (
    BUNDLED_MODEL,
    PREFERRED_MODEL,
    Choices,
    LibrarySettings,
    holds_library,
    read_settings,
)
from eddy_demo.library.sync import Root, SyncResult, forget_files, sync
from eddy_demo.library.sync import watch as watch_folders
from eddy_embed.errors import EddyError, FingerprintMismatch
from eddy_embed.utils.interrupts import Interrupted
from readers_eddy.content import NothingToRead
from readers_eddy.documents import nothing_read

if TYPE_CHECKING:
    from eddy_embed import Embedder

_NOTICEABLE_TOKENS = 5_000
"""Tokens from which the user is told beforehand that they are read again."""
_SHOWN = 2
"""Number of passages that the demo shows for each of its questions."""
_POLL = 1.0
"""Seconds between two looks for changes."""


Load = Callable[[LibrarySettings], "Embedder"]


class _Changed(Exception):
    """Files have changed while a library was read more closely."""


# --- Reading documents


def ingest(paths: list[Path], library: Path, choices: Choices, device: str | None, remove: bool) -> bool:
    """Embed documents and store them; return whether all could be read."""
    with lock_for_command(library):
        load = _loader(device)
        result = _ingest(_roots(paths), library, choices, load, remove)[1]
        deepen(library, load)
    return not result.read.skipped


def _roots(paths: list[Path]) -> list[Root]:
    """Return paths to be read whose user asks to try again what could not be read before."""
    roots = [Root(path) for path in paths]
    for root in roots:
        root.retry.add(root.real_path)
    return roots


def _ingest(
    roots: list[Root], library: Path, choices: Choices, load: Load, remove: bool = False, may_be_empty: bool = False
) -> tuple[LibrarySettings, SyncResult]:
    """Bring a library to its roots, and report on it."""
    finish_rebuild(library)
    settings = choose_settings(library, choices)
    if holds_library(library):
        change_plan(library, settings)
    types_before = [root.other_types for root in roots]
    done = ["nothing to do"]

    def write(documents: list[Document], progress: Progress) -> Failures:
        if not holds_library(library):
            console.print_default_method(err, settings)
        embedder = load(settings)
        started, characters = time.monotonic(), max(sum(len(document.text) for document in documents), 1)
        with console.progress_bar(err, "Embedding") as bar:

            def advance(embedded: float, written: int) -> None:
                progress(embedded, written)
                bar(embedded / characters, written, len(documents))

            report, failures = libraries.ingest(library, settings, embedder, documents, advance)
        sizes = f"{pluralize(report.passages, 'passage')}, {pluralize(report.tokens, 'token')}"
        written = pluralize(report.written + report.relabelled, "document")
        done[0] = f"{written} written ({sizes}, {time.monotonic() - started:.1f} s)"
        return failures

    result = sync(library, roots, write, remove=remove)
    if not (may_be_empty or result.unchanged or result.sources):
        raise NothingToRead(nothing_read([root.path for root in roots], result.read))
    is_news = types_before != [root.other_types for root in roots]
    console.print_notes(err, [result.sources[document.id] for document in result.changed])
    console.print_skipped(err, result.read.skipped, result.read.other_types if is_news else Counter())
    same = f", {pluralize(result.unchanged, 'document')} unchanged" if result.unchanged else ""
    err.print(f"{library}: {done[0]}{same}.")
    console.print_missing(err, list(result.missing.values()), removed=remove)
    return settings, result


def watch(paths: list[Path], library: Path, choices: Choices, device: str | None) -> None:
    """Embed the documents of folders, and what changes in them, until the process is interrupted.

    Raises:
        NothingToRead: A path is no folder.
    """
    for path in paths:
        if not path.is_dir():
            raise NothingToRead(f"{path} is no folder, and --watch takes folders; give the folder that holds it")
    watcher = _Watcher(paths, library, choices, device)
    with suppress(_Changed):
        watcher.read()
    err.print(Text(f"Watching {printable(', '.join(map(str, paths)))}. Ctrl-C ends it."))
    threading.Thread(target=watcher.notice, daemon=True).start()
    try:
        while True:
            watcher.go_on()
    except (KeyboardInterrupt, Interrupted):
        watcher.stop.set()
        err.print("Watching ended; the library is complete.")


class _Watcher:
    """Folders, and the library that is kept like them."""

    def __init__(self, paths: list[Path], library: Path, choices: Choices, device: str | None) -> None:
        self._library, self._choices, self._load = library, choices, _loader(device)
        self._roots = dict(zip(paths, _roots(paths), strict=True))
        self._waiting, self._changed, self.stop = dict.fromkeys(paths), threading.Event(), threading.Event()
        self._problem = ""  # of the last try

    def notice(self) -> None:
        """Note what changes; this runs in a thread of its own."""
        away = set[Path]()
        try:
            for changed, gone in watch_folders(lambda: self._roots, self._library, self.stop):
                for path in sorted(gone - away):
                    _tell(f"{path} is not there any more; it is read again when it is.")
                away = gone
                self._waiting.update(dict.fromkeys(changed))
                if changed:
                    self._changed.set()
        except DemoError as error:
            _tell(f"Error: {error}")

    def go_on(self) -> None:
        """Read what has changed, or wait for that a while."""
        try:
            if self._waiting or (holds_library(self._library) and read_settings(self._library).deepens):
                self.read()
            self._problem = ""
        except _Changed:
            return
        except (DemoError, EddyError, OSError) as error:
            if str(error) != self._problem:  # which a try a second would repeat
                self._problem = str(error)
                _tell(f"Error: {error}")
        self._changed.wait(_POLL)

    def read(self) -> None:
        """Read the folders that have changed, then all more closely."""
        self._changed.clear()
        with lock_for_command(self._library):
            while self._waiting:
                path = next(iter(self._waiting))
                del self._waiting[path]
                roots = [self._roots[path]]
                try:
                    _ingest(roots, self._library, self._choices, self._load, remove=True, may_be_empty=True)
                except NothingToRead:  # `notice` says that it has gone
                    pass
                except (DemoError, EddyError, OSError):
                    self._waiting.setdefault(path)  # until it works
                    raise
            deepen(self._library, self._load, self._changed.is_set)


def _tell(problem: str) -> None:
    err.print(Text(printable(problem), "yellow"), soft_wrap=True)


def _loader(device: str | None) -> Load:
    """Return what loads embedders, and keeps the last two."""
    cached = lru_cache(maxsize=2)(lambda model, method: load_embedder(LibrarySettings(model, method), device))
    return lambda settings: cached(settings.model, settings.method)


def load_embedder(settings: LibrarySettings, device: str | None) -> Embedder:
    """Load the embedder of settings, and say so meanwhile."""
    if settings.model == BUNDLED_MODEL or Path(settings.model).is_dir():
        # Nothing is downloaded, and the bars for reading files would stay on the terminal.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with err.status(f"Loading {settings.model} with {settings.method} …"):
        from eddy_embed import Embedder  # imports torch

        embedder = Embedder(settings.model, method=settings.method, device=device)
    _ = embedder.post  # which shows a bar of its own where it is calibrated
    return embedder


# --- Reading more closely, and making anew


def deepen(library: Path, load: Load, has_changed: Callable[[], bool] = lambda: False) -> None:
    """Rebuild a library that is to be deepened; it can be asked meanwhile, and after an interruption.

    Raises:
        _Changed: Files have changed; another call goes on.
    """
    settings = read_settings(library) if holds_library(library) else None
    following = None if settings is None or not settings.deepens else settings.next
    before = read_progress(library)
    if following is None or not before.total:
        return
    began = time.monotonic()
    noticeable = before.tokens * (1 - before.done) >= _NOTICEABLE_TOKENS
    if noticeable:
        ask = f'{program_name()} ask "..."{console.library_option(library)}'
        err.print(Text.assemble("Searchable now: ", (ask, "bold"), ", in another terminal. Ctrl-C leaves it so."))
    fast = "The library answers from its fast index"
    try:
        with _hinting(f"{fast}. Run the same command again to read on, or with --fast to leave it so."):
            rebuild(library, following, load, "Reading more closely", has_changed)
    except EddyError:
        err.print(Text(f"{fast}; --fast leaves it so.", "yellow"))
        raise
    if noticeable:
        err.print(Text(f"{library}: read more closely, with {following.method} ({time.monotonic() - began:.0f} s)."))


def rebuild(
    library: Path,
    settings: LibrarySettings,
    load: Load,
    what: str = "Embedding",
    has_changed: Callable[[], bool] = lambda: False,
) -> None:
    """Embed all documents again; the caller must hold the lock of the library."""
    embedder = load(settings)
    with console.progress_bar(err, what, stays=False) as show:

        def report(now: RebuildProgress) -> None:
            show(now.done, now.written, now.total)
            if has_changed():
                raise _Changed

        rebuild_library(library, settings, embedder, report)


def rebuild_with(library: Path, choices: Choices, device: str | None) -> None:
    """Embed all documents again by other choices; without any, go on with a rebuild."""
    next_settings(read_settings(library), choices)  # refuses wrong ones before it waits
    with lock_for_command(library):
        stored = current_settings(library)
        goes_on = stored.next is not None and choices == Choices()
        settings = stored.next if goes_on and stored.next is not None else next_settings(stored, choices)
        rebuild(library, settings, _loader(device))
    err.print(Text(f"{library}: made anew with {settings.model}, {settings.method}."))


@contextmanager
def lock_for_command(folder: Path) -> Iterator[None]:
    """Lock a library for a command, and add to an interruption the hint how to continue.

    Raises:
        IndexInUse: Another process writes, and is not rebuilding the library, which takes long.
    """
    with _hinting("Run the same command again to go on where it stopped."), ExitStack() as held:
        try:
            held.enter_context(lock_library(folder))
        except IndexInUse as error:
            settings = read_settings(folder) if holds_library(folder) else None
            if settings is None or settings.next is None:
                raise
            does = "is reading it more closely" if settings.deepens else "is making it anew"
            done = f"{does}, {read_progress(folder).done:.0%} done"
            err.print(Text(f"{folder}: {error.holder} {done}. Waiting for that; meanwhile the library can be asked."))
            held.enter_context(lock_library(folder, seconds=-1))
        yield


@contextmanager
def _hinting(hint: str) -> Iterator[None]:
    """Let an interruption say how to continue, if it does not yet."""
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as error:
        stop = error if isinstance(error, Interrupted) else Interrupted()
        stop.hint = stop.hint or hint
        raise stop from None


# --- Asking


def ask(
    question: str, library: Path, k: int, alpha: float | None, rerank: bool, device: str | None, as_json: bool
) -> None:
    """Print the passages that fit a question best."""
    check_question(question)
    weight, settings = ALPHA if alpha is None else alpha, current_settings(library)
    try:
        passages = _ask(library, load_embedder(settings, device), [question], k, weight, rerank)[0]
    except (LibraryMismatch, FingerprintMismatch):
        anew = current_settings(library)
        if (anew.model, anew.method) == (settings.model, settings.method):
            raise
        # It was rebuilt meanwhile.
        passages = _ask(library, load_embedder(anew, device), [question], k, weight, rerank)[0]
    if as_json:
        typer.echo(json.dumps([asdict(passage) for passage in passages], indent=2, ensure_ascii=False))
    else:
        console.print_answers(out, question, passages)


def _ask(
    library: Path, embedder: Embedder, questions: Sequence[str], k: int, alpha: float = ALPHA, rerank: bool = False
) -> list[list[FoundPassage]]:
    with open_library(library, embedder) as opened:
        entries = opened.read(opened.entries)
        console.print_incomplete(err, opened.read(opened.incomplete), entries)
        if not entries:
            raise NoLibrary(f"the library in {library} has no document; add some with: eddy-demo ingest PATH")
        return [ask_index(opened, question, k, alpha, rerank) for question in questions]


def demo(library: Path, choices: Choices, device: str | None) -> None:
    """Ingest the handbook and ask its questions, from the fast index unless the choices ask for the best."""
    started, load = time.monotonic(), _loader(device)
    with lock_for_command(library):
        settings, result = _ingest(_roots([handbook.folder()]), library, choices, load)
        if choices.fast is False:
            deepen(library, load)
            settings = current_settings(library)
    questions = handbook.QUESTIONS
    for text, passages in zip(questions, _ask(library, load(settings), questions, _SHOWN), strict=True):
        console.print_answers(out, text, passages)
    documents = pluralize(result.unchanged + len(result.changed), "document")
    seconds = time.monotonic() - started
    out.print(f"\n{documents}, {pluralize(len(questions), 'question')}: {seconds:.0f} seconds.", style="dim")
    option = console.library_option(library)
    if settings.model == BUNDLED_MODEL:
        out.print(
            f"{BUNDLED_MODEL} is a small model, there without a download. One that finds more: eddy models get "
            f"{PREFERRED_MODEL}, then {program_name()} library rebuild --model {PREFERRED_MODEL}{option}.",
            style="dim",
        )
    closer = ", which reads it more closely meanwhile" * settings.deepens
    steps = {
        "Ask the same library a question of your own:": f"ask 'How do I use my own model?'{option}",
        "Read documents of your own:": "ingest PATH --library my-library",
        f"Open the library as a page{closer}:": f"serve --open{option}",
    }
    for step, line in steps.items():
        out.print(step, style="bold")
        out.print(Text(f"  {program_name()} {line}"), soft_wrap=True)


def evaluate(queries: Path, folders: list[Path], rerank: bool, device: str | None, as_json: bool) -> None:
    """Print how often the search finds what answers."""
    questions = read_questions(queries)
    scores = []
    for folder in folders:
        with open_library(folder, load_embedder(current_settings(folder), device)) as opened:
            scores += score_library(opened, questions, rerank)
    if as_json:
        typer.echo(json.dumps([asdict(score) for score in scores], indent=2))
    else:
        console.print_scores(out, scores, len(questions))


# --- The library


def list_documents(library: Path, as_json: bool) -> None:
    """Print the documents of a library."""
    settings = current_settings(library)
    entries = sorted(read_entries(library).values(), key=lambda entry: str(entry.metadata["name"]))
    if as_json:
        typer.echo(json.dumps([_entry_data(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    title = f"{library}: {settings.model} with {settings.method}{_plan(library, settings)}"
    table = Table(title=title, title_justify="left")
    table.add_column("id")
    table.add_column("document", overflow="fold")
    for column in ("pages", "passages", "tokens"):
        table.add_column(column, justify="right")
    for entry in entries:
        name = Text(printable(str(entry.metadata["name"])))
        if not entry.complete:
            name.append("  not complete: ingest it again", "yellow")
        pages = str(len(entry.page_starts)) if entry.page_starts else ""
        table.add_row(entry.id, name, pages, f"{entry.passages:,}", f"{entry.tokens:,}")
    out.print(table)


def _plan(library: Path, settings: LibrarySettings) -> str:
    done = f"{read_progress(library).done:.0%}"
    if settings.deepens:
        return f" (fast; {done} read more closely, which `eddy-demo ingest` continues)"
    notes = [str(settings.plan)] if settings.plan != "chosen" else []
    if settings.next is not None:
        new = f"{settings.next.model}, {settings.next.method}"
        notes.append(f"{done} made anew with {new}, which `eddy-demo library rebuild` continues")
    return f" ({'; '.join(notes)})" if notes else ""


def _entry_data(entry: StoredDocument) -> dict[str, Any]:
    counts = {name: getattr(entry, name) for name in ("passages", "sentences", "tokens", "characters")}
    pages = {"pages": len(entry.page_starts)} if entry.page_starts else {}
    return {"id": entry.id, **entry.metadata, **pages, **counts, "complete": entry.complete}


def remove(documents: list[str], library: Path, erase: bool) -> None:
    """Remove documents from a library, and the files of those that the page received."""
    if not (documents or erase):
        raise NoLibrary("name a document; `eddy-demo library list` shows those there are")
    with lock_for_command(library):
        entries = read_entries(library)
        chosen: dict[str, StoredDocument] = {}
        for wanted in documents:
            found = [entry for entry in entries.values() if wanted in (entry.id, entry.metadata["name"])]
            if not found:
                raise NoLibrary(f"no document {wanted!r} in {library}; `eddy-demo library list` shows those there are")
            if len(found) > 1:
                ids = ", ".join(entry.id for entry in found)
                raise NoLibrary(f"{len(found)} documents of {library} are called {wanted!r}; name one by its id: {ids}")
            chosen[found[0].id] = found[0]
        for entry in chosen.values():  # before their documents, which the page would read again
            delete_upload(library, str(entry.metadata["origin"]))
        remove_documents(library, chosen, erase=erase)
        forget_files(library, chosen.values())
    names = ", ".join(printable(str(entry.metadata["name"])) for entry in chosen.values())
    err.print(Text(f"{library}: {f'taken out: {names}' if names else 'removed texts are erased'}."))


def check(library: Path, full: bool) -> None:
    """Mend vectors, and print the problem of each damaged document; exit with status 1 if there is one."""
    with lock_for_command(library), open_stored(library) as index:
        with err.status("Checking …"):
            problems = index.check(full=full)
        entries = index.entries()
    if not problems:
        err.print(Text(f"{library}: no damage in {pluralize(len(entries), 'document')}."))
        return
    for id_, problem in problems.items():
        name = str(entries[id_].metadata["name"]) if id_ in entries else id_
        err.print(Text(f"{printable(name)}: {problem}", "yellow"))
    raise DemoError(f"damaged in {library}: {pluralize(len(problems), 'document')}; ingest them again")


# --- The page


def serve(
    library: Path,
    choices: Choices,
    device: str | None,
    generate: bool | None,
    place: tuple[str, int],
    token: str | None,
    names: set[str],
    open_page: bool,
) -> None:
    """Open a library as a page at a host and port, under further names, until the process is interrupted."""
    from eddy_demo.web.library_reader import LibraryOptions
    from eddy_demo.web.server import addresses, bind
    from eddy_demo.web.server import serve as run
    from eddy_embed.integrations.http_guard import LOOPBACK

    listener, host = bind(*place), place[0]
    address, known_names = addresses(host, listener)
    local = listener.getsockname()[0] in LOOPBACK
    if not (local or token):
        listener.close()
        raise DemoError(
            f"whoever reaches {host} could read and change the library: set a token that only its readers know, in the "
            "environment variable EDDY_TOKEN or with --token, or leave out --host"
        )

    def started() -> None:
        only = "on this machine only" if local else "for other machines too"
        how = ", opened with ?token=TOKEN at the end" if token else ""
        err.print(
            Text.assemble("Eddy is at ", (address, "bold cyan"), f" {only}{how}  (library: {library}; Ctrl-C ends it)")
        )
        if open_page:
            webbrowser.open(f"{address}?token={quote(token)}" if token else address)

    try:
        options = LibraryOptions(library, choices.model, choices.method, device, generate)
        run(options, listener, known_names | names, started=started, access_token=token)
    except (KeyboardInterrupt, Interrupted):
        err.print("Stopped. What was not read yet goes on when it is started again.")
