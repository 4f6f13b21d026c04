"""What somebody sees who runs `make demo`: the handbook, asked with a real model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from tests.demo.conftest import run
from tests.selection import slow

from eddy_demo import handbook
from eddy_demo.ask import ask
from eddy_demo.cli.work import load_embedder
from eddy_demo.library.library import open_library
from eddy_demo.library.settings import BUNDLED_MODEL, PREFERRED_MODEL, default_model, method_in_full, read_settings
from eddy_embed.model.loading.catalog import CATALOG

ANSWERS = (
    ("long-documents.md", "A document longer than the model's window is never cut silently."),
    ("methods.md", "hierarchical token prepending costs two more tokens per block than plain mean pooling."),
    ("troubleshooting.md", "A library refuses documents and a question asked with another model or method,"),
)
"""The document and the words that answer each question of the demo."""


@pytest.mark.parametrize(("whole", "which"), [(False, "fast"), slow(True, "fast"), slow(False, "best")])
def test_the_demo_finds_and_marks_the_three_answers(
    whole: bool,
    which: Literal["fast", "best"],
    fetched_smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the whole handbook, or in the sections that hold them."""
    monkeypatch.setenv("EDDY_CACHE", str(fetched_smollm2))
    if not whole:
        pages = tmp_path / "pages"
        pages.mkdir()
        for page, words in ANSWERS:
            (pages / page).write_text(section(page, words), encoding="utf-8")
        monkeypatch.setattr(handbook, "folder", lambda: pages)
    library = tmp_path / "library"
    told = run("demo", "--library", library, f"--{which}")
    assert told.code == 0, told.err
    settings = read_settings(library)
    assert (settings.model, settings.method) == (PREFERRED_MODEL, method_in_full(PREFERRED_MODEL, which))
    flat = " ".join(told.out.split())
    with open_library(library, load_embedder(settings, None)) as index:
        for question, (document, words) in zip(handbook.QUESTIONS, ANSWERS, strict=True):
            assert question in flat
            (first,) = ask(index, question, 1)
            marked = first.text[first.sentence_start - first.start : first.sentence_end - first.start]
            assert first.document == document, question
            assert words in " ".join(marked.split()), question
            assert f"»{' '.join(marked.split())}«" in flat


def section(page: str, words: str) -> str:
    """The beginning of a page of the handbook, and the section that holds some words."""
    beginning, *others = re.split(r"\n(?=## )", (handbook.folder() / page).read_text(encoding="utf-8"))
    return "\n".join([beginning, *(part for part in others if words in " ".join(part.split()))])


def test_without_the_model_the_demo_takes_the_bundled_one_and_says_so(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(type(CATALOG[PREFERRED_MODEL]), "places", lambda _: iter(()))
    monkeypatch.setattr(handbook, "folder", lambda: documents)
    assert default_model() == BUNDLED_MODEL
    library = tmp_path / "library"
    told = run("demo", "--library", library)
    assert told.code == 0, told.err
    assert read_settings(library).model == BUNDLED_MODEL
    assert "eddy models get smollm2" in " ".join(told.out.split())
    assert "3 documents, 3 questions: " in told.out
    assert set(re.findall(r"^1 +(\S+)", told.out, re.MULTILINE)) <= {"tides.md", "bread.txt", "clock.html"}
    for question in handbook.QUESTIONS:
        assert run("ask", question, "--library", library, "-k", 2).out.strip() in told.out
    assert re.search(r"eddy-demo ask '.+' --library \S+$", told.out, re.MULTILINE)
