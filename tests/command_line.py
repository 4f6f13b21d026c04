"""The command line, run in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import eddy_demo.cli
import eddy_embed.cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
APPS = {"eddy": eddy_embed.cli.app, "eddy-demo": eddy_demo.cli.app}


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `eddy`."""
    monkeypatch.setattr(sys, "argv", ["eddy", *arguments])
    with pytest.raises(SystemExit) as stop:
        eddy_embed.cli.main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err


def below(name: str, command: Any) -> dict[str, Any]:
    """Commands of a command, by their full names; none of one that has none."""
    context = typer.Context(command)
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    return {f"{name} {own}": command.get_command(context, own) for own in names}


def commands() -> Iterator[str]:
    """Yield all commands, but those that only hold others."""
    for program, app in APPS.items():
        for name, command in below(program, typer.main.get_command(app)).items():
            yield from below(name, command) or [name]
