"""Commands that other packages offer by entry points; the adapters' own among them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from eddy_embed.errors import MissingExtra

GROUP = "eddy_embed.commands"
"""Entry points: the command's name, and a function or a `typer.Typer` with commands of its own.

A name with a dot, such as `embed.ray`, is another form of one of the engine's commands, which runs when that option is
given: `eddy embed --ray ...`."""


class Commands(TyperGroup):
    """The commands of the engine, then those offered, each loaded when it is asked for or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        own = super().list_commands(ctx)
        return [*own, *sorted(name for name in _offered().keys() - own if "." not in name)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant, and its arguments; another form of it, where its option is given."""
        given = [each.partition("=")[0] for each in args[1 : args.index("--") if "--" in args else None]]
        for name in _offered():
            own, _, option = name.partition(".")
            if option and own == args[0] and f"--{option}" in given:
                command = self.get_command(ctx, name)
                command.name = own
                return own, command, args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, None where there is none; the engine's own before one that is offered."""
        own = super().get_command(ctx, cmd_name)
        point = _offered().get(cmd_name)
        if own is not None:
            own.epilog = _forms(cmd_name)
        if own is not None or point is None:
            return own
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            found = _broken(point, error)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _forms(name: str) -> str | None:
    options = [point.partition(".")[2] for point in sorted(_offered()) if point.startswith(f"{name}.")]
    said = "; ".join(f"eddy {name} --{option}: `eddy {name} --{option} auto --help`" for option in options)
    return f"Further forms, with options of their own: {said}" if said else None


def _broken(point: EntryPoint, error: Exception) -> Callable[[], None]:
    """A command that says why it is none, so that the others and their help are still there."""
    reason = f"{point.name!r} is offered as {point.value!r}, which cannot be loaded: {error}; install what it needs"

    def command() -> None:
        raise MissingExtra(reason)

    command.__doc__ = f"Cannot be loaded: {error}."
    return command
