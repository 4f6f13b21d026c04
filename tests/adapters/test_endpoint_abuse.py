"""What an endpoint must survive: malformed and huge requests, slow and vanishing clients, more than it can do."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.adapters.serving import NAME, Served, closed, head, running, serving, until

from eddy_embed import Embedder
from eddy_embed.errors import NotFinite
from openai_eddy.engine import BatchKey
from openai_eddy.limits import Limits
from openai_eddy.uvicorn_server import Endpoint

HOLD, BREAK, COUNT = "Hold the ferry.", "Break the ferry.", "Count the ferries."
METHOD = "plain:exit=1"
LIMITS = Limits(
    inputs=8,
    input_characters=2000,
    input_tokens=200,
    request_tokens=400,
    body_bytes=16_000,
    pending_bytes=24_000,
    pending_tokens=100,
    requests=4,
    header_seconds=0.5,
    body_seconds=0.5,
    write_seconds=0.5,
    idle_seconds=1,
)


class Held(Embedder):
    """An embedder that texts can hold up until the test lets go, and that cannot embed another text."""

    gate = threading.Event()
    together: list[list[str]]

    def count_tokens(self, texts: Any, **options: Any) -> Any:
        if COUNT in texts:
            assert self.gate.wait(60)
        return super().count_tokens(texts, **options)

    def encode_document(self, texts: Any, **options: Any) -> Any:
        self.together = [*getattr(self, "together", []), [texts] if isinstance(texts, str) else texts]
        if HOLD in texts:
            assert self.gate.wait(60)
        if BREAK in texts:
            raise NotFinite(f"text {list(texts).index(BREAK)} gave NaN")
        return super().encode_document(texts, **options)


@pytest.fixture(scope="module")
def held() -> dict[str, Embedder]:
    Held.gate.set()
    return {METHOD: Held("eddy-tiny", method=METHOD)}


@pytest.fixture(scope="module")
def served(held: dict[str, Embedder]) -> Iterator[Served]:
    with serving(held, LIMITS, batch_tokens=64) as found:
        yield found


@pytest.fixture(autouse=True)
def survived(served: Served) -> Iterator[None]:
    """After every test nothing is left behind, and the server gives the right vector."""
    yield
    Held.gate.set()
    until(served.at_rest)
    got = served.post({"model": NAME, "input": "Dogs travel for free."}).json()["data"][0]["embedding"]
    expected = served.embedders[METHOD].encode_document("Dogs travel for free.")
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def waiting(served: Served, requests: int) -> None:
    until(lambda: served.service.scheduler.requests == requests)


ASK = {"model": NAME, "input": "a"}
JSON = {"content-type": "application/json"}
LONG = "context_length_exceeded"
WRONG: dict[str, tuple[Any, str | None, str | None, str]] = {
    "no JSON": (b"{", None, None, "could not parse the JSON"),
    "not UTF-8": (b'{"input": "\xff"}', None, None, "could not parse"),
    "lone surrogate": (b'{"input": "\\ud800"}', None, None, "could not parse"),
    "too deep": (b"[" * 5000, None, None, "could not parse"),
    "a list": ([], None, None, "must be a JSON object, not a list"),
    "no model": ({"input": "a"}, "model", None, "You must provide 'model'"),
    "no input": ({"model": NAME, "input": None}, "input", None, "You must provide 'input'"),
    "model of another kind": ({**ASK, "model": 3}, "model", None, "a valid string, not 3"),
    "unknown field": ({**ASK, "dimension": 3}, None, None, "Unrecognized request argument supplied: dimension"),
    "input of another kind": ({**ASK, "input": {"a": 1}}, "input", None, "a list of strings, a list of token ids"),
    "no inputs": ({**ASK, "input": []}, "input", None, "at least 1 item"),
    "blank": ({**ASK, "input": ["a", " \n"]}, "input", None, "'input[1]' is blank"),
    "no ids": ({**ASK, "input": [[1], []]}, "input", None, "'input[1]': List should have at least 1 item"),
    "mixed": ({**ASK, "input": ["a", [1]]}, "input", None, "'input[1]': Input should be a valid string, not [1]"),
    "true is no id": ({**ASK, "input": [[True]]}, "input", None, "'input[0][0]': Input should be a valid integer"),
    "negative id": ({**ASK, "input": [-1]}, "input", None, "greater than or equal to 0, not -1"),
    "too many": ({**ASK, "input": ["a"] * 9}, "input", None, "9 inputs, more than 8"),
    "too long": ({**ASK, "input": "ab " * 300}, "input", LONG, "tokens, more than"),
    "too many characters": ({**ASK, "input": "a" * 2001}, "input", LONG, "2001 characters"),
    "too many ids": ({**ASK, "input": [5] * 201}, "input", LONG, "201 tokens"),
    "too much": ({**ASK, "input": ["ab " * 60] * 8}, "input", "max_tokens_per_request", "in all"),
    "encoding": ({**ASK, "encoding_format": "hex"}, "encoding_format", None, "'float' or 'base64', not 'hex'"),
    "dimensions 0": ({**ASK, "dimensions": 0}, "dimensions", None, "greater than 0, not 0"),
    "dimensions true": ({**ASK, "dimensions": True}, "dimensions", None, "a valid integer, not True"),
    "too many dimensions": ({**ASK, "dimensions": 321}, "dimensions", None, "have 320"),
    "role": ({**ASK, "role": "user"}, "role", None, "'document' or 'query', not 'user'"),
    "method": ({**ASK, "method": "htp:exit=2"}, "method", None, f"started with {METHOD}"),
    "passage_size": ({**ASK, "passage_size": 3}, "passage_size", None, "unit passage"),
    "late": ({**ASK, "late": True}, "late", None, "unit passage or sentence"),
    "late of another kind": ({**ASK, "unit": "sentence", "late": 1}, "late", None, "a valid boolean, not 1"),
    "two words for one": ({**ASK, "role": "query", "task": "retrieval.query"}, "task", None, "'role' and 'task' say"),
    "input_type": ({**ASK, "input_type": "image"}, "input_type", None, "'search_query'"),
    "task": ({**ASK, "task": "translation"}, "task", None, "'retrieval.query'"),
    "nothing to read": ({**ASK, "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", None, "0 leaves nothing"),
    "less than nothing": ({**ASK, "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", None, "equal to -1, not -2"),
    "query in parts": ({**ASK, "unit": "sentence", "role": "query"}, "unit", None, "one vector"),
}


def test_malformed_requests(served: Served) -> None:
    for name, (body, *expected, said) in WRONG.items():
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = served.post(None, content=content, headers=JSON)
        error = answer.json()["error"]
        assert (answer.status_code, [error["param"], error["code"]]) == (400, expected), name
        assert said in error["message"], name
        assert (
            answer.json() == {"error": error, "detail": error["message"]} and error["type"] == "invalid_request_error"
        )


def test_other_models_paths_methods_and_types(served: Served) -> None:
    answers = [
        served.http.get("/"),
        served.http.get("/v1/embeddings"),
        served.post(ASK, headers={"content-type": "text/plain"}),
        served.http.post("/v1/chat/completions", json={}),
        served.post({**ASK, "model": "gpt-4"}),
        served.post(
            None, content=gzip.compress(json.dumps(ASK).encode()), headers={**JSON, "content-encoding": "gzip"}
        ),
        served.http.options("/v1/embeddings", headers={"origin": "https://a.example"}),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 415, 404, 404, 415, 405]
    errors = [answer.json()["error"] for answer in answers]
    assert {error["type"] for error in errors} == {"invalid_request_error"}
    assert errors[0]["message"].endswith("/v2/rerank; a client's base URL ends in /v1.")
    assert (errors[4]["param"], errors[4]["code"]) == ("model", "model_not_found")
    assert "`gpt-4` does not exist" in errors[4]["message"]
    assert "encoded (gzip)" in errors[5]["message"] and answers[5].headers["accept-encoding"] == "identity"
    assert errors[6]["message"].endswith("--allowed-origin https://a.example.")
    raw = served.raw(b"GET / HTTP/1.1\r\nnonsense\r\n\r\n")
    assert closed(raw).startswith(b"HTTP/1.1 400")
    long = served.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 400_000)
    assert closed(long).startswith((b"HTTP/1.1 400", b""))


def test_a_text_that_fails_alone_fails_alone(served: Served) -> None:
    Held.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(served.post, {**ASK, "input": HOLD})
        waiting(served, 1)
        bad = threads.submit(served.post, {**ASK, "input": ["a", BREAK]})
        good = threads.submit(served.post, {**ASK, "input": ["b", "c"]})
        waiting(served, 3)
        Held.gate.set()
        assert first.result().status_code == good.result().status_code == 200
    assert {"a", BREAK, "b", "c"} in map(set, served.embedders[METHOD].together)  # both requests in one batch
    error = bad.result().json()["error"]
    assert bad.result().status_code == 500 and error["type"] == "server_error" and "'input[1]'" in error["message"]


def test_overload_is_refused_with_a_time_and_the_accepted_is_answered(served: Served) -> None:
    Held.gate.clear()
    with ThreadPoolExecutor(4) as threads, openai.OpenAI(base_url=served.url, api_key="-", max_retries=0) as client:
        first = threads.submit(served.post, {**ASK, "input": HOLD})
        waiting(served, 1)
        waits = threads.submit(served.post, {**ASK, "input": "ab " * 80})
        waiting(served, 2)
        with pytest.raises(openai.RateLimitError) as refused:
            client.embeddings.create(model=NAME, input="ab " * 80)
        assert int(refused.value.response.headers["retry-after"]) >= 1 and refused.value.code == "rate_limit_exceeded"
        small = [threads.submit(served.post, ASK) for _ in range(2)]
        waiting(served, 4)
        with pytest.raises(openai.RateLimitError):  # too many requests, however small
            client.embeddings.create(model=NAME, input="a")
        assert served.http.get("/health").status_code == 200
        Held.gate.set()
        assert [each.result().status_code for each in (first, waits, *small)] == [200] * 4


def test_what_a_vanished_client_asked_for_is_not_done(served: Served) -> None:
    Held.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(served.post, {**ASK, "input": HOLD})
        waiting(served, 1)
        body = json.dumps({**ASK, "input": "Nobody wants this."}).encode()
        gone = served.raw(head(len(body)), body)
        waiting(served, 2)
        gone.close()
        waiting(served, 1)
        Held.gate.set()
        assert first.result().status_code == 200
    assert ["Nobody wants this."] not in served.embedders[METHOD].together


def test_slow_clients_are_cut_off(served: Served) -> None:
    silent = served.raw(b"")
    half_head = served.raw(head(5)[:30])
    half_body = served.raw(head(50), b"{")
    served.raw(head(50), b"{").close()
    endless = served.raw(head(None, "Transfer-Encoding: chunked"), b"1\r\n{\r\n")
    assert (closed(silent), closed(half_head)) == (b"", b"")
    assert all(closed(each).startswith(b"HTTP/1.1 408") for each in (half_body, endless))


def test_huge_bodies_are_not_kept(served: Served) -> None:
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    endless = closed(served.raw(head(None, "Transfer-Encoding: chunked"), chunk))
    assert endless.startswith(b"HTTP/1.1 413") and b"request_too_large" in endless and b"16000 bytes" in endless
    assert closed(served.raw(head(10**12), b"{")).startswith(b"HTTP/1.1 413")
    several = [served.raw(head(15_000), b" " * 14_000) for _ in range(2)]
    assert sorted(closed(each)[:12] for each in several) == [b"HTTP/1.1 408", b"HTTP/1.1 429"]


def test_bodies_count_until_they_are_checked(served: Served) -> None:
    """Not only while they arrive, and not while the model is at their inputs."""

    def ask(text: str) -> httpx.Response:
        content = json.dumps({**ASK, "input": text}).encode().ljust(14_000)
        return served.post(None, content=content, headers=JSON)

    Held.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        waits = threads.submit(ask, COUNT)
        until(lambda: served.service._in_progress == 1)
        assert ask("a").status_code == 429
        Held.gate.set()
        assert waits.result().status_code == 200
        Held.gate.clear()
        waits = threads.submit(ask, HOLD)
        waiting(served, 1)
        beside = threads.submit(ask, "a")
        waiting(served, 2)
        Held.gate.set()
        assert waits.result().status_code == beside.result().status_code == 200


def test_no_vector_holds_others(served: Served) -> None:
    made = served.service._engine.run(BatchKey(METHOD), ["a", "b", "c"])
    assert all(each.vectors.base is None for each in made)


def test_a_body_with_two_lengths_is_refused_and_the_connection_closed(served: Served) -> None:
    """What a proxy takes for a body would be a request of its own here."""
    inside = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = closed(served.raw(head(len(inside) + 5, "Transfer-Encoding: chunked"), b"0\r\n\r\n" + inside))
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b"send one" in answer


def test_user_information_in_the_host_is_refused(served: Served) -> None:
    for host in ("someone@localhost", "localhost:80@evil.example", "localhost:pass@localhost"):
        answer = served.http.get("/health", headers={"host": host})
        assert answer.status_code == 400 and "user information" in answer.json()["error"]["message"]


def test_a_shutdown_ends_in_time(held: dict[str, Embedder]) -> None:
    with ThreadPoolExecutor(1) as threads, serving(held, graceful_timeout=1) as served:
        Held.gate.clear()
        asked = threads.submit(served.post, {**ASK, "input": HOLD})
        waiting(served, 1)
        served.server.should_exit = True
        assert asked.result().status_code == 500 and served.server.force_exit
        Held.gate.set()


def test_too_many_connections_are_refused_until_some_are_gone(held: dict[str, Embedder]) -> None:
    with serving(held, Limits(connections=4)) as served:
        silent = [served.raw(b"GET") for _ in range(3)]
        until(lambda: len(served.server.server_state.connections) == 3)
        refused = served.http.get("/health")
        assert refused.status_code == 503 and refused.headers["connection"] == "close"
        for connection in silent:
            connection.close()
        until(lambda: not served.server.server_state.connections)
        assert served.http.get("/health").status_code == 200


@pytest.mark.slow
def test_a_client_that_reads_steadily_gets_all() -> None:
    """However long it takes: here several times what a client that reads nothing has."""
    size, pieces = 400_000, 40

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b"x" * size})

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as reader:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # the answer waits in the server
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        with running(Endpoint(app, Limits(write_seconds=0.7)), listener):
            reader.settimeout(60)
            reader.connect(listener.getsockname())
            reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = 0
            while part := reader.recv(size // pieces):
                got += len(part)
                time.sleep(0.04)
            assert got > size


def unread(served: Served, seconds: float) -> socket.socket:
    """Requests one behind the other, of a client that does not read: their answers fill every buffer in between."""
    body = json.dumps({**ASK, "input": ["a"] * 8}).encode()
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    reader.connect(("127.0.0.1", served.port))
    reader.settimeout(seconds)
    try:
        for _ in range(400):
            reader.sendall(head(len(body)) + body)
    except OSError:
        pass
    return reader


def test_a_client_that_does_not_read_is_cut_off(served: Served) -> None:
    reader = unread(served, 30)
    until(lambda: not served.server.server_state.connections)
    reader.close()


@pytest.mark.slow
def test_answers_that_nobody_reads_are_not_gathered(held: dict[str, Embedder]) -> None:
    """While clients leave too many bytes unread, others are told to come back; all is as before once they are gone."""
    with serving(held, Limits(unsent_bytes=1, write_seconds=60)) as served:
        reader = unread(served, 2)
        until(lambda: any(each.flow.write_paused for each in served.server.server_state.connections))
        assert served.post(ASK).status_code == 429
        assert "eddy_unsent_bytes 0.0" not in served.http.get("/metrics").text
        reader.close()
        until(lambda: served.post(ASK).status_code == 200)
        assert "eddy_unsent_bytes 0.0" in served.http.get("/metrics").text
