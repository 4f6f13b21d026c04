"""The command line, end to end: real model, real Chroma, real files; what it shows, what stops it, and libraries."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from safetensors.torch import load_file, save_file
from tests.adapters.indexes import assert_same
from tests.adapters.indexes import rows as index_rows
from tests.adapters.killing import SAVED_OFTEN
from tests.demo.conftest import FAST, cut_power, opened, run
from tests.disk import files_of_at_most
from tests.processes import UNPRIVILEGED, run_code
from tests.selection import mostly_slow, slow

from chroma_eddy import ALPHA, WriterLock
from chroma_eddy import storage as chroma_storage
from chroma_eddy.storage import DOCUMENTS, MAIN, Storage
from eddy_demo.ask import ask
from eddy_demo.cli import work
from eddy_demo.cli.console import pluralize
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.library.library import open_library
from eddy_demo.library.settings import holds_library, read_settings, write_settings
from eddy_embed import Embedder
from eddy_embed.model.loading.names import BUNDLED
from readers_eddy.documents import read_documents

QUESTION = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method="htp:exit=2")


def rows(library: Path) -> dict[str, dict[str, tuple]]:
    """Everything that a library holds, by collection and id."""
    with opened(library) as index:
        return index_rows(index)


# --- Answers


def test_answers_are_exact(library: Path, documents: Path, embedder: Embedder) -> None:
    """Ranges, texts, cosines, ranking and best sentences, against the embedder and plain numpy."""
    answers = json.loads(run("ask", QUESTION, "--library", library, "-k", 100, "--alpha", 1, "--json").out)
    query = embedder.encode_query(QUESTION)
    expected = []
    for document in read_documents([documents]).documents:
        embedded = embedder.encode_long(document.text, passage_size=24)
        for passage in embedded.passages:
            sentences = embedded.sentences[passage.first_sentence : passage.last_sentence + 1]
            best = max(sentences, key=lambda s: float(s.vector @ query))
            expected.append((float(passage.vector @ query), document, passage, best, float(best.vector @ query)))
    expected.sort(key=lambda row: -row[0])
    assert len(answers) == len(expected) > 5
    for answer, (cosine, document, passage, best, best_cosine) in zip(answers, expected, strict=True):
        assert answer["cosine"] == pytest.approx(cosine, abs=1e-5)
        assert answer["sentence_cosine"] == pytest.approx(best_cosine, abs=1e-4)  # stored in half precision
        assert (answer["document"], answer["start"], answer["end"]) == (document.name, passage.start, passage.end)
        assert (answer["sentence_start"], answer["sentence_end"]) == (best.start, best.end)
        assert (answer["title"], answer["text"]) == (document.title, document.text[passage.start : passage.end])


def test_page_shows_everything(library: Path) -> None:
    answers = json.loads(run("ask", QUESTION, "--library", library, "-k", 2, "--json").out)
    page = run("ask", QUESTION, "--library", library, "-k", 2).out
    assert QUESTION in page
    assert len(re.findall(r"score \d\.\d\d$", page, re.MULTILINE)) == 2
    flat = " ".join(page.split())
    for answer in answers:
        assert answer["document"] in page
        assert f"score {answer['score']:.2f}" in page
        best = answer["text"][answer["sentence_start"] - answer["start"] : answer["sentence_end"] - answer["start"]]
        assert f"»{' '.join(best.split())}«" in flat
    silence = "Not in your documents. The closest passages:"
    assert silence not in page and silence in run("ask", "Who sings opera?", "--library", library).out


# --- Ingesting again


@pytest.mark.parametrize(("part", "name"), [(DOCUMENTS, "SIGTERM"), slow(MAIN, "SIGINT")])
def test_an_interrupted_document_is_named_and_repaired(
    library: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    """`test_index_kills` has what questions find until then."""
    number = signal.Signals[name]
    (documents / "tides.md").write_text("# Tides\n\nThe sea never sleeps. " * 9, encoding="utf-8")
    (documents / "zinc.txt").write_text("Zinc is a metal.", encoding="utf-8")
    upsert = Storage.upsert
    with monkeypatch.context() as patch:

        def stop(self: Storage, into: str, *rows: Any) -> Any:
            if into == part:
                os.kill(os.getpid(), number)
            return upsert(self, into, *rows)

        patch.setattr(Storage, "upsert", stop)
        interrupted = run("ingest", documents, "--library", library)
    assert interrupted.code == 128 + number
    said = "Interrupted" if number == signal.SIGINT else "Stopped by SIGTERM"
    assert interrupted.err.splitlines()[-1] == f"{said}. Run the same command again to go on where it stopped."
    asked = run("ask", QUESTION, "--library", library, "-k", 100, "--json")
    assert {answer["document"] for answer in json.loads(asked.out)} == {"tides.md", "bread.txt", "clock.html"}
    told = "Writing 2 documents was interrupted, so answers are without the change: tides.md, 1 new. Ingest again."
    assert told in " ".join(asked.err.split())
    assert "2 documents written" in run("ingest", documents, "--library", library).err
    with opened(library) as index:
        assert len(index.entries()) == 4 and not index.incomplete() and not index.check()


# --- What is refused, without a traceback


def refused(outcome, *words: str, code: int = 1) -> None:
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    message = " ".join(outcome.err.split())
    for word in words:
        assert word in message, message


def test_another_model_or_method_is_refused(library: Path, documents: Path) -> None:
    ingest = ("ingest", documents, "--library", library)
    refused(
        run(*ingest, "--method", "plain:exit=2"),
        "method htp:exit=2, not plain:exit=2",
        "library rebuild --method plain:exit=2",
    )
    refused(run(*ingest, "--model", "other/model"), "model eddy-tiny, not other/model")
    assert run(*ingest, "--method", "htp:k=1,exit=2", "--model", "eddy-tiny").code == 0


def test_other_weights_under_the_same_name_are_refused(documents: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(BUNDLED["eddy-tiny"], tmp_path / "model"))
    library = tmp_path / "library"
    assert run("ingest", documents, "--library", library, "--model", model, "--method", "plain:exit=0").code == 0
    weights = load_file(model / "model.safetensors")
    save_file({name: value * 1.25 for name, value in weights.items()}, model / "model.safetensors", {"format": "pt"})
    refused(run("ask", QUESTION, "--library", library), "fingerprint", "weights", "eddy-demo library rebuild")
    (documents / "new.txt").write_text("Something new.", encoding="utf-8")
    refused(run("ingest", documents, "--library", library), "fingerprint", "weights", "eddy-demo library rebuild")


def test_wrong_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "good.txt").write_text("A good text.", encoding="utf-8")
    (tmp_path / "deep.jsonl").write_text("[" * 200_000, encoding="utf-8")
    for arguments, words in (
        (["ask", ""], ["the question is empty"]),
        (["ask", " \n"], ["the question is empty"]),
        (["ask", "half \ud800"], ["character 5", "surrogate"]),
        (["ask", "x", "--library", "nowhere"], ["no library in nowhere", "eddy-demo ingest PATH --library nowhere"]),
        (["ingest", "nowhere"], ["nowhere does not exist"]),
        (["ingest", "empty"], ["no file to read in empty", ".txt"]),
        (["ingest", "good.txt", "--method", "HTP"], ["unknown method 'HTP'", "htp"]),
        (["ingest", "good.txt", "--method", "htp:depth=3"], ["no parameter 'depth'"]),
        (["ingest", "good.txt", "--method", "htp:exit=99"], ["exit=99"]),
        (["ingest", "good.txt", "--method", "plain+centre+whiten"], ["both set post"]),
        (["ingest", "good.txt", "--model", "./missing"], ["./missing"]),
        (["ingest", "good.txt", "--library", "empty/../full"], ["full exists and is not a library"]),
        (["evaluate", "--queries", "q.jsonl"], ["cannot read q.jsonl"]),
        (["evaluate", "--queries", "deep.jsonl"], ["cannot read deep.jsonl"]),
    ):
        refused(run(*arguments), *words)
        assert not (tmp_path / "library").exists(), arguments
    assert (tmp_path / "full" / "file").read_text(encoding="utf-8") == "mine"


def test_it_says_how_to_begin() -> None:
    begin = run()
    assert begin.code == 0 and all(
        f"eddy-demo {line}" in begin.out for line in ("ingest PATH", 'ask "..."', "serve --open")
    )
    for words in ((), ("ask",), ("library",), ("library", "list")):
        assert run(*words, "-h").out == run(*words, "--help").out != ""


def test_one_wrong_path_stops_nothing(documents: Path, tmp_path: Path) -> None:
    (tmp_path / "picture.png").touch()
    (documents / "broken.pdf").write_bytes(b"no PDF")
    paths = (tmp_path / "nowhere", documents, tmp_path / "picture.png")
    made = run("ingest", *paths, "--library", tmp_path / "library", *FAST)
    assert made.code == 1 and "3 documents written" in made.err
    for told in (
        "nowhere does not exist",
        "picture.png is of a type that is not read",
        "broken.pdf: damaged, or no PDF",
    ):
        assert told in " ".join(made.err.split())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("bs4", "pypdfium2", "mammoth", "chromadb"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            refused(run("ingest", "anything"), f"{module} is not installed", 'pip install "eddy-embed[demo]"')


def test_broken_libraries_are_refused(tmp_path: Path) -> None:
    unknown = {"format": 1, "model": "eddy-tiny", "method": "plain", "plan": "slow"}
    for content in ("", "[]", "{}", '{"format": 99}', '{"format": 1, "colour": "blue"}', json.dumps(unknown)):
        (tmp_path / "library.json").write_text(content, encoding="utf-8")
        refused(run("ask", "x", "--library", tmp_path), "library.json cannot be read")


def test_documents_cannot_drive_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "evil.txt").write_text("Red \x1b[31mtext\x07 and \x9b2J more.\r\nNext line.", encoding="utf-8")
    assert run("ingest", tmp_path / "evil.txt", "--library", tmp_path / "lib", *FAST).code == 0
    page = run("ask", "text", "--library", tmp_path / "lib").out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", page)
    assert "␛[31mtext␇" in page


# --- Measured


def test_hits_of_a_library_and_of_bm25(library: Path, tmp_path: Path, embedder: Embedder) -> None:
    questions = {"flour water salt dough": "flour,\\s", "pendulum swings": "PENDULUM", "Zürich glacier": "not in any"}
    lines = [json.dumps({"text": text, "needle": needle}) for text, needle in questions.items()]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    options = ("--library", library, "--queries", tmp_path / "q.jsonl")
    page = run("evaluate", *options).out
    assert "3 questions" in page and "hit@5" in page
    both, reranked, meaning, bm25 = scores = json.loads(run("evaluate", *options, "--rerank", "--json").out)
    systems = ["htp:exit=2 and BM25", "htp:exit=2 and BM25, re-ranked", "htp:exit=2", "BM25"]
    assert [score["system"] for score in scores] == systems
    assert both["answered"] == both["quoted"] == bm25["mrr_at_10"] == pytest.approx(2 / 3)
    assert meaning["answered"] is meaning["quoted"] is None and reranked["hit_at_5"] == pytest.approx(2 / 3)
    assert {score["passages"] for score in scores} == {len(rows(library)[""])}
    with open_library(library, embedder) as index:
        for system, depth, alpha in ((both, 1, ALPHA), (both, 5, ALPHA), (meaning, 1, 1), (bm25, 1, 0)):
            found = {text: " ".join(hit.text for hit in ask(index, text, depth, alpha)) for text in questions}
            hits = [bool(re.search(needle, found[text], re.IGNORECASE)) for text, needle in questions.items()]
            assert system[f"hit_at_{depth}"] == pytest.approx(sum(hits) / 3)
    (tmp_path / "q.jsonl").write_text(json.dumps({"text": "x", "needle": "("}))
    refused(run("evaluate", *options), "cannot read", "needle")


def test_what_an_interrupted_first_ingestion_left_is_no_obstacle(documents: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "chroma" / ".chroma.part").mkdir(parents=True)
    (library / ".library.json.7.part").write_bytes(b"half")
    assert run("ingest", documents, "--library", library, *FAST).code == 0
    assert run("ask", QUESTION, "--library", library).code == 0


def test_another_process_that_writes_is_named(library: Path, documents: Path) -> None:
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
    number: signal.Signals, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setattr(work, "load_embedder", lambda *_: os.kill(os.getpid(), number))
    asked = run("ask", QUESTION, "--library", library)
    assert (asked.code, asked.out) == (128 + number, "") and len(asked.err.splitlines()) == 1
    assert signal.getsignal(number) is before


# --- Disks and folders


@pytest.mark.parametrize("size", mostly_slow([100, 4_000, 200_000], [200_000]))
def test_a_disk_that_is_full_is_named_and_the_next_ingestion_completes_it(
    size: int, documents: Path, tmp_path: Path
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
from tests.demo.conftest import run
from tests.demo.site import serving
from eddy_demo.web.uploads import Uploads
library, documents = map(Path, sys.argv[1:])
ended = [
    run("ask", "When do boats leave?", "--library", library),
    run("ingest", documents, "--library", library),
    run("ingest", documents, "--library", library / "inside"),
]
with Uploads(library).serve(), serving(library, method=None) as site:
    site.settled()
    assert dict(site.ask("When do boats leave?"))["hit"], "nothing was found"
    answer = site.upload("new.txt", "Something new.")
    print(json.dumps([*((each.code, " ".join(each.err.split())) for each in ended), (answer.status_code, answer.text)]))
"""


