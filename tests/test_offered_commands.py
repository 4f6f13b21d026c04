"""Commands of other packages: found by their entry points, loaded when asked for, named where they are broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.command_line import run

from eddy_embed.cli.plugins import GROUP

PACKAGE = """
import typer

app = typer.Typer(help="Count things.")


@app.command()
def boats(number: int = 1) -> None:
    "Count boats."
    typer.echo(f"{number} boats")


@app.command()
def dogs() -> None:
    "Count dogs."


def wave(name: str) -> None:
    "Wave at somebody."
    typer.echo(f"hello {name}")
"""
POINTS = """count = counting:app
wave = counting:wave
lost = not_there:app
embed = counting:wave
"""


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch) -> None:
    """A package as it lies in site-packages."""
    (tmp_path / "counting.py").write_text(PACKAGE)
    (tmp_path / "counting-1.0.dist-info").mkdir()
    (tmp_path / "counting-1.0.dist-info" / "METADATA").write_text("Name: counting\nVersion: 1.0\n")
    (tmp_path / "counting-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\n{POINTS}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "counting", raising=False)


def test_a_package_offers_commands(capsys, monkeypatch) -> None:
    assert run(capsys, monkeypatch, "count", "boats", "--number", "3")[:2] == (0, "3 boats\n")
    assert run(capsys, monkeypatch, "wave", "Ann")[:2] == (0, "hello Ann\n")


def test_help_lists_them_and_what_is_broken(capsys, monkeypatch) -> None:
    status, out, _ = run(capsys, monkeypatch, "--help")
    assert status == 0
    for said in ("Count things.", "Wave at somebody.", "Cannot be loaded: No module named 'not_there'."):
        assert said in out
    assert out.count(" embed ") == 1, "a command of the engine's was taken"
    status, _, err = run(capsys, monkeypatch, "lost")
    assert status == 1
    assert err.startswith("eddy: 'lost' is offered as 'not_there:app', which cannot be loaded")
