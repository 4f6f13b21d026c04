"""Files to documents: what is read, what is left out and why; hostile files stop no others, and limits hold."""

from __future__ import annotations

import errno
import gzip
import inspect
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.readers.pdf_builder import pdf
from tests.readers.word_files import bomb

from readers_eddy.content import MAX_TITLE, Content, NothingToRead, ReadingLimits, Row
from readers_eddy.documents import ReadResult, read_documents
from readers_eddy.markup import read_html, read_markdown
from readers_eddy.pdf import read_pdf
from readers_eddy.process import ReaderProcess


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.txt").write_text("A good text.", encoding="utf-8")
    (tmp_path / "zebra.md").write_text("# Zebra\n\nThe last file.", encoding="utf-8")
    return tmp_path


def rest_is_read(result: ReadResult) -> dict[str, str]:
    """Check that the good files were read, and return the reasons for the others."""
    assert [document.name for document in result.documents] == ["good.txt", "zebra.md"]
    return {skipped.name: skipped.reason for skipped in result.skipped}


# --- Files and folders


def test_reads_every_type_in_order(folder: Path) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "page.HTML").write_text("<title>Page</title><p>Text.</p>", encoding="utf-8")
    (folder / "a.md").write_text("Intro.\n\n## First heading ##\n", encoding="utf-8")
    rows = [{"id": "r1", "title": "Row", "text": "First row."}, {"id": "r2", "text": "Second row."}]
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "secret.txt").write_text("Not read.", encoding="utf-8")
    reading = read_documents([folder])
    assert [(d.name, d.title, d.text) for d in reading.documents] == [
        ("a.md", "First heading", "Intro.\n\n## First heading ##\n"),
        ("good.txt", "", "A good text."),
        ("r1", "Row", "First row."),
        ("r2", "", "Second row."),
        ("zebra.md", "Zebra", "# Zebra\n\nThe last file."),
        ("b/page.HTML", "Page", "Text."),
    ]
    assert reading.other_types == {".png": 1}
    assert reading.skipped == []


def test_rows_that_cannot_be_read_are_named_with_their_reasons(folder: Path) -> None:
    lines = {  # each with the reason, "" where it is read
        b'{"id": 1, "text": "Fine."}': "",
        b'{"id": 2}': 'it has no "text", which a row needs; its fields: "id"',
        b"{oops": "not JSON: ",
        b'{"id": 1, "text": "Again."}': "the id '1' is used twice",
        b'{"id": 3, "text": "\\ud800 half"}': "character 0 of its text is half of a surrogate pair",
        b'{"id": 4, "title": "\\udfff", "text": "Its title is not fine."}': "character 0 of its title is half",
        b"[]": "not a row",
        b'{"id": 8, "body": "Elsewhere."}': 'it has no "text", which a row needs; its fields: "id", "body"',
        b'{"text": null}': 'its "text" must be a string, not null',
        b'{"text": ["a"]}': 'its "text" must be a string, not ["a"]',
        b"{}": 'it has no "text", which a row needs; its fields: ',
        b"7": "not a row",
        b"[" * 200_000: "its JSON is nested hundreds of levels deep",
        b'{"text": ' * 200_000: "its JSON is nested hundreds of levels deep",
        b'{"id": ' + b"9" * 5_000 + b', "text": "t"}': "not JSON: Exceeds the limit",
        b'{"text": "t", "id": "' + b"i" * 1001 + b'"}': "its id has 1,001 characters, and at most 1,000 are read",
        b'{"text": "\xfc"}': "not UTF-8: byte 0xfc at position 10",
        b'{"title": "' + b"t" * 1001 + b'", "text": "Read."}': "",
    }
    (folder / "rows.jsonl").write_bytes(b"\n".join(lines))
    result = read_documents([folder / "rows.jsonl"])
    assert [(document.name, document.title, document.text, document.notes) for document in result.documents] == [
        ("1", "", "Fine.", ()),
        ("(line 18)", "", "Read.", ("a title of 1,001 characters is left out; at most 1,000 are taken",)),
    ]
    reasons = {skipped.name: skipped.reason for skipped in result.skipped}
    for number, reason in enumerate(lines.values(), start=1):
        assert reasons.get(f"rows.jsonl, line {number}", "").startswith(reason), number
    assert len(result.skipped) == 16