def test_folders_that_cannot_be_written_to(library: Path, documents: Path, tmp_path: Path) -> None:
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


def test_what_is_gone_is_told_and_taken_out_on_demand(library: Path, documents: Path, tmp_path: Path) -> None:
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


# --- What the terminal shows

LONG = "This line of prose is long enough to have been wrapped by an editor and"

# Each pair: a passage, and what is shown of it.
PASSAGES = [
    (f"{LONG}\ngoes on here.", f"{LONG} goes on here."),
    ("A title of its own.\nA short line.", "A title of its own.\nA short line."),
    ("begins in the middle\nof a line.", "begins in the middle of a line."),
    (f"# {LONG}\nText.", f"# {LONG}\nText."),
    (f"{LONG}\n\nA new paragraph.", f"{LONG}\n\nA new paragraph."),
    (f"- {LONG}\n  goes on\n- next item", f"- {LONG} goes on\n- next item"),
    (f"{LONG}\n- an item", f"{LONG}\n- an item"),
    (f"{LONG}\n1. an item", f"{LONG}\n1. an item"),
    (f"```\n{LONG.replace(' ', '_')}\ny = 2\n```", f"```\n{LONG.replace(' ', '_')}\ny = 2\n```"),
    (f"| {LONG} |\n| b |", f"| {LONG} |\n| b |"),
]


