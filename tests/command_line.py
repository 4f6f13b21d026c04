"""The command line: run in this process, and written down.

python -m tests.command_line --write     # lists all commands in docs/command-line.md
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

import eddy_demo.cli
import eddy_embed.cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
BEGIN, END = "<!-- commands: begin -->\n\n", "<!-- commands: end -->\n"
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


def usage(name: str, command: Any) -> str:
    """The command with its arguments, and what it does."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    shown = [(each.name.upper() + "..." * (each.nargs == -1), each.required) for each in arguments]
    written = " ".join([name, *(part if required else f"[{part}]" for part, required in shown)])
    return f"`{written}`: {' '.join(command.help.split())}"


def options(command: Any) -> dict[str, str]:
    """By its first name, each option: its names, what --help says of it, its default."""
    found = {}
    for each in command.params:
        if each.param_type_name == "option":
            names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
            default = each.default if each.show_default and each.default not in (None, False, True, ()) else None
            more = [f"`{each.envvar}`" if each.envvar else "", f"default: {default}" if default else ""]
            found[each.opts[0]] = f"{names}: {each.help}" + f" ({'; '.join(filter(None, more))})" * any(more)
    return found


def own_options(command: Any, common: Counter[str]) -> list[str]:
    """Options in words, but those of several commands."""
    return [said for said in options(command).values() if common[said] == 1]


def shared(command: Any, common: Counter[str]) -> str:
    """Options of several commands, by their names alone."""
    names = [f"`{name}`" for name, said in options(command).items() if common[said] > 1]
    return f" Shared: {', '.join(names)}." if names else ""


def block(name: str, command: Any, common: Counter[str]) -> str:
    """One command, and in a line each those below it."""
    lines = [f"- {said}" for said in own_options(command, common)]
    for own, part in below(name, command).items():
        lines.append(f"- {' '.join([usage(own, part), *own_options(part, common)])}{shared(part, common)}")
    return "\n".join([f"## {name}", "", usage(name, command) + shared(command, common), *lines])


def listed() -> str:
    """All commands as they stand in docs/command-line.md."""
    blocks = []
    for program, app in APPS.items():
        found = below(program, typer.main.get_command(app))
        every = [*found.values(), *(part for name, command in found.items() for part in below(name, command).values())]
        common = Counter(said for each in every for said in options(each).values())
        blocks += [block(name, command, common) for name, command in found.items()]
        several = [f"- {said}" for said, count in common.items() if count > 1]
        blocks.append("\n".join([f"## Shared options of {program}", "", *several]))
    return "\n\n".join(blocks) + "\n\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(before + BEGIN + listed() + END + rest.partition(END)[2], encoding="utf-8")
    else:
        sys.stdout.write(listed())
