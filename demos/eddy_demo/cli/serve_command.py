"""`eddy-demo serve`: show the library as a web page."""

from __future__ import annotations

import webbrowser
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from eddy_demo.cli import options
from eddy_demo.cli.options import err
from eddy_demo.errors import DemoError
from eddy_embed.utils.interrupts import Interrupted


def serve(
    library: options.Library = options.DEFAULT_LIBRARY,
    model: options.Model = None,
    method: options.Method = None,
    generate: Annotated[
        bool | None,
        typer.Option(
            "--generate/--no-generate",
            help="Let the same loaded model write answers too; by default a large one that follows instructions does.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines reach needs --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="EDDY_TOKEN", help="Secret that whoever opens the page must know.", show_default=False),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which it may be asked.", show_default=False)
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    device: options.Device = None,
) -> None:
    """Open the library as a page: upload, ask, read.

    It listens on this machine alone unless --host says otherwise, and needs no network.
    """
    from eddy_demo.web.library_reader import LibraryOptions
    from eddy_demo.web.server import addresses, bind
    from eddy_demo.web.server import serve as run
    from eddy_embed.integrations.http_guard import LOOPBACK

    listener = bind(host, port)
    address, names = addresses(host, listener)
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
        chosen = LibraryOptions(library, model, method, device, generate)
        run(chosen, listener, {*names, *(allow_host or ())}, started=started, access_token=token)
    except (KeyboardInterrupt, Interrupted):
        err.print("Stopped. What was not read yet goes on when it is started again.")