def test_hard_wrapped_prose_wraps_anew() -> None:
    for passage, shown in PASSAGES:
        assert len(unwrapped(passage)) == len(passage)
        assert unwrapped(passage).replace("\0", "") == shown


def test_control_characters_are_pictures() -> None:
    assert printable("a\x1b[2J\x00\x7f\x85\tb\n") == "a␛[2J␀␡\ufffd\tb\n"


def test_counts_read_as_a_person_writes_them() -> None:
    assert [pluralize(n, "query", "queries") for n in (0, 1, 2000)] == ["0 queries", "1 query", "2,000 queries"]


# --- Libraries


def test_list_and_remove(library: Path) -> None:
    rows = json.loads(run("library", "list", "--library", library, "--json").out)
    assert {row["name"] for row in rows} == {"tides.md", "bread.txt", "clock.html"}
    assert all(row["complete"] and row["passages"] and row["characters"] for row in rows)
    table = run("library", "list", "--library", library).out
    assert all(row["id"] in table and row["name"] in table for row in rows)
    key = next(row["id"] for row in rows if row["name"] == "clock.html")
    outcome = run("library", "remove", "bread.txt", key, "--library", library)
    assert outcome.code == 0
    assert "bread.txt, clock.html" in " ".join(outcome.err.split())
    (row,) = json.loads(run("library", "list", "--library", library, "--json").out)
    assert row["name"] == "tides.md"
    unknown = run("library", "remove", "bread.txt", "--library", library)
    assert (unknown.code, "no document 'bread.txt'" in unknown.err) == (1, True)
    assert run("library", "list", "--library", library.parent / "nothing").code == 1
    nothing = run("library", "remove", "--library", library)
    assert (nothing.code, "name a document" in nothing.err) == (1, True)


