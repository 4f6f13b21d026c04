"""Uploads that meet one another, cancels that come late, limits, and other processes on the same folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import BREAD, CLOCK, TIDES, opened
from tests.demo.site import Site, long_text, serving, wait
from tests.processes import context, run_code

from chroma_eddy import Index
from chroma_eddy.storage.locks import WriterLock
from eddy_demo.cli import main
from eddy_demo.errors import Unreadable
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.limits import Limits
from eddy_demo.web.server import addresses, bind
from eddy_demo.web.uploads import library_writer
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.upload_queue import Upload, UploadQueue


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library") as site:
        site.upload("other.txt", "A lighthouse stands on the cliff.")
        site.settled()
        yield site


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than a user needs."""
    monkeypatch.setattr(library_writer, "_BUSY_SECONDS", 0.1)


def together(site: Site, **files: str | bytes) -> dict[str, dict[str, Any]]:
    """Upload files so that they are written together; the jobs as they end."""
    with WriterLock(site.folder, timeout=60):
        for name, data in files.items():
            assert site.upload(f"{name}.txt", data).status_code == 200
        site.until(lambda p: p["busy"])  # what began before the last one came has been put back
    return {job["name"]: job for job in site.settled()}


def names(site: Site) -> list[str]:
    return [row["name"] for row in site.documents()]


def uploads(site: Site) -> list[Path]:
    return list((site.folder / "uploads").iterdir())


def test_a_text_is_written_once_among_files_that_come_together(site: Site) -> None:
    """Also where the first of them is cancelled in the midst: the other takes its place."""
    jobs = together(site, a="Eels swim in the ditch.", b=b"\xef\xbb\xbfEels swim in the ditch.", c="Herons wait.")
    told = {name: (jobs[f"{name}.txt"]["state"], jobs[f"{name}.txt"]["message"]) for name in "abc"}
    assert told == {"a": ("done", ""), "b": ("known", "already in the library as a.txt"), "c": ("done", "")}
    assert {"a.txt", "c.txt"} <= set(names(site))
    assert "b.txt" not in names(site)
    assert uploads(site) == []

    resume, text = site.pause(), long_text(120)
    with WriterLock(site.folder, timeout=60):
        first = site.upload("first.txt", text).json()["id"]
        site.upload("second.txt", b"\xef\xbb\xbf" + text.encode())
        site.until(lambda p: p["busy"])
    site.halfway()
    site.client.post(f"/api/jobs/{first}/cancel")
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["second.txt"] == "done"
    assert "first.txt" not in names(site)


def test_an_edited_file_can_replace_the_one_before(site: Site) -> None:
    """Both are in the library until the older one is deleted."""
    first = together(site, plan="The boat sails at six.")["plan.txt"]
    second = together(site, plan="The boat sails at seven.")["plan.txt"]
    assert (first["older"], second["older"]) == ("", first["document"]) and names(site).count("plan.txt") == 2
    assert site.client.delete(f"/api/documents/{second['older']}").status_code == 200
    wait(lambda: names(site).count("plan.txt") == 1 and not site.state.jobs.pending_removals())
    (job,) = [job for job in site.state.jobs.snapshot() if job["document"] == second["document"]]
    assert job["older"] == ""
    third = together(site, plan="The boat sails at eight.")["plan.txt"]
    site.client.delete(f"/api/documents/{third['document']}")  # the newer: the older must not be offered any more
    wait(lambda: names(site).count("plan.txt") == 1)
    assert not any(job["older"] for job in site.state.jobs.snapshot())
    assert [each["id"] for each in site.documents() if each["name"] == "plan.txt"] == [second["document"]]


def test_a_cancel_is_said_at_once(site: Site) -> None:
    """Before the writer notices it."""
    resume = site.pause()
    id_ = site.upload("slow.txt", long_text(100, seed=5)).json()["id"]
    site.halfway()
    site.client.post(f"/api/jobs/{id_}/cancel")
    assert {job["name"]: job["cancelled"] for job in site.state.jobs.snapshot()}["slow.txt"] is True
    resume()
    wait(lambda: not ids(site, "slow.txt"))


def test_the_same_file_from_many_sides(site: Site) -> None:
    text = "The miller grinds rye at night."
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: site.upload(f"rye{number}.txt", text), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, answers
    jobs = [job for job in site.settled() if job["name"].startswith("rye")]
    assert {job["state"] for job in jobs} <= {"done", "known"}, jobs
    assert len([name for name in names(site) if name.startswith("rye")]) == 1
    assert uploads(site) == []


def ids(site: Site, name: str) -> list[str]:
    return [job["id"] for job in site.state.jobs.snapshot() if job["name"] == name]


