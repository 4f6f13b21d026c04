"""A small folder of documents, a library made of it, and the command line as a function."""

from __future__ import annotations

import functools
import importlib
import io
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.demo.site import GUIDE, Site, long_text, serving, two_pages
from tests.readers.threaded_readers import THREADS, real_processes, threaded_readers  # noqa: F401  (fixtures)

from chroma_eddy import Document, Index, WriteReport, open_index
from chroma_eddy import index as chroma_index
from eddy_demo import cli
from eddy_demo.cli import console as cli_console
from eddy_demo.library import library as libraries
from eddy_demo.library.settings import LibrarySettings
from eddy_demo.web import page_images
from eddy_embed.errors import NotFinite
from eddy_embed.methods.recommended import Recommendation

TIDES = """# Tides

The moon pulls the water of the sea towards it. Twice a day the water rises, and twice it falls.
Spring tides come at new moon and at full moon.

The harbour master publishes a table. Boats with a deep keel leave two hours before high water.
"""
BREAD = """Bread needs flour, water, salt and time. The dough rests overnight in a cool place.
In the morning it is folded, shaped and baked in a hot oven. A pan of water makes steam.
Steam keeps the crust soft until the loaf has risen.
"""
CLOCK = """<html><head><title>The tower clock</title></head><body><h1>The tower clock</h1>
<p>A pendulum swings once in two seconds.</p><p>The weights are wound up by hand every Monday.</p></body></html>"""
FAST = ("--method", "plain:exit=0")
"""Options of `ingest` where the method does not matter: without them, documents are read twice."""
TWO_METHODS = "plain:exit=0", "plain:exit=1"
"""What `two_methods` recommends: the fast one and the best."""
DOCUMENTS = {"tides.md": TIDES, "bread.txt": BREAD, "clock.html": CLOCK}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of the page that is skipped has failed: nobody would notice that the page is not tried any more."""
    report = yield
    if report.skipped and item.path.name.startswith("test_web_"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def threaded_drawing() -> Iterator[None]:
    """Draw pages in threads too; tests of what a process bears that draws them patch that back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_images, "subprocess", THREADS)
        yield


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


def write_documents(folder: Path) -> Path:
    """Write the documents, and nothing else, into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def recommend(patch: pytest.MonkeyPatch, best: Recommendation, fast: str = "plain:exit=0") -> None:
    """Put an entry of the bundled model into the table of what is recommended."""
    table = importlib.import_module("eddy_embed.methods.recommended")  # the package's attribute is the method
    entry = table.ModelRecommendation("for this test", best, Recommendation(fast), Recommendation("plain"))
    patch.setitem(table._OWN, ("llama", 8, 320, 8192), entry)


@pytest.fixture(scope="module")
def two_methods() -> Iterator[None]:
    """Layers find more with the bundled model, as the table has it; documents are written one by one."""
    fast, best = TWO_METHODS
    with pytest.MonkeyPatch.context() as patch:
        recommend(patch, Recommendation(best), fast)
        patch.setattr(chroma_index, "GROUP_DOCUMENTS", 1)
        yield


def fail_on(word: str, message: str, patch: pytest.MonkeyPatch) -> None:
    """Let embedding fail with NotFinite wherever a document has a word."""
    upsert = Index.upsert

    def failing(index: Index, documents: Iterable[Document], *options: Any) -> WriteReport:
        listed = list(documents)
        if any(word in document.text for document in listed):
            raise NotFinite(message)
        return upsert(index, listed, *options)

    patch.setattr(Index, "upsert", failing)


def cut_power(patch: pytest.MonkeyPatch) -> None:
    """Let a rebuild stop when the new index is in place, before the settings say so."""
    write = libraries.write_settings

    def cut(folder: Path, settings: LibrarySettings) -> None:
        if settings.next is None:
            raise OSError("the power is gone")
        write(folder, settings)

    patch.setattr(libraries, "write_settings", cut)


def opened(library: Path) -> Index:
    """The index of a library, to look into."""
    return open_index(library / "chroma", "library")


def run(*arguments: object) -> Outcome:
    """Run `eddy-demo` in this process, as its entry point does."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["eddy-demo", *map(str, arguments)])
        patch.setattr(cli, "app", _commands())
        for console in (cli_console.out, cli_console.err):
            patch.setattr(console, "width", 200)  # enough for a line that holds a temporary folder
        with pytest.raises(SystemExit) as end:
            cli.main()
    return Outcome(int(end.value.code or 0), out.getvalue(), err.getvalue())


@functools.cache
def _commands() -> Any:
    """Typer makes this of all functions again for each call, which takes as long as many commands."""
    return typer.main.get_command(cli.app)


@pytest.fixture(scope="session")
def documents_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `documents` are: a library knows them by their path."""
    return tmp_path_factory.mktemp("demo") / "documents"


@pytest.fixture(scope="session")
def library_folder(documents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the documents, in passages of one or two sentences, to copy."""
    folder = tmp_path_factory.mktemp("demo") / "library"
    ingest = ("ingest", write_documents(documents_folder), "-l", folder, "--passage-size", 24, "--method", "htp:exit=2")
    assert run(*ingest).code == 0
    return folder


@pytest.fixture
def documents(documents_folder: Path) -> Path:
    """The documents, for one test to change."""
    return write_documents(documents_folder)


@pytest.fixture
def library(library_folder: Path, documents: Path, tmp_path: Path) -> Path:
    """A library of `documents`, for one test to change."""
    return Path(shutil.copytree(library_folder, tmp_path / "library"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server whose library no test changes."""
    folder = tmp_path_factory.mktemp("demo")
    with serving(folder / "site", method=None, changed=False) as site:
        site.upload("guide.md", f"{GUIDE}\n## Notes\n\n{long_text(50)}")
        site.upload("ferry.pdf", two_pages())
        for name, text in DOCUMENTS.items():
            site.upload(name, text)
        assert {job["state"] for job in site.settled()} == {"done"}
        yield site