def test_paths_that_lead_nowhere(folder: Path) -> None:
    with pytest.raises(NothingToRead, match=r"nowhere does not exist"):
        read_documents([folder / "nowhere"])
    (folder / "paper.odt").write_bytes(b"PK")
    with pytest.raises(NothingToRead, match=r"paper\.odt is of a type that is not read; convert it to .* \.pdf \.docx"):
        read_documents([folder / "paper.odt"])
    (folder / "sub").mkdir()
    with pytest.raises(NothingToRead, match=r"no file to read in .*sub; readable are \.txt"):
        read_documents([folder / "sub"])
    (folder / "sub" / "empty.txt").touch()
    with pytest.raises(NothingToRead, match=r"all 1 were skipped:\n  empty.txt: empty"):
        read_documents([folder / "sub"])


def test_identity_is_the_path_and_the_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_folder = read_documents([folder]).documents[0]
    monkeypatch.chdir(folder)
    by_file = read_documents([Path("good.txt"), Path("./good.txt")]).documents
    assert [d.key for d in by_file] == [by_folder.key]
    (folder / "good.txt").write_text("Another text.", encoding="utf-8")
    changed = read_documents([folder]).documents[0]
    assert (changed.key, changed.text) == (by_folder.key, "Another text.")


# --- Titles


def test_long_titles_are_left_out_and_the_notes_say_so() -> None:
    long = "word " * 300
    note = "a title of 1,499 characters is left out; at most 1,000 are taken"
    for content in (
        read_markdown(f"---\ntitle: {long}\n---\n# Short\n\nText."),
        read_markdown(f"# {long}\n\n# Short\n\nText."),
        read_html(f"<title>{long}</title><h1>Short</h1><p>Text.</p>"),
    ):
        assert (content.title, content.notes) == ("Short", (note,))
    for content in (read_html(f"<h1>{long}</h1><p>Text.</p>"), read_pdf(pdf(["Text."], title=long))):
        assert (content.title, content.notes) == ("", (note,))


# --- What is no regular file


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
def test_special_files_and_links_are_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket is short
    os.mkfifo("pipe.md")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.txt")
        links = {"endless.txt": "/dev/zero", "itself.md": "itself.md", "to.md": "fro.md", "fro.md": "to.md"}
        for link, target in (links | {"gone.txt": "nowhere", ".pipe.md": "pipe.md", "up": ".", "up.md": "."}).items():
            Path(link).symlink_to(target)
        Path(".hidden.md").write_text("Not read.", encoding="utf-8")
        reasons = rest_is_read(read_documents([folder]))
    assert reasons == {
        "pipe.md": "a named pipe, not a regular file; copy what it gives to one",
        "socket.txt": "a socket, not a regular file; copy what it gives to one",
        "endless.txt": "a device, not a regular file; copy what it gives to one",
        **dict.fromkeys(("itself.md", "to.md", "fro.md"), os.strerror(errno.ELOOP)),
        "gone.txt": os.strerror(errno.ENOENT),
        **dict.fromkeys(("up", "up.md"), "a link to a folder, which is not followed; name that folder itself"),
    }
    with pytest.raises(NothingToRead, match=r"all 1 were skipped:\n  itself.md: "):
        read_documents([Path("itself.md")])