def test_removed_texts_can_be_erased(library: Path) -> None:
    def holds(word: bytes) -> bool:
        return any(word in path.read_bytes() for path in library.rglob("*") if path.is_file())

    assert run("library", "remove", "bread.txt", "--library", library).code == 0
    assert holds(b"flour") and holds(b"bread.txt") and holds(b"pendulum")
    outcome = run("library", "remove", "--erase", "--library", library)
    assert outcome.code == 0 and "removed texts are erased" in outcome.err
    assert not (holds(b"flour") or holds(b"bread.txt")) and holds(b"pendulum")
    outcome = run("library", "remove", "clock.html", "--erase", "--library", library)
    assert outcome.code == 0 and not holds(b"pendulum") and holds(b"harbour")


def test_rebuild(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same documents, by another method; after an interruption the same command only writes the settings."""
    with opened(library) as index:
        before = {document.id: document.text for document in index.documents()}
    rebuilding = ("library", "rebuild", "--library", library, "--method", "plain:exit=0")
    with monkeypatch.context() as patch:
        cut_power(patch)
        assert run(*rebuilding).code == 1
    assert read_settings(library).next is not None
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    listed = run("library", "list", "--library", library).out
    assert "with plain:exit=0 " in listed and "made anew" not in listed
    outcome = run(*rebuilding)
    assert outcome.code == 0, outcome.err
    settings = read_settings(library)
    assert (settings.method, settings.passage_size) == ("plain:exit=0", 24)
    assert settings.next is None
    embedder = Embedder("eddy-tiny", method="plain:exit=0")
    with opened(library) as index:
        assert {document.id: document.text for document in index.documents()} == before
        assert index.status().fingerprint == embedder.fingerprint
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    assert run("library", "rebuild", "--library", library, "--method", "nonsense").code == 1


def test_check(library: Path) -> None:
    assert run("library", "check", "--full", "--library", library).err.endswith("no damage in 3 documents.\n")
    with opened(library) as index:
        collection = index.storage.collection()
        row = collection.get(where={"name": "bread.txt"}, limit=1, include=["embeddings"])
        collection.update(ids=row["ids"], documents=["Altered."], embeddings=row["embeddings"])
    outcome = run("library", "check", "--library", library)
    assert outcome.code == 1 and "bread.txt: another text" in outcome.err and "damaged in" in outcome.err


def test_without_any_vectors_only_rebuild_works(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier rebuild was interrupted."""
    library = tmp_path / "library"
    monkeypatch.setattr(chroma_storage, "_COSINE_CONFIG", SAVED_OFTEN)
    made = ("ingest", documents, "--library", library, "--passage-size", 12, *FAST)
    assert run(*made).code == 0
    with opened(library) as index:
        before = {document.id: document.text for document in index.documents()}
    stored = read_settings(library)
    write_settings(library, replace(stored, next=stored, fingerprint="another fingerprint"))
    for folder in [each.parent for each in library.rglob("header.bin")] + [*library.glob("chroma/eddy.vectors/*")]:
        shutil.rmtree(folder)
    for command in (("ask", "When do boats leave?"), ("library", "list"), ("library", "remove", "bread.txt")):
        outcome = run(*command, "--library", library)
        assert outcome.code == 1 and "eddy-demo library rebuild" in outcome.err, outcome.err
    assert run("library", "rebuild", "--library", library).code == 0
    with opened(library) as index:
        assert {document.id: document.text for document in index.documents()} == before
    assert run("ask", "When do boats leave?", "--library", library).code == 0
    assert read_settings(library).next is None


def test_a_port_that_is_taken(library: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("serve", "--library", library, "--port", port)
    assert outcome.code == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in outcome.err
    assert "choose another with --port" in " ".join(outcome.err.split())


def test_other_machines_are_let_in_with_a_token_only(library: Path) -> None:
    outcome = run("serve", "--library", library, "--port", 0, "--host", "0.0.0.0")
    assert outcome.code == 1
    assert "whoever reaches 0.0.0.0 could read and change the library: set a token" in " ".join(outcome.err.split())
