"""`eddy serve` as a process: what it says, that it answers what it accepted, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.adapters.serving import NAME, closed, head, until
from tests.processes import Command

from eddy_embed import Embedder
from eddy_embed.cli import main

EDDY = "import sys; from eddy_embed.cli import main; sys.argv[0] = 'eddy'; main()"
METHOD = "plain:exit=2"
TEXT = "The ferry leaves at noon. " * 60
KEY = {"authorization": "Bearer a-key"}


def test_a_signal_lets_what_was_accepted_be_answered(tmp_path: Path) -> None:
    command = ("serve", NAME, "--method", METHOD, "--port", "0", "--rerank", "--batch-tokens", "500")
    process = Command(EDDY, *command, err=tmp_path / "err.txt", EDDY_API_KEY="a-key")
    try:
        until(lambda: process.status is not None or "/v1" in process.said, 120)
        address = re.search(rf"^{NAME} with {METHOD} at (http://127.0.0.1:\d+)/v1", process.said, re.MULTILINE)
        assert address, f"no address; it ended with {process.status}"
        root = address[1]
        assert httpx.get(f"{root}/v1/models").status_code == 401
        ranked = {"model": NAME, "query": "When does it leave?", "documents": ["Dogs travel for free.", TEXT[:25]]}
        answer = httpx.post(f"{root}/v1/rerank", json=ranked, headers=KEY, timeout=60)
        assert answer.json()["results"][0]["index"] == 1

        body = json.dumps({"model": NAME, "input": [TEXT] * 8}).encode()
        port = int(root.rpartition(":")[2])
        connections = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(3)]
        for connection in connections:
            connection.sendall(head(len(body), "Authorization: Bearer a-key") + body)
        # A short request takes its turn with them, and is answered while they are not.
        answer = httpx.post(f"{root}/v1/embeddings", json={"model": NAME, "input": "a"}, headers=KEY, timeout=60)
        assert answer.status_code == 200
        process.signal(signal.SIGTERM)
        answers = [closed(connection).partition(b"\r\n\r\n") for connection in connections]
        assert process.wait(60) == 0 and "Traceback" not in process.said
    finally:
        process.kill()
    expected = Embedder(NAME, method=METHOD).encode_document(TEXT)
    for start, _, content in answers:
        assert start.startswith(b"HTTP/1.1 200")
        np.testing.assert_allclose([row["embedding"] for row in json.loads(content)["data"]], [expected] * 8, atol=1e-5)


def test_wrong_starts_end_in_a_sentence(capsys, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            (("--port", port), f"cannot listen on 127.0.0.1, port {port}"),
            (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
            (("--port", "0", "--api-key", "with blank"), "an API key holds blanks"),
            (("--port", "0", "--method", "plian"), "plian"),
        ):
            monkeypatch.setattr(sys, "argv", ["eddy", "serve", NAME, *arguments])
            with pytest.raises(SystemExit) as end:
                main()
            assert end.value.code == 1 and said in capsys.readouterr().err
    monkeypatch.setenv("EDDY_API_KEY", "")
    monkeypatch.setattr(sys, "argv", ["eddy", "serve", NAME, "--port", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "EDDY_API_KEY is set and holds no key" in capsys.readouterr().err
