"""`eddy serve` as a process: what it says, how it ends, and that it does not grow."""

from __future__ import annotations

import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import torch
from tests.adapters.serving import NAME, until
from tests.processes import Command

from eddy_embed import Embedder
from eddy_embed.cli import main
from eddy_embed.model.speed.onednn_linear import pad_rows

EDDY = "import sys; from eddy_embed.cli import main; sys.argv[0] = 'eddy'; main()"
METHOD, OTHER = "plain:exit=2", "plain:exit=1"
TEXT = "The ferry leaves at noon. "


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Command, str]]]:
    """Starts servers; gives each with its address once it answers."""
    started: list[Command] = []

    def start(*arguments: str, **variables: str) -> tuple[Command, str]:
        command = ("serve", "eddy-tiny", "--method", METHOD, "--port", "0", *arguments)
        process = Command(EDDY, *command, err=tmp_path / f"said{len(started)}.txt", **variables)
        started.append(process)
        until(lambda: process.status is not None or "/v1" in process.said, 60)
        found = re.search(r"^(.*)(http://\S+)/v1", process.said, re.MULTILINE)
        assert found, f"no address; it ended with {process.status}"
        assert found[1].startswith(f"{NAME} with {METHOD}") and found[1].endswith(" at ")
        assert found[2].startswith("http://127.0.0.1:")
        return process, found[2]

    yield start
    for process in started:
        process.kill()


def ask(root: str, count: int, **headers: str) -> httpx.Response:
    body = {"model": NAME, "input": [TEXT * 60] * count}
    return httpx.post(f"{root}/v1/embeddings", json=body, headers=headers, timeout=120)


def pending(root: str, **headers: str) -> float:
    page = httpx.get(f"{root}/metrics", headers=headers).text
    return float(re.findall(r"^eddy_pending_tokens (\S+)", page, re.MULTILINE)[0])


def test_a_signal_lets_what_was_accepted_be_answered(serve) -> None:
    process, root = serve("--name", NAME, "--batch-tokens", "500")
    with ThreadPoolExecutor(3) as threads, httpx.Client(base_url=root) as kept:
        assert kept.get("/health").status_code == 200  # and the connection stays open
        asked = [threads.submit(ask, root, 8) for _ in range(3)]
        until(lambda: pending(root) > 4000)
        process.signal(signal.SIGTERM)
        answers = [each.result() for each in asked]
    assert process.wait(60) == 0
    assert [answer.status_code for answer in answers] == [200] * 3
    expected = Embedder("eddy-tiny", method=METHOD).encode_document(TEXT * 60)
    for answer in answers:
        np.testing.assert_allclose([row["embedding"] for row in answer.json()["data"]], [expected] * 8, atol=1e-5)
    assert "Traceback" not in process.said
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{root}/health")


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(serve) -> None:
    process, root = serve("--method", OTHER, EDDY_API_KEYS="a-key")
    key = {"authorization": "Bearer a-key"}
    assert httpx.get(f"{root}/v1/models").status_code == 401
    (model,) = httpx.get(f"{root}/v1/models", headers=key).json()["data"]
    assert list(model["methods"]) == [METHOD, OTHER]
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, root, 200, **key)
        until(lambda: pending(root, **key) > 60_000)
        process.signal(signal.SIGHUP)

        def refuses() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", int(root.rpartition(":")[2]))) != 0

        until(refuses)
        assert process.status is None
        process.signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
        with pytest.raises(httpx.HTTPError):
            asked.result()


@pytest.mark.slow
def test_a_shutdown_ends_in_time(serve) -> None:
    """Whatever the model still has to do."""
    process, root = serve("--graceful-timeout", "1")
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, root, 200)
        until(lambda: pending(root) > 60_000)
        process.signal(signal.SIGTERM)
        assert process.wait(60) == 1
        assert "within --graceful-timeout 1" in process.said
        assert asked.exception() is not None or asked.result().status_code == 500


def test_wrong_starts_end_in_a_sentence(tmp_path: Path, capsys, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            (("--port", port), f"cannot listen on 127.0.0.1, port {port}"),
            (("--api-key-file", str(tmp_path / "none")), "No such file"),
            (("--host", "192.0.2.1"), "cannot listen on --host 192.0.2.1"),
            (("--port", "0", "--method", "plian"), "plian"),
        ):
            monkeypatch.setattr(sys, "argv", ["eddy", "serve", "eddy-tiny", *arguments])
            with pytest.raises(SystemExit) as end:
                main()
            assert end.value.code == 1 and said in capsys.readouterr().err


@pytest.mark.slow
def test_memory_stays_flat_over_10000_requests(serve) -> None:
    """Once every number of tokens of a pass has been met, for which kernels are kept, and 2,000 requests have filled
    caches and pools, 8,000 more leave less behind than 1 KB each."""
    process, root = serve("--batch-tokens", "1024")

    def resident() -> float:
        page = httpx.get(f"{root}/metrics").text
        return float(re.findall(r"^process_resident_memory_bytes (\S+)", page, re.MULTILINE)[0])

    with openai.OpenAI(base_url=f"{root}/v1", api_key="-") as client, ThreadPoolExecutor(8) as threads:

        def one(number: int) -> None:
            count = 1 + number % 3
            got = client.embeddings.create(model=NAME, input=[f"{TEXT}{number} " * (1 + number % 20)] * count)
            assert len(got.data) == count

        for count in sorted({pad_rows(rows, torch.device("cpu")) for rows in range(1, 1025)}):
            client.embeddings.create(model=NAME, input=[5] * count)
        list(threads.map(one, range(2000)))
        before = resident()
        list(threads.map(one, range(2000, 10_000)))
        grown = resident() - before
    assert grown < 8 * 2**20, f"{before / 2**20:.1f} MiB grew by {grown / 2**20:.1f} MiB"
    assert process.status is None


def test_it_re_ranks_if_asked_to(serve) -> None:
    _, root = serve("--rerank")
    body = {"model": NAME, "query": "When does it leave?", "documents": ["Dogs travel for free.", TEXT]}
    assert httpx.post(f"{root}/v1/rerank", json=body, timeout=60).json()["results"][0]["index"] == 1
    assert ask(root, 1).status_code == 200
