"""A library that is searchable at once, and read more closely while it answers."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.adapters.indexes import assert_same
from tests.adapters.indexes import rows as index_rows
from tests.demo.conftest import Outcome, opened, recommend
from tests.demo.test_cli import QUESTION, refused
from tests.processes import context

from chroma_eddy.write import writer
from eddy_demo.cli import embedding_work, lock, main, work
from eddy_demo.errors import NoLibrary
from eddy_demo.library import rebuild
from eddy_demo.library.rebuild import RebuildProgress, next_settings, read_state, rebuild_library
from eddy_demo.library.settings import NEXT_SETTINGS, LibrarySettings, read_settings
from eddy_embed import Embedder
from eddy_embed.errors import ZeroVector
from eddy_embed.methods.recommended import Recommendation

Run = Callable[..., Outcome]
FAST, BEST = "plain:exit=0", "plain:exit=1"


@pytest.fixture(autouse=True)
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers find more with the bundled model, as the table has it; documents are written one by one."""
    recommend(monkeypatch, Recommendation(BEST), FAST)
    monkeypatch.setattr(writer, "GROUP_DOCUMENTS", 1)


@pytest.fixture
def ingest(documents: Path, tmp_path: Path, run: Run) -> Callable[..., Outcome]:
    """Ingests the documents into a library of this name."""

    def call(name: str, *options: object) -> Outcome:
        return run("ingest", documents, "--library", tmp_path / name, "--passage-size", 24, *options)

    return call


def rows(library: Path) -> dict[str, dict[str, tuple[Any, ...]]]:
    with opened(library) as index:
        return index_rows(index)


def answers(run: Run, library: Path) -> list[dict[str, Any]]:
    asked = run("ask", QUESTION, "--library", library, "-k", 100, "--json")
    assert asked.code == 0, asked.err
    found: list[dict[str, Any]] = json.loads(asked.out)
    return found


def state(library: Path) -> tuple[str, str]:
    settings = read_settings(library)
    return settings.method, settings.plan


