"""The endpoint asked by the script of a page of another origin, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser
from tests.adapters.serving import NAME, serving
from tests.browsers import chromium

from eddy_embed import Embedder

pytestmark = pytest.mark.browser
ASKING = """async ([url, key, model]) => {
  const headers = {"Content-Type": "application/json", Authorization: `Bearer ${key}`};
  try {
    const body = JSON.stringify({model, input: "The ferry leaves at noon."});
    const answer = await fetch(url, {method: "POST", headers, body});
    return [answer.status, await answer.json(), answer.headers.get("x-eddy-method")];
  } catch (error) { return [String(error)]; }
}"""


class Blank(BaseHTTPRequestHandler):
    """A page of nothing, for its origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def origins() -> Iterator[list[str]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Blank) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    yield [f"http://127.0.0.1:{server.server_address[1]}" for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_may_ask_where_its_origin_is_allowed(browser: Browser, origins: list[str]) -> None:
    embedder = Embedder("eddy-tiny", method="plain:exit=1")
    allowed, other = origins

    def asked(origin: str, key: str = "secret") -> list[Any]:
        page = browser.new_page()
        page.goto(origin)
        found: list[Any] = page.evaluate(ASKING, [f"{served.url}/embeddings", key, NAME])
        page.close()
        return found

    with serving({"plain:exit=1": embedder}, keys=["secret"], allowed_origins=[allowed]) as served:
        status, answer, method = asked(allowed)
        assert (status, method) == (200, "plain:exit=1")
        vector = embedder.encode_document("The ferry leaves at noon.")
        np.testing.assert_allclose(answer["data"][0]["embedding"], vector, atol=1e-6)
        status, answer, _ = asked(allowed, "wrong")
        assert status == 401 and answer["detail"].startswith("Incorrect API key provided.")
        assert asked(other) == ["TypeError: Failed to fetch"]
    with serving({"plain:exit=1": embedder}) as served:
        assert asked(allowed) == ["TypeError: Failed to fetch"]