def test_a_cancel_that_comes_too_late_is_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is written, and nobody has said so yet: it leaves the library again, and can come again."""
    write = library_writer.ingest

    def cancelled(*arguments: Any) -> Any:
        *given, progress = arguments

        def told(characters: float, written: int) -> None:
            if written and ids(site, "late.txt"):
                assert site.client.post(f"/api/jobs/{ids(site, 'late.txt')[0]}/cancel").status_code == 200
            progress(characters, written)

        return write(*given, told)

    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "ingest", cancelled)
        jobs = together(site, late="The cat sleeps on the wall.", beside="The dog sleeps under it.")
    assert "late.txt" not in jobs
    assert jobs["beside.txt"]["state"] == "done", jobs
    wait(lambda: "late.txt" not in names(site))
    assert "beside.txt" in names(site)
    site.upload("late.txt", "The cat sleeps on the wall.")
    site.settled()
    assert "late.txt" in names(site)


def test_a_cancel_of_what_fails_is_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next upload of the file would be taken for the one that was cancelled."""

    def failing(*_: Any) -> None:
        site.client.post(f"/api/jobs/{ids(site, 'odd.txt')[0]}/cancel")
        raise Unreadable("it is odd")

    with monkeypatch.context() as patch:
        patch.setattr(library_writer, "read_document", failing)
        site.upload("odd.txt", "The owl hoots twice.")
        wait(lambda: not ids(site, "odd.txt"))
    site.upload("odd.txt", "The owl hoots twice.")
    site.settled()
    assert "odd.txt" in names(site)


def test_a_file_that_is_wanted_again_is_not_cancelled(site: Site) -> None:
    """Its cancel has not been carried out yet."""
    resume, text = site.pause(), long_text(100, seed=3)
    id_ = site.upload("again.txt", text).json()["id"]
    site.halfway()
    check = site.state.writer.check
    site.state.writer.check = lambda: None
    site.client.post(f"/api/jobs/{id_}/cancel")
    assert site.upload("again.txt", text).json()["state"] == "waiting"
    site.state.writer.check = check
    resume()
    assert {job["name"]: job["state"] for job in site.settled()}["again.txt"] == "done"
    assert "again.txt" in names(site)


def test_what_failed_and_what_comes_in_takes_room(tmp_path: Path) -> None:
    jobs = JobQueue(tmp_path, 2)
    part = jobs.uploads.new_part()
    part.write_bytes(b"text")
    with jobs.reserve():
        assert jobs.accept(part, Upload("ab" * 32, "a.txt", 4), None) == "waiting"
    with (
        jobs.reserve(),
        pytest.raises(RequestRefused, match="2 files are waiting already; wait until some are written"),
        jobs.reserve(),
    ):
        pass
    (job,) = jobs.waiting()
    jobs.fail(job, "it is odd")
    with (
        jobs.reserve(),
        pytest.raises(RequestRefused, match=r"1 of which failed; .* or put away those that failed"),
        jobs.reserve(),
    ):
        pass
    jobs.clear(failed=True)
    with jobs.reserve(), jobs.reserve():
        assert list(jobs.uploads.folder.iterdir()) == []


