"""Commands that other packages offer by entry points; the adapters' own among them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from eddy_embed.errors import MissingExtra

GROUP = "eddy_embed.commands"
"""Entry points: the command's name, and a function or a `typer.Typer` with commands of its own."""


class Commands(TyperGroup):
    """The commands of the engine, then those offered, each loaded when it is asked for or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return names in the order of the help."""
        names = super().list_commands(ctx)
        return [*names, *sorted(_offered().keys() - names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, None where there is none; the engine's own before one that is offered."""
        built_in = super().get_command(ctx, cmd_name)
        point = _offered().get(cmd_name)
        if built_in is not None or point is None:
            return built_in
        try:
            offered = point.load()
        except (ImportError, AttributeError) as error:
            offered = _broken(point, error)
        if not isinstance(offered, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(offered)
            offered = alone
        command = typer.main.get_command(offered)
        command.name = cmd_name
        return command


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _broken(point: EntryPoint, error: Exception) -> Callable[[], None]:
    """Return a command that says why it is none, so that the others and their help are still there."""
    reason = f"{point.name!r} is offered as {point.value!r}, which cannot be loaded: {error}; install what it needs"

    def command() -> None:
        raise MissingExtra(reason)

    command.__doc__ = f"Cannot be loaded: {error}."
    return command
