"""What stops an ingestion: signals, other processes, full disks, locked folders; and what is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from tests.adapters.indexes import assert_same
from tests.demo.conftest import FAST, Outcome, opened
from tests.demo.test_cli import QUESTION, refused, rows
from tests.disk import files_of_at_most
from tests.processes import UNPRIVILEGED, run_code
from tests.selection import mostly_slow

from chroma_eddy import WriterLock
from chroma_eddy.storage import DOCUMENTS, MAIN
from eddy_demo.cli import work
from eddy_demo.library.settings import holds_library

Run = Callable[..., Outcome]


def test_another_process_that_writes_is_named(library: Path, documents: Path, run: Run) -> None:
    """The library can be asked meanwhile."""
    with WriterLock(library):
        refused(
            run("ingest", documents, "--library", library),
            f"process {os.getpid()} (since 20",
            "is writing to the database",
        )
        assert run("ask", QUESTION, "--library", library).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_elsewhere_ends_in_one_line(
    number: signal.Signals, library: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setattr(work, "load_embedder", lambda *_: os.kill(os.getpid(), number))
    asked = run("ask", QUESTION, "--library", library)
    assert (asked.code, asked.out) == (128 + number, "") and len(asked.err.splitlines()) == 1
    assert signal.getsignal(number) is before


# --- Disks and folders


@pytest.mark.parametrize("size", mostly_slow([100, 4_000, 200_000], [200_000]))
def test_a_disk_that_is_full_is_named_and_the_next_ingestion_completes_it(
    size: int, documents: Path, tmp_path: Path, run: Run
) -> None:
    library = tmp_path / "library"
    with files_of_at_most(size):
        full = run("ingest", documents, "--library", library, *FAST)
    refused(full, "see that the disk has room")
    assert holds_library(library) == library.exists() == (size > 4_000)
    # Another process has no broken client of the same path to reuse.
    SharedSystemClient.clear_system_cache()
    made = run("ingest", documents, "--library", library, *FAST)
    assert made.code == 0 and "3 documents written" in made.err
    assert {answer["document"] for answer in json.loads(run("ask", QUESTION, "-l", library, "--json").out)}


WITHOUT_PERMISSION = """
import json, sys
from pathlib import Path
from tests.demo.conftest import command
from tests.demo.site import serving
from eddy_demo.web.uploads import Uploads
library, documents = map(Path, sys.argv[1:])
ended = [
    command("ask", "When do boats leave?", "--library", library),
    command("ingest", documents, "--library", library),
    command("ingest", documents, "--library", library / "inside"),
]
with Uploads(library).serve(), serving(library, method=None) as site:
    site.settled()
    assert dict(site.ask("When do boats leave?"))["hit"], "nothing was found"
    answer = site.upload("new.txt", "Something new.")
    print(json.dumps([*((each.code, " ".join(each.err.split())) for each in ended), (answer.status_code, answer.text)]))
"""


def test_folders_that_cannot_be_written_to(library: Path, documents: Path, tmp_path: Path, run: Run) -> None:
    before = rows(library)
    (documents / "new.txt").write_text("Something new.", encoding="utf-8")
    folders = [library, library / "chroma"]
    for folder in folders:
        folder.chmod(0o555)
    try:
        ended = run_code(UNPRIVILEGED + WITHOUT_PERMISSION, library, documents)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert ended.returncode == 0, ended.stderr
    asked, ingested, inside, served = json.loads(ended.stdout)
    assert asked[0] == 0, asked
    refusal = "library cannot be written to, so it can be asked but not changed"
    assert ingested[0] == 1 and refusal in ingested[1]
    assert inside[0] == 1 and inside[1].endswith("inside: Permission denied")
    assert served[0] == 500 and refusal in served[1]
    assert_same(rows(library), before, atol=0)
    (tmp_path / "file").touch()
    refused(run("ingest", documents, "--library", tmp_path / "file" / "library"), "Not a directory")


# --- Documents that are gone


def test_what_is_gone_is_told_and_taken_out_on_demand(library: Path, documents: Path, tmp_path: Path, run: Run) -> None:
    table = documents / "rows.jsonl"
    table.write_text('{"id": 1, "text": "A first row."}\n{"id": 2, "text": "A second row."}\n', encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.txt").write_text("Of another folder.", encoding="utf-8")
    for folder in (documents, tmp_path / "elsewhere"):
        assert "No longer there" not in run("ingest", folder, "--library", library).err
    (tmp_path / "elsewhere" / "other.txt").unlink()
    (documents / "bread.txt").unlink()
    (documents / "tides.md").write_bytes(b"caf\xe9")  # there, and cannot be read for now
    table.write_text('{"id": 2, "text": "A second row."}\nno row\n', encoding="utf-8")
    told = run("ingest", documents, "--library", library)
    assert "No longer there, but still in the library: bread.txt. To take out: --sync." in told.err
    table.write_text('{"id": 2, "text": "A second row."}\n', encoding="utf-8")
    (documents / "tides.md").write_text("# Tides\n\nBack again.", encoding="utf-8")
    taken = run("ingest", documents, "--library", library, "--sync")
    assert "Taken out, because no longer there: bread.txt, 1." in taken.err
    with opened(library) as index:
        entries = index.entries()
        names = sorted(entry.metadata["name"] for entry in entries.values())
        assert names == ["2", "clock.html", "other.txt", "tides.md"]
    for part in (MAIN, DOCUMENTS):
        assert {row[1]["eddy_document"] for row in rows(library)[part].values()} == set(entries)
    assert "No longer there" not in run("ingest", documents, "--library", library).err
