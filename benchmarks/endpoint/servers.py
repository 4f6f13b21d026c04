"""The servers, each in processes of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

METHOD = "plain+readout:specials=true"
"""What sentence-transformers makes of a model without a configuration of its own: the mean, over specials too."""
MODEL, THREADS = "EDDY_PEER_MODEL", "EDDY_PEER_THREADS"
"""Environment variables: the peer's model folder, and threads of one of its processes."""
BENCHMARKS = Path(__file__).resolve().parent.parent
START = 600
"""Seconds that a server may take to start."""
STARTED = ("Application startup complete", "/v1 (Ctrl-C")
"""What uvicorn says in each of its processes when it is ready, and what Eddy says."""
EDDY = "eddy"
PEER = "sentence-transformers"
WORKERS = f"{PEER}, {os.cpu_count()} processes"
INFINITY = "infinity-emb"


def commands(model: Path, infinity: Path | None) -> dict[str, list[str]]:
    """How each system is started, all but its port.

    Args:
        model: Folder of the model.
        infinity: The program `infinity_emb`; None: it is left out.
    """
    peer = [sys.executable, "-m", "uvicorn", "endpoint.peer:made", "--factory", "--no-access-log"]
    found = {
        EDDY: [
            *(str(Path(sys.executable).parent / "eddy"), "serve", str(model), "--name", "model"),
            *("--method", METHOD, "--dtype", "float32", "--device", "cpu"),
        ],
        PEER: peer,
        WORKERS: [*peer, "--workers", str(os.cpu_count())],
    }
    if infinity is not None:
        found[INFINITY] = [
            *(str(infinity), "v2", "--model-id", str(model), "--served-model-name", "model", "--url-prefix", "/v1"),
            *("--engine", "torch", "--device", "cpu", "--dtype", "float32", "--no-bettertransformer"),
            *("--host", "127.0.0.1"),
        ]
    return found


@contextmanager
def served(system: str, command: list[str], model: Path) -> Iterator[int]:
    """Start a server, until the block ends; its port."""
    threads = {THREADS: "1"} if system == WORKERS else {}
    path = os.pathsep.join(filter(None, [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]))
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    alone = {} if system == INFINITY else {"PYTHONPATH": path}  # it has an environment of its own
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **quiet, **alone, **threads, MODEL: str(model)},
    )
    late = threading.Timer(START, os.killpg, (process.pid, signal.SIGKILL))
    late.start()
    try:
        assert process.stderr is not None
        told: list[str] = []
        missing = os.cpu_count() or 1 if system == WORKERS else 1
        for line in process.stderr:
            told.append(line)
            missing -= STARTED[system == EDDY] in line
            if not missing:
                break
        else:
            raise SystemExit(f"{system} did not start:\n{''.join(told[-20:])}")
        while not _listens(port):  # uvicorn says so a moment before
            time.sleep(0.05)
        late.cancel()
        # What it says from here on must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield port
    finally:
        late.cancel()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
