"""`eddy-demo ingest --watch`, as a process of its own beside which files change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
WAIT = 60
"""Seconds within which a change must be told."""
COMMAND = "import sys; from eddy_demo.cli import main; sys.argv[0] = 'eddy-demo'; main()"


def test_a_watched_folder_and_its_library_stay_alike(documents: Path, tmp_path: Path, run: Run) -> None:
    library, said = tmp_path / "library", tmp_path / "said.txt"
    arguments = ("ingest", documents, "--library", library, "--method", "htp:exit=2", "--watch")
    with said.open("wb") as told:
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *map(str, arguments)], stderr=told)

    def wait_for(words: str) -> None:
        end = time.monotonic() + WAIT
        while words not in " ".join(said.read_text("utf-8").split()):
            assert process.poll() is None and time.monotonic() < end, said.read_text("utf-8")
            time.sleep(0.05)

    def names() -> set[str]:
        found = run("ask", "What is zinc?", "--library", library, "-k", 100, "--alpha", 1, "--json")
        return {answer["document"] for answer in json.loads(found.out)}

    try:
        wait_for("Watching")
        before = names()
        (documents / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
        wait_for("broken.pdf")
        (documents / "zinc.txt").write_text("Zinc is a metal that keeps iron from rust.", encoding="utf-8")
        wait_for("1 document written")
        assert names() == {*before, "zinc.txt"}
        (documents / "zinc.txt").unlink()
        wait_for("Taken out, because no longer there: zinc.txt.")
        assert names() == before
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 0
        assert said.read_text("utf-8").splitlines()[-1] == "Watching ended; the library is complete."
    finally:
        process.kill()


def test_a_file_cannot_be_watched(documents: Path, tmp_path: Path, run: Run) -> None:
    file = next(documents.glob("*.md"))
    refused = run("ingest", file, "--library", tmp_path / "library", "--watch")
    assert refused.code == 1 and "is no folder, and --watch takes folders" in " ".join(refused.err.split())
    assert not (tmp_path / "library").exists()