def test_folders_may_be_nested_deeper_than_python_calls(folder: Path) -> None:
    for number in range(60):
        folder /= f"d{number}"
    folder.mkdir(parents=True)
    (folder / "deep.txt").write_text("Found.", encoding="utf-8")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 55)
    try:
        result = read_documents([folder.parents[59]])
    finally:
        sys.setrecursionlimit(limit)
    assert [document.text for document in result.documents][-1] == "Found."


# --- Limits


def test_packed_rows_are_bounded(folder: Path) -> None:
    row, mb = '{"text": "a"}\n', 2**20
    for limits, text, reason in (
        (ReadingLimits(rows=2), row * 9, "line 3 .* at most 2 rows; split"),
        (
            ReadingLimits(unpacked_bytes=mb),
            row + f"{' ' * 999}\n" * 2**11,
            "line 1050 .* at most 1 MB unpacked; split",
        ),
        (ReadingLimits(file_bytes=mb), row + " " * 2 * mb, "line 2 .* a row has at most 1 MB; split"),
    ):
        (folder / "rows.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        result = read_documents([folder], limits=limits)
        names = [document.name for document in result.documents]
        assert (names[:2], names[-1]) == (["good.txt", "(line 1)"], "zebra.md")
        (skipped,) = result.skipped
        assert skipped.name == "rows.jsonl.gz" and re.search(reason, skipped.reason), skipped


@pytest.mark.usefixtures("real_processes")
def test_bombs_end_in_their_own_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes too much memory or is too deep is named; a process that it may have harmed reads no other file."""
    (folder / "bomb.docx").write_bytes(bomb())
    (folder / "deep.html").write_text("<div>" * 5000 + "deep", encoding="utf-8")
    (folder / "large.txt").write_bytes(b"x" * (2**20 + 1))
    (folder / "long.txt").write_text("word" * 300, encoding="utf-8")
    started: list[Any] = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: started.append(given) or start(*given, **named))
    limits = ReadingLimits(file_bytes=2**20, characters=1000, parse_bytes=200 * 2**20)
    reasons = rest_is_read(read_documents([folder], limits=limits))
    assert "takes more memory than is allowed" in reasons["bomb.docx"]
    assert "nested hundreds of levels deep" in reasons["deep.html"]
    assert reasons["large.txt"] == "larger than 1 MB; split it"
    assert reasons["long.txt"] == "its text has 1,200 characters, and at most 1,000 are read; split it"
    assert len(started) == 2


@pytest.mark.usefixtures("real_processes")
def test_reading_has_a_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slow.html").write_bytes(b"<p>word</p>" * 300_000)
    read = ReaderProcess.read

    def with_own_limit(self: ReaderProcess, path: Path, suffix: str) -> Iterator[Content | Row]:
        self._limits = ReadingLimits(parse_seconds=0.3 if path.name == "slow.html" else 600)  # a busy machine is slow
        return read(self, path, suffix)

    monkeypatch.setattr(ReaderProcess, "read", with_own_limit)
    assert rest_is_read(read_documents([folder])) == {
        "slow.html": "reading it took longer than 0.3 seconds and was stopped; split it, or save it in a simpler form"
    }


def test_the_handbook_knows_the_limits(handbook_table: Callable[[str], dict[str, str]]) -> None:
    told, own = handbook_table("files.md"), ReadingLimits()
    assert told["a file, or a row of `.jsonl`"] == f"{own.file_bytes // 2**20} MB"
    assert told["a `.jsonl` file"] == f"{own.rows:,} rows, {own.unpacked_bytes // 2**20} MB unpacked"
    assert told["an archive, as `.docx` `.pptx` `.xlsx` `.epub` are"] == f"{own.unpacked_bytes // 2**20} MB unpacked"
    assert told["a PDF file"] == f"{own.pages:,} pages"
    assert told["a document's text"] == f"{own.characters:,} characters"
    assert told["reading a file"] == f"{own.parse_seconds:g} seconds, {own.parse_bytes // 2**30} GB of memory"
    assert told["a title, a row's id"] == f"{MAX_TITLE:,} characters"