def test_an_upload_has_reached_the_disk_before_it_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content before its name, so that a power failure leaves no name without content."""
    done, fsync, replace = list[tuple[str, str]](), os.fsync, os.replace

    def recorded_sync(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        done.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    uploads, id_ = UploadQueue(tmp_path), "a" * 64
    part = uploads.new_part()
    part.write_bytes(b"text")
    uploads.keep(part, Upload(id_, "a.txt", 4))
    note = f"{id_}.json"
    written = f".{note}.{os.getpid()}.part"
    assert done == [("sync", part.name), ("rename", id_), ("sync", written), ("rename", note), ("sync", "uploads")]


def test_few_files_are_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, write = [], library_writer.ingest

    def counted(*arguments: Any) -> Any:
        sizes.append(len(arguments[3]))
        return write(*arguments)

    with serving(tmp_path / "library", Limits(batch_characters=40)) as site:
        monkeypatch.setattr(library_writer, "ingest", counted)
        files = {name: f"The {name} is painted blue, and nobody knows why." for name in ("door", "gate")}
        assert {job["state"] for job in together(site, **files).values()} == {"done"}
    assert sizes[-2:] == [1, 1]


def test_a_document_that_goes_while_it_is_opened(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.upload("brief.txt", "The mayfly lives for a day.")
    key = {job["name"]: job["document"] for job in site.settled()}["brief.txt"]
    read = Index.embedded

    def gone(*arguments: Any, **options: Any) -> Any:
        site.client.delete(f"/api/documents/{key}")
        wait(lambda: not site.state.jobs.pending_removals())
        return read(*arguments, **options)

    monkeypatch.setattr(Index, "embedded", gone)
    answer = site.client.get(f"/documents/{key}")
    assert (answer.status_code, "not in the library any more" in answer.text) == (404, True)


def test_the_command_line_on_the_same_folder(tmp_path: Path) -> None:
    """Another process begins the library, adds to it, makes it anew, and puts another one in its place."""
    folder, first, second = tmp_path / "library", tmp_path / "bread.txt", tmp_path / "tides.md"
    first.write_text(BREAD, encoding="utf-8")
    second.write_text(TIDES, encoding="utf-8")
    with serving(folder) as site:
        assert site.ask("What does the moon do?") == [("done", {"passages": 0, "seconds": pytest.approx(0, abs=60)})]
        elsewhere("ingest", first, "--library", folder, "--method", "htp:exit=2")
        wait(lambda: names(site) == ["bread.txt"])
        version = site.state.reader.version
        elsewhere("ingest", second, "--library", folder)
        wait(lambda: site.state.reader.version > version)
        assert names(site) == ["bread.txt", "tides.md"]
        assert dict(site.ask("What does the moon pull towards it?", k=1))["hit"]["name"] == "tides.md"
        elsewhere("library", "reindex", "--library", folder, "--method", "plain:exit=2")
        hit = dict(site.ask("What does the moon pull towards it?", k=1))["hit"]
        assert site.client.get("/api/documents").json()["library"]["method"] == "plain:exit=2"
        assert hit["name"] == "tides.md"
        elsewhere("ingest", second, "--library", folder, "--rebuild", "--method", "htp:exit=2")
        wait(lambda: names(site) == ["tides.md"])
        assert "hit" in dict(site.ask("What does the moon pull towards it?", k=1))
        site.upload("clock.html", CLOCK)
        assert [job["state"] for job in site.settled()] == ["done"]
    with opened(folder) as index:
        assert {str(each.metadata["name"]) for each in index.documents()} == {"tides.md", "clock.html"}


@pytest.mark.slow
def test_a_library_in_place_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has looked yet: what is uploaded, or deleted, goes to the library that is there now."""
    monkeypatch.setattr(library_writer, "_BUSY_SECONDS", 600.0)
    folder, tides = tmp_path / "library", tmp_path / "tides.md"
    tides.write_text(TIDES, encoding="utf-8")
    with serving(folder) as site:
        site.upload("bread.txt", BREAD)
        site.settled()
        (key,) = (row["id"] for row in site.documents())
        elsewhere("ingest", tides, "--library", folder, "--rebuild", "--method", "plain:exit=2")
        site.upload("clock.html", CLOCK)
        assert {job["name"]: job["state"] for job in site.settled()}["clock.html"] == "done"
        assert names(site) == ["clock.html", "tides.md"]
        elsewhere("ingest", tides, "--library", folder, "--rebuild", "--method", "htp:exit=2")
        site.client.delete(f"/api/documents/{next(row['id'] for row in site.documents() if row['name'] == 'tides.md')}")
        wait(lambda: not names(site))
        assert site.upload("bread.txt", BREAD).json()["state"] == "waiting"
        site.settled()
        assert [row["id"] for row in site.documents()] == [key]
    with opened(folder) as index:
        assert {str(each.metadata["name"]) for each in index.documents()} == {"bread.txt"}
        assert index.check() == {}


def elsewhere(*arguments: object) -> None:
    child = context().Process(target=command, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0, arguments


def command(*arguments: object) -> None:
    sys.argv = ["eddy-demo", *map(str, arguments)]
    main()


SERVE = """
import os, sys, threading
from eddy_demo.cli import main
end = threading.Timer(60, os._exit, [9])  # it is not to serve
end.daemon = True
end.start()
sys.argv = ["eddy-demo", "serve", "--library", sys.argv[1], "--port", "0"]
main()
"""


def test_one_server_for_a_library(tmp_path: Path) -> None:
    """Another one would take its uploads for what an earlier one left. A folder of somebody else's is left alone."""
    with UploadQueue(tmp_path / "library").lock():
        outcome = run_code(SERVE, tmp_path / "library")
    assert outcome.returncode == 1
    assert "is served by another process: use its page, stop it first" in " ".join(outcome.stderr.split())
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine", encoding="utf-8")
    outcome = run_code(SERVE, foreign)
    assert (outcome.returncode, "is not a library" in " ".join(outcome.stderr.split())) == (1, True)
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("host", "shown", "own"),
    [("0.0.0.0", "127.0.0.1", set()), ("127.0.0.1", "127.0.0.1", {"127.0.0.1"}), ("localhost", "127.0.0.1", None)],
)
def test_where_it_is_found(host: str, shown: str, own: set[str] | None) -> None:
    """Never at an address that is none, and under the name that it was given."""
    with bind(host, 0) as listener:
        address, answered = addresses(host, listener)
        assert address == f"http://{shown}:{listener.getsockname()[1]}/"
    assert answered == (own if own is not None else {"localhost", "127.0.0.1"})
