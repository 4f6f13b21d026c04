"""What a library takes from files: pages that answers cite, lists of page numbers, skipped files by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.demo.conftest import FAST, run
from tests.readers.pdf_builder import rewritten
from tests.readers.test_page_lists import BODY, LEADERS, NAMES, TIDES
from tests.readers.test_pdf import BOOK, TEXT

from chroma_eddy import Document, Highlight
from eddy_demo.ask import pages_cited
from eddy_demo.library.library import open_stored


def test_pages_of_a_span() -> None:
    starts = (0, 0, 10, 20, 20)  # the first and the fourth page are empty
    spans = {(0, 10): (2, 2), (9, 10): (2, 2), (9, 11): (2, 3), (10, 20): (3, 3), (0, 25): (2, 5), (20, 21): (5, 5)}
    book = Document("book", "text", {}, starts)
    assert {span: tuple(book.pages.numbers(*span).values()) for span in spans} == spans
    assert Document("note", "text").pages.numbers(0, 5) == {}


@pytest.mark.parametrize(
    ("pages", "labels", "cited"),
    [
        ((None, None), ("", ""), ""),
        ((2, 3), ("", ""), "pp. 2–3"),
        ((2, 2), ("slide 2", "slide 2"), "slide 2"),
        ((2, 3), ("slide 2", "slide 3"), "slide 2 – slide 3"),
        ((1, 2), ("“Loomings”", "“The Carpet-Bag”"), "“Loomings” – “The Carpet-Bag”"),
        ((1, 1), ("sheet \x1b[2J", "sheet \x1b[2J"), "sheet ␛[2J"),
    ],
)
def test_what_is_no_page_is_cited_by_its_own_name(pages: tuple[Any, Any], labels: tuple[str, str], cited: str) -> None:
    assert pages_cited(Highlight(0, 1, "a", 0.5, 0.5, 0.5, "", *pages, *labels)) == cited


def test_answers_have_pages(tmp_path: Path) -> None:
    """Every passage is a slice of the text, with the pages where it begins and ends, cited by their labels."""
    labels, data = ("iv", "v", "A-1"), rewritten(BOOK, lambda writer: writer.set_page_label(0, 1, style="/r", start=4))
    data = rewritten(data, lambda writer: writer.set_page_label(2, 2, prefix="A-", style="/D"))
    (tmp_path / "tides.pdf").write_bytes(data)
    (tmp_path / "note.txt").write_text("A note without pages.", encoding="utf-8")
    made = run("ingest", tmp_path, "-l", tmp_path / "lib", "--passage-size", 40, *FAST)
    assert made.code == 0, made.err
    assert "tides.pdf: left out 5 running headers and footers: page" in made.err
    question = ("ask", "When do the boats leave?", "-l", tmp_path / "lib", "-k", 100)
    found, shown = json.loads(run(*question, "--json").out), run(*question).out
    (note,) = (answer for answer in found if answer["document"] == "note.txt")
    assert (note["page"], note["last_page"], note["cited"]) == (None, None, "") and "characters" not in shown
    assert all(answer["text"] == TEXT[answer["start"] : answer["end"]] for answer in found if answer != note)
    cited = {answer["cited"] for answer in found if answer != note}
    assert cited == {"p. iv", "pp. iv–v", "p. v", "pp. v–A-1"}
    assert all(re.search(rf"^ +{pages}(,|$)", shown, re.MULTILINE) for pages in cited)
    with open_stored(tmp_path / "lib") as index:
        assert labels in {document.page_labels for document in index.documents()}


def test_lists_of_page_numbers_stay_in_the_text_and_no_passage_has_them(tmp_path: Path) -> None:
    """`test_index` has what becomes of them there."""
    text = f"# The sea\n\n{LEADERS}\n\n{TIDES * 30}\n\n{BODY}\n\n{NAMES}\n\n{TIDES}"
    (tmp_path / "sea.txt").write_text(text, encoding="utf-8")
    made = run("ingest", tmp_path / "sea.txt", "-l", tmp_path / "lib", "--passage-size", 40, *FAST)
    assert made.code == 0 and "lists of page numbers (2, as of contents) stay in the text" in made.err
    found = json.loads(run("ask", "anchor boats nets", "-l", tmp_path / "lib", "-k", 100, "--json").out)
    assert all(text[each["start"] : each["end"]] == each["text"] for each in found)
    assert not any(word in each["text"] for each in found for word in ("anchor, 12", "3 Nets", ". . ."))
    (tmp_path / "index.txt").write_text(NAMES, encoding="utf-8")  # a text that is nothing else is read
    assert run("ingest", tmp_path / "index.txt", "-l", tmp_path / "other", *FAST).code == 0
    assert len(json.loads(run("ask", "anchor", "-l", tmp_path / "other", "--json").out)) == 1


def test_every_skipped_file_is_named(tmp_path: Path) -> None:
    for name in ("good.txt", "zebra.md"):
        (tmp_path / name).write_text("A good text.", encoding="utf-8")
    for number in range(30):
        (tmp_path / f"empty{number}.txt").touch()
    (tmp_path / "rows.jsonl").write_text("[]\n" * 50, encoding="utf-8")
    for name in ("a.odt", "b.ODT", "\x1b[31m.\x1b[0m", "0", *(f"{n}.t{n}" for n in range(7))):
        (tmp_path / name).touch()
    outcome = run("ingest", tmp_path, "--library", tmp_path / "library", "--method", "plain:exit=0")
    assert outcome.code == 1
    assert "Skipped 80 files or rows:" in outcome.err
    for number in range(30):
        assert f"empty{number}.txt: empty" in outcome.err
    assert outcome.err.count("not a row") == 20
    assert "… and 30 more rows" in outcome.err
    assert "2 documents written" in outcome.err
    types = ".odt 2, .␛[0m 1, no suffix 1, .t0 1, .t1 1, .t2 1, .t3 1, .t4 1 and 2 more types"
    assert f"11 files of other types ({types}): not read." in outcome.err  # the library in the folder is none of them
