"""Files to documents: what is read, what is left out and why."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from readers_eddy.content import NothingToRead
from readers_eddy.documents import read_documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.txt").write_text("A good text.", encoding="utf-8")
    return tmp_path


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
