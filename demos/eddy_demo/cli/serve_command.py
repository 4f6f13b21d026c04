"""`eddy-demo serve`: show the library as a web page."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer
from rich.text import Text

from eddy_demo.cli import options
from eddy_demo.cli.options import err
from eddy_embed.utils.interrupts import Interrupted


def serve(
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: options.Method = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Let the same loaded model write answers too; it must be a causal LM.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on. Others than this machine can reach the library.")] = (
        "127.0.0.1"
    ),
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which it may be asked.", show_default=False)
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: options.Device = None,
) -> None:
    """Open the library as a page: upload, ask, read, see why.

    It listens on this machine alone, and needs no network.
    """
    from eddy_demo.web.http.security import LOOPBACK
    from eddy_demo.web.library_reader import LibraryOptions
    from eddy_demo.web.server import addresses, bind
    from eddy_demo.web.server import serve as run

    listener = bind(host, port)
    address, names = addresses(host, listener)
    if listener.getsockname()[0] not in LOOPBACK:
        warning = "Whoever reaches this machine on that port can read and change the library: there is no password."
        err.print(warning, style="yellow")

    def started() -> None:
        err.print(Text.assemble("Eddy is at ", (address, "bold cyan"), f"  (library: {library}; Ctrl-C ends it)"))
        if open_page:
            webbrowser.open(address)

    try:
        chosen = LibraryOptions(library, model, method, device, generate)
        run(chosen, listener, {*names, *(allow_host or ())}, started=started)
    except (KeyboardInterrupt, Interrupted):
        err.print("Stopped. What was not read yet goes on when it is started again.")