def interrupting(patch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C once so many documents are read more closely."""
    meter = rebuild._Meter.__call__

    def call(self: rebuild._Meter, characters: float, written: int) -> None:
        meter(self, characters, written)
        if written == after:
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(rebuild._Meter, "__call__", call)


# --- The two steps


def test_both_steps_give_what_one_gives(tmp_path: Path, ingest: Run, run: Run) -> None:
    made = ingest("both")
    assert made.code == 0 and state(tmp_path / "both") == (BEST, "best"), made.err
    assert f"Method {BEST}: recommended for retrieval on eddy-tiny. Another: --method." in made.err
    assert "Searchable now" not in made.err and "more closely" not in made.err, "three short texts are read at once"
    assert ingest("at-once", "--best").code == 0 and state(tmp_path / "at-once") == (BEST, "best")
    assert_same(rows(tmp_path / "both"), rows(tmp_path / "at-once"))
    assert f"with {BEST} (best)" in run("library", "list", "--library", tmp_path / "both").out
    again = ingest("both")
    assert "nothing to do" in again.err and len(again.err.splitlines()) == 1


def test_a_changed_document_of_a_deepened_library_is_read_closely(
    documents: Path, tmp_path: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ingest("library").code == 0
    (documents / "bread.txt").write_text("Rye bread needs no yeast.", encoding="utf-8")
    monkeypatch.setattr(embedding_work, "rebuild", None)
    again = ingest("library")
    assert again.code == 0 and "1 document written" in again.err, again.err
    assert ingest("expected", "--best").code == 0
    assert_same(rows(tmp_path / "library"), rows(tmp_path / "expected"))


def test_the_user_is_told_what_it_takes(tmp_path: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_work, "_NOTICEABLE_TOKENS", 1)
    made = ingest("library")
    assert made.code == 0
    told = made.err.splitlines()
    now = next(at for at, line in enumerate(told) if line.startswith("Searchable now: eddy-demo ask "))
    assert told[now].endswith(f'ask "..." --library {tmp_path / "library"}, in another terminal. Ctrl-C leaves it so.')
    assert "3 documents written" in told[now - 1]
    assert re.fullmatch(rf"{tmp_path / 'library'}: read more closely, with {BEST} \(\d+ s\)\.", told[-1])


def test_a_long_reading_is_told_with_figures(
    tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is left, by the speed so far; a model of another name has a smaller one beside it."""
    monkeypatch.setattr(embedding_work, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(rebuild, "_MEASURED_SECONDS", 1e-9)
    made = ingest("library")
    tokens = sum(
        each["tokens"] for each in json.loads(run("library", "list", "--library", tmp_path / "library", "--json").out)
    )
    told = re.findall(
        r"Reading ([\d,]+) tokens takes about \d+ seconds? on this machine \(([\d,]+) tokens a second\)\.", made.err
    )
    assert len(told) == 1, made.err
    left, speed = (int(each.replace(",", "")) for each in told[0])
    assert 0 < left <= tokens and speed > 0
    assert "smaller model" not in made.err
    told_of = RebuildProgress(727_000, 0.0, 132, 0, 41.0)
    line = embedding_work._long(told_of, LibrarySettings("large", BEST))
    assert line == (
        "Reading 727,000 tokens takes about 5 hours on this machine (41 tokens a second). Until then the library "
        "answers as before, also after Ctrl-C. A smaller model reads faster: eddy models get smollm2, then eddy-demo "
        "library rebuild --model smollm2."
    )


def test_the_demo_asks_before_it_reads_closely(documents: Path, tmp_path: Path, ingest: Run, run: Run) -> None:
    told = run("demo", documents, "-q", QUESTION, "--library", tmp_path / "library", "-k", 3)
    assert told.code == 0 and state(tmp_path / "library") == (BEST, "best"), told.err
    demo = ("demo", documents, "-q", QUESTION, "--library", tmp_path / "fast", "-k", 3, "--fast")
    fast = run(*demo)
    assert state(tmp_path / "fast") == (FAST, "fast")
    assert told.out.split("seconds.")[0].rsplit(",", 1)[0] == fast.out.split("seconds.")[0].rsplit(",", 1)[0]


# --- Interrupted


def test_an_interrupted_reading_goes_on(
    documents: Path, tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast index answers until then; what is ingested meanwhile is read closely, too, and nothing twice."""
    library = tmp_path / "library"
    with monkeypatch.context() as patch:
        interrupting(patch, after=2)
        stopped = ingest("library")
    assert stopped.code == 130
    told = "Interrupted. The library answers from its fast index. Run the same command again to read on, or with --fast"
    assert told in " ".join(stopped.err.split())
    assert state(library) == (FAST, "deepen") and (library / NEXT_SETTINGS).exists()
    assert ingest("fast", "--fast").code == 0
    assert answers(run, library) == answers(run, tmp_path / "fast")
    before = read_state(library).progress
    assert (before.total, before.written) == (3, 2) and 0.3 < before.done < 1
    title = " ".join(run("library", "list", "--library", library).out.split())
    assert f"{FAST} (fast; {before.done:.0%} read more closely, which `eddy-demo ingest` continues)" in title

    (documents / "zinc.txt").write_text("Zinc is a metal. It melts at 420 degrees.", encoding="utf-8")
    (documents / "bread.txt").write_text("Rye bread needs no yeast.", encoding="utf-8")
    seen = list[RebuildProgress]()
    monkeypatch.setattr(embedding_work.console, "rebuild_bar", lambda *_: nullcontext(seen.append))
    assert ingest("library").code == 0 and state(library) == (BEST, "best")
    assert not (library / NEXT_SETTINGS).exists()
    assert seen[0].done > 0 and [each.done for each in seen] == sorted(each.done for each in seen)
    assert seen[-1].done == pytest.approx(1) and seen[-1].written == seen[-1].total == 4
    assert ingest("expected", "--best").code == 0
    assert_same(rows(library), rows(tmp_path / "expected"))


def reading(told: Connection, *arguments: object) -> None:
    """The command line, which stays in the midst of reading closely, once two documents are written."""
    patch = pytest.MonkeyPatch()
    recommend(patch, Recommendation(BEST), FAST)
    writer.GROUP_DOCUMENTS = 1
    meter = rebuild._Meter.__call__

    def call(self: rebuild._Meter, characters: float, written: int) -> None:
        meter(self, characters, written)
        if written == 2:
            told.send("two")
            threading.Event().wait()

    rebuild._Meter.__call__ = call  # type: ignore[method-assign]
    sys.argv = ["eddy-demo", *map(str, arguments)]
    main()


def test_a_killed_reading_goes_on(
    documents: Path,
    tmp_path: Path,
    ingest: Run,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is asked while another process reads, and after that was killed; whoever writes waits for it."""
    library, (ours, theirs) = tmp_path / "library", context().Pipe()
    command = ("ingest", documents, "--library", library, "--passage-size", 24)
    process = context().Process(target=reading, args=(theirs, *command), daemon=True)
    process.start()
    assert ours.poll(120) and ours.recv() == "two"
    during, told = answers(run, library), list[str]()

    def kill(_: float) -> None:
        told.append(capsys.readouterr().err)
        process.kill()
        process.join()
        assert answers(run, library) == during
        assert state(library) == (FAST, "deepen")

    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=kill))
    (documents / "zinc.txt").write_text("Zinc is a metal.", encoding="utf-8")
    waited = ingest("library")
    assert waited.code == 0 and "1 document written" in waited.err and state(library) == (BEST, "best")
    assert len(told) == 1 and told[0].startswith(f"{library}: process {process.pid} (since 20")
    assert "is reading it more closely. Waiting until" in told[0]
    assert ingest("expected", "--best").code == 0
    assert_same(rows(library), rows(tmp_path / "expected"))


def test_an_exchange_without_its_settings_is_finished(
    documents: Path, tmp_path: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(rebuild, "_write_new_settings", cut)
        assert ingest("library").code == 1
    assert state(tmp_path / "library") == (FAST, "deepen")
    (documents / "bread.txt").write_text("Rye bread needs no yeast.", encoding="utf-8")
    again = ingest("library")
    assert again.code == 0 and state(tmp_path / "library") == (BEST, "best"), again.err
    assert "1 document written" in again.err
    assert ingest("expected", "--best").code == 0
    assert_same(rows(tmp_path / "library"), rows(tmp_path / "expected"))


def test_a_question_during_the_exchange_is_asked_again(
    tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model was loaded for the fast index, in whose place the other one is by then."""
    library, load = tmp_path / "library", work.load_embedder
    with monkeypatch.context() as patch:
        interrupting(patch, after=1)
        assert ingest("library").code == 130

    def overtaken(settings: LibrarySettings, device: str | None) -> Embedder:
        embedder = load(settings, device)
        if settings.method == FAST:
            rebuild_library(library, next_settings(settings), Embedder("eddy-tiny", method=BEST))
        return embedder

    monkeypatch.setattr(work, "load_embedder", overtaken)
    assert answers(run, library) and state(library) == (BEST, "best")


def test_a_text_that_cannot_be_read_closely_leaves_the_fast_index(
    tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is there anything left over that keeps another rebuild from its work."""
    library, meter = tmp_path / "library", rebuild._Meter.__call__

    def fail(self: rebuild._Meter, characters: float, written: int) -> None:
        meter(self, characters, written)
        if written:
            raise ZeroVector("text 1 has a vector of zeros")

    with monkeypatch.context() as patch:
        patch.setattr(rebuild._Meter, "__call__", fail)
        refused(ingest("library"), "vector of zeros", "The library answers from its fast index; --fast leaves it so.")
    assert state(library) == (FAST, "deepen") and answers(run, library)
    assert not (library / NEXT_SETTINGS).exists()
    assert run("library", "rebuild", "--library", library, "--method", "plain:exit=2").code == 0
    assert state(library) == ("plain:exit=2", "chosen") and answers(run, library)


# --- One step alone


def test_fast_is_remembered_until_best_is_asked_for(
    documents: Path, tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    made = ingest("library", "--fast")
    assert f"Method {FAST}: recommended for retrieval on eddy-tiny, without its layers." in made.err
    (documents / "zinc.txt").write_text("Zinc is a metal.", encoding="utf-8")
    assert ingest("library").code == 0 and state(library) == (FAST, "fast")
    assert run("library", "rebuild", "--library", library, "--passage-size", 12).code == 0
    assert state(library) == (FAST, "fast")
    assert "(fast)" in run("library", "list", "--library", library).out
    deepened = run("ingest", documents, "--library", library, "--best")
    assert deepened.code == 0 and state(library) == (BEST, "best"), deepened.err
    refused(ingest("library", "--passage-size", 12, "--fast"), f"made with method {BEST}, not {FAST}: leave out --fast")
    assert run("library", "rebuild", "--library", library, "--fast").code == 0 and state(library) == (FAST, "fast")
    assert run("library", "rebuild", "--library", library, "--best").code == 0 and state(library) == (BEST, "best")
    for command in (("ingest", documents), ("library", "rebuild")):
        refused(run(*command, "--library", library, "--fast", "--method", "htp"), "--fast chooses the method, and so")


def test_fast_stops_a_reading_that_was_interrupted(
    tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    with monkeypatch.context() as patch:
        interrupting(patch, after=1)
        assert ingest("library").code == 130
    stopped = ingest("library", "--fast")
    assert stopped.code == 0 and state(library) == (FAST, "fast"), stopped.err
    assert not (library / NEXT_SETTINGS).exists()
    with opened(library) as index:
        assert index.status().rebuilt is None and index.rebuilt() == {}
    assert ingest("library").code == 0 and state(library) == (FAST, "fast")


def test_a_chosen_method_is_the_only_one(tmp_path: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_work, "rebuild", None)
    for name in ("plain:exit=2", "fast", "best"):
        made = ingest(f"with-{name[:5]}", "--method", name)
        assert made.code == 0, made.err
    assert state(tmp_path / "with-plain") == ("plain:exit=2", "chosen")
    assert (state(tmp_path / "with-fast"), state(tmp_path / "with-best")) == ((FAST, "chosen"), (BEST, "chosen"))


def test_one_method_for_both_is_one_step(tmp_path: Path, ingest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recommend(monkeypatch, Recommendation(FAST), FAST)
    monkeypatch.setattr(embedding_work, "rebuild", None)
    assert ingest("library").code == 0 and state(tmp_path / "library") == (FAST, "best")


# --- What else there is in a library


def test_removed_texts_can_be_erased_before_it_is_read_closely(
    tmp_path: Path, ingest: Run, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unfinished index held them too, and is made again without them."""
    library = tmp_path / "library"

    def holds(word: bytes) -> bool:
        return any(word in path.read_bytes() for path in library.rglob("*") if path.is_file())

    with monkeypatch.context() as patch:
        interrupting(patch, after=2)
        assert ingest("library").code == 130
    assert run("library", "remove", "bread.txt", "--erase", "--library", library).code == 0
    assert not holds(b"flour") and holds(b"pendulum")
    assert read_state(library).progress.written == 0
    (kept,) = {row["document"] for row in answers(run, library)} - {"tides.md"}
    assert kept == "clock.html"


@pytest.mark.parametrize(("late", "kept"), [(True, None), (False, False), (None, None)])
def test_settings_of_earlier_versions(tmp_path: Path, late: bool | None, kept: bool | None) -> None:
    stored = {"format": 2, "model": "eddy-tiny", "method": FAST, "passage_size": 99, "default": True}
    if late is not None:
        stored["late"] = late
    (tmp_path / "library.json").write_text(json.dumps(stored), encoding="utf-8")
    assert read_settings(tmp_path) == LibrarySettings("eddy-tiny", FAST, 99, kept, "best")
    (tmp_path / "library.json").write_text(json.dumps({**stored, "default": False}), encoding="utf-8")
    assert read_settings(tmp_path).plan == "chosen"
    stored = {"format": 3, "model": "eddy-tiny", "method": FAST, "plan": "slow"}
    (tmp_path / "library.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(NoLibrary, match="unknown plan 'slow'"):
        read_settings(tmp_path)


def test_late_is_what_the_index_was_made_with(documents: Path, tmp_path: Path, ingest: Run) -> None:
    assert ingest("separate", "--fast", "--separate").code == 0
    assert read_settings(tmp_path / "separate").late is False
    refused(ingest("separate", "--late"), "late False, not True: leave out --late/--separate")
    assert ingest("default", "--fast").code == 0
    assert read_settings(tmp_path / "default").late is None
    with opened(tmp_path / "default") as index:
        made = index.settings.late
    assert ingest("default", "--late" if made else "--separate").code == 0
    (documents / "bread.txt").write_text("Rye bread needs no yeast.", encoding="utf-8")
    refused(ingest("default", "--separate" if made else "--late"), "late", "--rebuild")
