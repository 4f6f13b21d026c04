"""`eddy serve`."""

from __future__ import annotations

import os
import signal
import socket
from typing import Annotated, Any

import typer

from eddy_embed.cli.options import Device, Dtype, MaxLength, ModelArgument, method_in_full
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.integrations.http_guard import LOOPBACK
from eddy_embed.utils.extras import check_installed

KEY_VARIABLE = "EDDY_API_KEY"
CONNECTIONS, GRACEFUL_SECONDS = 1024, 30
"""Open connections from which on requests get 503, and time in which what was accepted is answered after a signal."""
Texts = list[str] | None
Method = typer.Option("--method", "-m", help="Repeat; the first is the default of requests. Default: recommended.")
Name = typer.Option(help="Name of the model for clients. Repeat. Default: the end of its own name.")
Rerank = typer.Option("--rerank", help="Also serve /v1/rerank: load all layers and the language-model head.")
Key = typer.Option(envvar=KEY_VARIABLE, help="Key that clients must send. Repeat.")
Origin = typer.Option(help="Origin of pages whose scripts may use the server; * for any. Repeat.")
Batch = typer.Option(min=1, help="Maximum tokens in a batch. Default: 1,024 for each thread of a processor.")
Trust = typer.Option("--trust-remote-code", help="Run code that comes with the model.")


def serve(
    model: ModelArgument,
    method: Annotated[Texts, Method] = None,
    name: Annotated[Texts, Name] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free one.")] = 8000,
    rerank: Annotated[bool, Rerank] = False,
    api_key: Annotated[Texts, Key] = None,
    allow_host: Annotated[Texts, typer.Option(help="Host name to accept beside localhost. Repeat.")] = None,
    allowed_origin: Annotated[Texts, Origin] = None,
    query_instruction: Annotated[str | None, typer.Option(help="Text before each query.")] = None,
    text_instruction: Annotated[str | None, typer.Option(help="Text before each document.")] = None,
    max_length: MaxLength = None,
    batch_tokens: Annotated[int | None, Batch] = None,
    device: Device = None,
    dtype: Dtype = "auto",
    revision: Annotated[str | None, typer.Option(help="Revision of a hub model.")] = None,
    trust_remote_code: Annotated[bool, Trust] = False,
    local_files_only: Annotated[bool, typer.Option("--local-files-only", help="Never ask the hub.")] = False,
) -> None:
    """Serve OpenAI's API for embeddings, with vectors of this model and method, and re-ranking on request."""
    check_installed("serve", "fastapi", "orjson", "uvicorn")
    if any(not key.isascii() or not key.isprintable() or " " in key for key in api_key or ()):
        raise InvalidParameter("an API key holds blanks or characters outside ASCII; choose another")
    if KEY_VARIABLE in os.environ and not api_key:
        raise InvalidParameter(f"{KEY_VARIABLE} is set and holds no key; give it one, or unset it")
    loopback = host in LOOPBACK or host.startswith("127.")
    # Before loading the model, so that a port in use is an error at once; connections wait for the server.
    with _listen(host, port) as listener:
        if not loopback and not api_key:
            warning = f"Warning: anyone who reaches {host} can use this server: it asks for no key. Set {KEY_VARIABLE}"
            typer.echo(f"{warning}, or leave --host at 127.0.0.1.", err=True)
        import uvicorn

        from openai_eddy import engine
        from openai_eddy.app import create_app

        hub = {"revision": revision, "trust_remote_code": trust_remote_code, "local_files_only": local_files_only}
        embedders, reranker = engine.open_models(
            model,
            [method_in_full(model, text, **hub) for text in method or ["recommended"]],
            rerank=rerank,
            **{"query_instruction": query_instruction, "text_instruction": text_instruction, "max_length": max_length},
            **{"device": device, "dtype": dtype, "batch_tokens": batch_tokens},
            **hub,
        )
        names = name or [model.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or model]
        hosts = [*(LOOPBACK if loopback or allow_host else ()), *(allow_host or ())]
        access: dict[str, Any] = {"keys": api_key or (), "hosts": hosts, "allowed_origins": allowed_origin or ()}
        app = create_app(embedders, names, reranker=reranker, **access)
        address, number = listener.getsockname()[:2]
        url = f"http://[{address}]:{number}/v1" if ":" in address else f"http://{address}:{number}/v1"
        typer.echo(f"{names[0]} with {', '.join(embedders)} at {url} (Ctrl-C ends it)", err=True)
        limits: dict[str, Any] = {"limit_concurrency": CONNECTIONS, "timeout_graceful_shutdown": GRACEFUL_SECONDS}
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_level="warning", **limits))
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, lambda *_: None)  # uvicorn raises it once more when everything is answered
        server.run([listener])
        if not server.started:
            raise EddyError(f"the server did not start on {url}; the log above says why")


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        message = f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --port or --host"
        raise InvalidParameter(message) from None
