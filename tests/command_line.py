"""The command line, run in this process.

python -m tests.command_line --write     # lists its commands in docs/command-line.md
"""

from __future__ import annotations

import sys

import pytest

from eddy_embed.cli import main


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `eddy`."""
    monkeypatch.setattr(sys, "argv", ["eddy", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err
