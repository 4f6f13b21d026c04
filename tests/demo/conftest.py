"""A small folder of documents, a library made of it, and the command line as a function."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chroma_eddy import Index, open_index
from eddy_demo import handbook
from eddy_demo.cli import main, options

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of the page that is skipped has failed: nobody would notice that the page is not tried any more."""
    report = yield
    if report.skipped and item.path.name.startswith("test_web_"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {report.longrepr}"
    return report


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


def write_documents(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tides.md").write_text(TIDES, encoding="utf-8")
    (folder / "bread.txt").write_text(BREAD, encoding="utf-8")
    (folder / "clock.html").write_text(CLOCK, encoding="utf-8")
    return folder


def handbook_table(page: str) -> dict[str, str]:
    """The rows of the tables with two columns on a page of the handbook."""
    text = (handbook.folder() / page).read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.MULTILINE))


def opened(library: Path) -> Index:
    """The index of a library, to look into."""
    return open_index(library / "chroma", "library")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `eddy-demo` in this process, as its entry point does."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["eddy-demo", *map(str, arguments)])
        for console in (options.out, options.err):
            monkeypatch.setattr(console, "width", 200)  # enough for a line that holds a temporary folder
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "documents")


@pytest.fixture
def library(tmp_path: Path, documents: Path, run: Callable[..., Outcome]) -> Path:
    """A fresh library of the documents, in passages of one or two sentences."""
    folder = tmp_path / "library"
    outcome = run("ingest", documents, "--library", folder, "--passage-size", 24, "--method", "htp:exit=2")
    assert outcome.code == 0, outcome.err
    return folder
