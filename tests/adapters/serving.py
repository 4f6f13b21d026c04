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
import uvicorn

from eddy_embed import Embedder
from openai_eddy import create_app

NAME = "eddy-tiny"


@dataclass
class Served:
    """A server, its address, what it serves, and a client that keeps no connection open."""

    port: int
    service: Any
    embedders: Mapping[str, Embedder]
    http: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def post(self, body: Any, **more: Any) -> httpx.Response:
        return self.http.post("/v1/embeddings", **({"json": {"model": NAME, **body}} | more))

    def rerank(self, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
        return self.http.post(path, json={"model": NAME, **body})

    def raw(self, sent: bytes) -> socket.socket:
        """A connection on which something was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(sent)
        return connection


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that comes true in another thread."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


@contextmanager
def serving(embedders: Mapping[str, Embedder], **options: Any) -> Iterator[Served]:
    """Serve until the end of the block."""
    app = create_app(embedders, options.pop("names", [NAME]), **options)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        limits = httpx.Limits(max_keepalive_connections=0)
        try:
            until(lambda: server.started or not thread.is_alive())
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as http:
                yield Served(port, app.state.service, embedders, http)
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
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    connection.close()
    return received
