"""Files to documents: what is read, what is left out and why."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.readers.word_files import docx_of

from readers_eddy.documents import read_documents
from readers_eddy.errors import NothingToRead


def reasons(path: Path) -> dict[str, str]:
    return {skipped.name: skipped.reason for skipped in read_documents([path]).skipped}


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


def test_text_is_the_file_character_by_character(folder: Path) -> None:
    text = "Zeile eins.\r\nZeile zwei – mit Strich.\u2028\tEnde. 🌊\n"
    (folder / "exact.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_documents([folder / "exact.txt"]).documents[0].text == text


def test_page_heads_of_a_text_tear_no_sentence(folder: Path) -> None:
    pages = [
        f"\n{head}\n\n{text}\n\nAda Berg   [Page {n}]\n"
        for n, (head, text) in enumerate(
            (
                ("", "  A float that hears\n  nothing for long is"),
                ("RFN 12   Floats", "  lost.\n\nChapter 1"),
                ("RFN 12   Floats", "  Then:\nit sinks."),
            ),
            start=1,
        )
    ]
    for name, text in (("a.txt", "\f".join(pages)), ("b.txt", "\r\n".join("".join(pages).split("\n")))):
        (folder / name).write_text(text, encoding="utf-8", newline="")
        document = read_documents([folder / name]).documents[0]
        assert (
            document.text == "  A float that hears\n  nothing for long is\n  lost.\n\nChapter 1\n\n  Then:\nit sinks."
        )
        note = "page numbers and running heads are left out: “Ada Berg [Page #]”, “RFN # Floats”"
        assert document.notes == (note,)
    (folder / "a.txt").write_text("\f".join(f"Chapter {n}\n\nText {'x' * n}." for n in range(1, 4)), encoding="utf-8")
    assert read_documents([folder / "a.txt"]).documents[0].text.count("Chapter") == 3
    rows = [f"Eel {n}\n\nCod {n * 3}\nRay {n}" for n in range(1, 5)]
    (folder / "a.txt").write_text("\f".join(rows), encoding="utf-8")
    assert read_documents([folder / "a.txt"]).documents[0].text == "\f".join(rows), "as it is"


def test_what_cannot_be_read_is_named_with_its_reason(folder: Path) -> None:
    (folder / "empty.txt").write_bytes(b"")
    (folder / "blank.md").write_bytes(b" \n\t\n")
    (folder / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (folder / "utf16.txt").write_bytes("plain".encode("utf-16-le"))
    (folder / "broken.jsonl.gz").write_bytes(b"\x1f\x8b\x08garbage")
    (folder / "empty.pdf").write_bytes(b"")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    (folder / "broken.docx").write_bytes(docx_of("Text.")[:-999])
    (folder / "locked.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    (folder / "blank.docx").write_bytes(docx_of(""))
    (folder / "rows.jsonl").write_text(
        '{"id": 1, "text": "Fine."}\n{"id": 2}\n{oops\n{"id": 1, "text": "Again."}\n{"id": 3, "text": "\\ud800 half"}\n'
        '{"id": 4, "title": "\\udfff", "text": "Fine, but its title is not."}\n[]\n'
        '{"id": 8, "body": "Elsewhere."}\n{"text": null}\n{"text": ["a"]}\n{}\n7\n',
        encoding="utf-8",
    )
    found = reasons(folder)
    assert found["empty.txt"] == "empty"
    assert found["blank.md"].startswith("blank")
    assert found["latin.txt"].startswith("not UTF-8: byte 0xfc at position 2 ")
    assert "NUL" in found["utf16.txt"]
    assert found["broken.jsonl.gz"]
    assert found["empty.pdf"] == "empty"
    assert found["broken.pdf"].startswith("damaged, or no PDF file")
    assert found["broken.docx"].startswith("broken, or no .docx file (")
    assert found["locked.docx"].startswith("protected by a password")
    assert found["blank.docx"] == "empty"
    assert found["rows.jsonl, line 2"] == 'it has no "text", which a row needs; its fields: "id"'
    assert "not JSON" in found["rows.jsonl, line 3"]
    assert "'1' is used twice" in found["rows.jsonl, line 4"]
    assert "character 0 of its text is half of a surrogate pair" in found["rows.jsonl, line 5"]
    assert "of its title" in found["rows.jsonl, line 6"]
    assert "not a row" in found["rows.jsonl, line 7"] and "not a row" in found["rows.jsonl, line 12"]
    assert found["rows.jsonl, line 8"].endswith('its fields: "id", "body"')
    assert found["rows.jsonl, line 9"] == 'its "text" must be a string, not null'
    assert found["rows.jsonl, line 10"] == 'its "text" must be a string, not ["a"]'
    assert found["rows.jsonl, line 11"].endswith("its fields: ")
    assert [d.name for d in read_documents([folder]).documents] == ["good.txt", "1"]


def test_pointers_of_git_lfs_are_named_and_hold_up_nothing(folder: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'7b' * 32}\nsize 1234\n"
    for suffix in (".md", ".txt", ".pdf", ".docx", ".csv", ".jsonl", ".jsonl.gz"):
        (folder / f"absent{suffix}").write_text(pointer, encoding="utf-8")
    (folder / "about.md").write_text(f"A pointer looks like this:\n\n{pointer}", encoding="utf-8")
    reading = read_documents([folder])
    assert [document.name for document in reading.documents] == ["about.md", "good.txt"]
    assert len(reading.skipped) == 7
    assert {each.reason for each in reading.skipped} == {
        "a Git LFS pointer, not the document: run `git lfs pull` in its folder and read it again"
    }


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
