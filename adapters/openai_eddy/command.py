"""`eddy serve`."""

from __future__ import annotations

import os
import signal
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

import typer

from eddy_embed.cli.options import Device, Dtype, ModelArgument, method_in_full
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.integrations import check_installed

Method = Annotated[
    list[str] | None,
    typer.Option(
        "--method", "-m", help="Repeat for several; the first is the default of requests. Default: recommended."
    ),
]


def serve(
    model: ModelArgument,
    method: Method = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", help="Name of the model for clients. Repeat for several. Default: the end of its own name."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free one.")] = 8000,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Also serve /v1/rerank: load all layers and the language-model head.")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="File with a key a line; also set by the variable EDDY_API_KEYS."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name to accept beside localhost. Repeat for several.")
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of pages whose scripts may use the server; * for any. Repeat for several."),
    ] = None,
    query_instruction: Annotated[str | None, typer.Option(help="Text before each query.")] = None,
    text_instruction: Annotated[str | None, typer.Option(help="Text before each document.")] = None,
    post: Annotated[
        Path | None, typer.Option(help="Fitted post-processing: the file that Embedder.fit(texts).save(path) wrote.")
    ] = None,
    overflow: Annotated[
        Literal["window", "error"], typer.Option(help="Read longer inputs in windows, or refuse them.")
    ] = "window",
    max_length: Annotated[
        int | None, typer.Option(help="Maximum tokens in a pass. Default: the model's window.")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum tokens in a batch. Default: 1,024 for each thread of a processor, 16,384 elsewhere."
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0, help="Maximum milliseconds to wait for as many requests as were recently concurrent."),
    ] = 2.0,
    max_inputs: Annotated[int, typer.Option(min=1, help="Maximum inputs in a request.")] = 2048,
    max_input_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens in an input.")] = 65_536,
    max_request_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens in a request.")] = 300_000,
    max_pending_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum tokens accepted and not done; beyond, clients get 429.")
    ] = 600_000,
    graceful_timeout: Annotated[
        int, typer.Option(min=1, help="Maximum seconds to answer what was accepted, after a signal.")
    ] = 30,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum MiB of a request's body.")] = 8,
    device: Device = None,
    dtype: Dtype = "auto",
    language: Annotated[str, typer.Option(help="Language code for sentences, xx for any.")] = "en",
    revision: Annotated[str | None, typer.Option(help="Revision of a hub model.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    local_files_only: Annotated[bool, typer.Option("--local-files-only", help="Never ask the hub.")] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request, without its texts.")
    ] = False,
) -> None:
    """Serve OpenAI's API for embeddings, with vectors of this model and method, and re-ranking on request."""
    check_installed("serve", "fastapi", "orjson", "prometheus_client", "uvicorn")
    from openai_eddy.limits import MEBIBYTE, Limits
    from openai_eddy.middleware import KEYS_VARIABLE, LOOPBACK, check_origins, read_keys

    check_origins(allowed_origin or ())
    keys = read_keys(os.environ.get(KEYS_VARIABLE), key_file)
    limits = Limits(
        inputs=max_inputs,
        input_tokens=max_input_tokens,
        request_tokens=max_request_tokens,
        pending_tokens=max_pending_tokens,
        body_bytes=max_body * MEBIBYTE,
        pending_bytes=max(16 * max_body, 128) * MEBIBYTE,
    )
    loopback = _is_loopback(host)
    # Before loading the model, so that a port in use is an error at once.
    with _bind(host, port) as listener:
        if not loopback and not keys:
            typer.echo(
                f"Warning: anyone who reaches {host} can use this server: it asks for no key. Set EDDY_API_KEYS or "
                "--api-key-file, or leave --host at 127.0.0.1.",
                err=True,
            )
        from openai_eddy.app import create_app
        from openai_eddy.engine import open_models
        from openai_eddy.uvicorn_server import Endpoint

        hub = {"revision": revision, "trust_remote_code": trust_remote_code, "local_files_only": local_files_only}
        embedders, reranker = open_models(
            model,
            [method_in_full(model, each, **hub) for each in method or ["recommended"]],
            post=post,
            rerank=rerank,
            query_instruction=query_instruction,
            text_instruction=text_instruction,
            overflow=overflow,
            max_length=max_length,
            language=language,
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
            **hub,
        )
        names = name or [model.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or model]
        app = create_app(
            embedders,
            names,
            reranker=reranker,
            keys=keys,
            hosts=[*(LOOPBACK if loopback or allow_host else ()), *(allow_host or ())],
            allowed_origins=allowed_origin or (),
            limits=limits,
            wait=wait / 1000,
        )

        # From here on connections wait for the server, which starts at once.
        listener.listen()
        address, number = listener.getsockname()[:2]
        url = f"http://[{address}]:{number}/v1" if ":" in address else f"http://{address}:{number}/v1"
        typer.echo(f"{names[0]} with {', '.join(embedders)} at {url} (Ctrl-C ends it)", err=True)
        endpoint = Endpoint(app, limits, access_log=access_log, graceful_timeout=graceful_timeout)
        # uvicorn handles SIGINT and SIGTERM; a closed terminal shall not drop requests either.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, endpoint.handle_exit)
        endpoint.run([listener])
        if not endpoint.started:
            raise EddyError(f"the server did not start on {url}; --access-log shows why")
        if endpoint.force_exit:
            typer.echo(f"Not everything accepted was answered within --graceful-timeout {graceful_timeout}.", err=True)
            os._exit(1)  # Python would wait for the thread that runs the model
        typer.echo("Everything accepted was answered.", err=True)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise InvalidParameter(f"cannot listen on --host {host}: {error.strerror or error}") from None
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise InvalidParameter(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --port or --host"
        ) from None
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
