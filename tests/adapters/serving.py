"""A real server on a loopback port, in a thread of the test process, so that tests see both sides of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from eddy_embed import Embedder
from openai_eddy import Limits, create_app
from openai_eddy.uvicorn_server import Endpoint

NAME = "eddy-tiny"


@dataclass
class Served:
    """A server, its address, what it serves, and a client that keeps no connection open."""

    port: int
    server: Endpoint
    service: Any
    embedders: Mapping[str, Embedder]
    http: httpx.Client

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def post(self, body: Any, **more: Any) -> httpx.Response:
        return self.http.post("/v1/embeddings", **({"json": body} | more))

    def raw(self, head: bytes, rest: bytes = b"") -> socket.socket:
        """A connection on which something was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(head + rest)
        return connection

    def at_rest(self) -> bool:
        """Nothing waits, nobody is connected, no body is held."""
        service = self.service
        left = (service.scheduler.pending, service.scheduler.requests, service._in_progress, service._bodies.size)
        return left == (0, 0, 0, 0) and not self.server.server_state.connections


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that comes true in another thread."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


@contextmanager
def serving(embedders: Mapping[str, Embedder], limits: Limits | None = None, **options: Any) -> Iterator[Served]:
    """Serve until the end of the block."""
    limits = limits or Limits()
    graceful_timeout = options.pop("graceful_timeout", 30)
    app = create_app(embedders, options.pop("names", [NAME]), limits=limits, **options)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = Endpoint(app, limits, graceful_timeout=graceful_timeout)
        kept = httpx.Limits(max_keepalive_connections=0)
        http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=kept)
        with running(server, listener), http:
            yield Served(port, server, app.state.service, embedders, http)


@contextmanager
def running(server: Endpoint, listener: socket.socket) -> Iterator[None]:
    """Run a server in a thread until the end of the block."""
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        yield
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not end"


def head(length: int | None, *more: str) -> bytes:
    """The head of a request for embeddings."""
    lines = ["POST /v1/embeddings HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def closed(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    connection.close()
    return found
