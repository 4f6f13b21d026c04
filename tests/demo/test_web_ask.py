"""Questions to the page: the same hits as the index gives, and an honest answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.demo.site import Site

from chroma_eddy import open_index
from eddy_demo.ask import pages_cited
from eddy_demo.display_text import model_label
from eddy_demo.errors import DemoError
from eddy_demo.web.answers import answering
from eddy_demo.web.answers.follow_up import is_follow_up
from eddy_demo.web.answers.history import QuestionHistory
from eddy_demo.web.answers.support import ANSWERS, is_fragment, is_prose
from eddy_embed import Embedder

QUESTION = "When does the ferry to the northern island leave, and when does it come back?"


def test_hits_are_those_of_the_index(site: Site) -> None:
    """In order, with true cosines, exact ranges, headings and sentences."""
    events = site.ask(QUESTION, k=5)
    assert [name for name, _ in events] == ["answer", *["hit"] * 5, "done"]
    reader = site.state.reader
    embedder = Embedder(reader.settings.model, method=reader.settings.method)
    with open_index(site.folder / "chroma", "library", embedder) as index:
        expected = index.query(QUESTION, 5, sentences=True)
        whole = {document.id: document.text for document in index.documents()}
    for (_, data), hit in zip(events[1:-1], expected, strict=True):
        assert data["cosine"] == pytest.approx(hit.cosine, abs=1e-4)
        assert (data["document"], data["start"], data["end"]) == (hit.document, hit.start, hit.end)
        assert data["name"] == hit.metadata["name"]
        assert (data["page"], data["last_page"], data["cited"]) == (hit.page, hit.last_page, pages_cited(hit.best))
        assert [*filter(None, [data["title"], data["headings"]])] == [*filter(None, hit.headings.split(" > ", 1))]
        best = next(part for part in data["parts"] if part.get("best"))
        assert hit.best is not None
        assert best["cosine"] == pytest.approx(hit.best.cosine, abs=1e-4)
        own = f"#s-{hit.document}-{hit.best.start}-{hit.best.end}"
        assert data["link"] == best["link"] == f"/documents/{hit.document}{own}"
        shown = "".join(piece["text"] for part in data["parts"] for piece in part["pieces"])
        assert shown.split() == whole[hit.document][hit.start : hit.end].split()


def test_an_answer_is_sentences_of_passages_that_answer(site: Site) -> None:
    events = dict(site.ask(QUESTION))
    answer = events["answer"]
    assert 1 <= len(answer["sentences"]) <= 3
    assert answer["best"] >= ANSWERS
    assert [each["n"] for each in answer["sentences"]] == list(range(1, len(answer["sentences"]) + 1))
    for each in answer["sentences"]:
        page = site.client.get(each["link"].split("#")[0]).text
        assert f'id="{each["link"].split("#")[1]}"' in page
        assert each["name"] in {row["name"] for row in site.documents()}


def test_what_can_answer_and_what_can_lead() -> None:
    prose = ("The ferry leaves at noon.", "Opening hours 9 to 5", "渡し船は正午に島へ向けて出発する。")
    other = ("## The ferry to the island", "| Ferry | noon | free of charge |", "Not that.")
    asked = ("When does the ferry leave?", "What the ferry does not do:", "“When does the ferry to the island leave?”")
    assert all(map(is_prose, prose)) and not any(map(is_prose, other + asked))
    assert [is_fragment(each) for each in prose] == [True, True, False]
    assert not is_fragment("The ferry to the northern island leaves at noon.")


def test_no_answer_is_said(site: Site) -> None:
    others = (
        "Who painted the ninth bell of Quillon?",
        "How do the weavers of Sorrelby greet a comet?",
        "What does a Pellian fox carry in its left shoe?",
        "When did the Harrowmont choir lose its blue door?",
    )
    silent = [dict(site.ask(question, k=1))["answer"] for question in others]
    assert not any(answer["sentences"] for answer in silent) and all(answer["best"] < ANSWERS for answer in silent)


def test_what_can_be_asked_and_who_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = site.state.reader
    entries = sorted(reader.entries(), key=lambda entry: -entry.sentences)
    titles = [str(entry.metadata.get("title") or entry.metadata["name"]) for entry in entries]
    summary = reader.summary(entries)
    assert summary["titles"] == list(dict.fromkeys(titles))[:3] and len(summary["titles"]) == min(3, len(set(titles)))
    page = site.client.get("/").text
    assert all(f"<strong>{title}</strong>" in page for title in summary["titles"]) and "MB of" not in page
    named = replace(reader.settings, model="/home/me/models/Qwen 3.gguf")
    monkeypatch.setattr(reader, "settings", named)
    assert "read by <strong>Qwen 3</strong>" in site.client.get("/").text
    assert reader.summary(entries)["model"] == "Qwen 3"


def test_models_are_called_by_their_names() -> None:
    for name, label in (
        ("smollm2", "smollm2"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("ollama:llama3.2", "ollama:llama3.2"),
        ("/models/gemma", "gemma"),
        ("/c/hub/models--Qwen--Qwen3-0.6B/snapshots/0a1b", "Qwen/Qwen3-0.6B"),
    ):
        assert model_label(name) == label


def test_one_document_can_be_asked(site: Site) -> None:
    key = next(row["id"] for row in site.documents() if row["name"] == "guide.md")
    assert {data["document"] for name, data in site.ask(QUESTION, document=key) if name == "hit"} == {key}
    assert site.client.get("/", params={"in": "0" * 16}).status_code == 404
    assert site.client.get("/api/ask", params={"q": QUESTION, "document": "../x"}).status_code == 404


FOLLOWING = """And what did she do then? | and text boxes | What about the harbour? | Why? | How large is it?
Which files does it read? | Who wound that? | Who can wind it? | What happened then? | For that, which key is needed?
What happens to its weights on Monday? | How many passages does one of these libraries have? | What's it for?
What’s that? | Where's it kept? | What'll it cost? | Why doesn't it work? | Can't it read PDF files?
Which files can't it read? | Isn't that file too long?"""
COMPLETE = """Who is the keeper, and what does she do? | If the server ends, does it resume? | Are there any limits? | ?
Who is the keeper that winds the clock? | Does a library know its model? | Is it possible to read a PDF file?
How long does it take to read a PDF file? | What does this document say about ferries? | 渡し船はいつ出発しますか？
The index has a writer. What is it for? | Who, in the harbour, is the keeper? | Who? The keeper of the lighthouse?
Who: keeper | Who's the keeper that winds the clock? | Isn't it possible to read a PDF file?
Who wrote the manual and when did he die?"""


def test_what_cannot_stand_alone() -> None:
    for questions, expected in ((FOLLOWING, True), (COMPLETE, False)):
        assert [each for each in re.split(r" \| |\n", questions) if is_follow_up(each) is not expected] == []


def test_a_follow_up_is_asked_with_the_question_before_it(site: Site) -> None:
    first, then = "How often does a pendulum swing?", "And when is it wound up?"
    history = QuestionHistory(site.folder).recent()
    events = site.ask(then, after=f" {first} ")
    assert events[0] == ("follow-up", {"to": first}) and QuestionHistory(site.folder).recent() == history
    assert events[1:-1] == site.ask(f"{first} {then}")[:-1]
    assert site.ask(first, after=QUESTION)[:-1] == site.ask(first)[:-1], "it stands alone"
    assert site.ask(then)[0][0] == "answer", "there is none before it"
    for question, before in ((then, "long " * 500), (f"And {'long ' * 300}?", "long " * 300)):
        refused = site.client.get("/api/ask", params={"q": question, "after": before})
        assert refused.status_code == 400 and "the question with the one before it has" in refused.json()["error"]


def test_the_last_questions_are_kept(tmp_path: Path) -> None:
    history = QuestionHistory(tmp_path)
    for question in ("Who?", "What is a lens?", "What is a clock?", "What is a tide?", "What is a clock?"):
        history.add(question)
    assert history.recent() == ["What is a clock?", "What is a tide?", "What is a lens?"]
    for damaged in ("[1, " * 100_000, "5"):
        (tmp_path / "questions.json").write_text(damaged)
        assert history.recent() == []


def test_an_answer_that_fails_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first event with a status, after it with an event; never with a stream that only ends."""
    for error, status, before, after in (
        (
            RuntimeError("the device is gone"),
            500,
            "the server failed (RuntimeError)",
            "RuntimeError: the device is gone",
        ),
        (DemoError("no."), 400, "no.", "no."),
    ):

        def failing(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(answering, "extract_sentences", failing)
            answer = site.client.get("/api/ask", params={"q": QUESTION})
            assert answer.status_code == status and before in answer.json()["error"]
        with monkeypatch.context() as patch:
            patch.setattr(site.state.reader, "generator", SimpleNamespace(write=failing))
            events = site.ask(QUESTION, k=1)
        assert [name for name, _ in events] == ["answer", "hit", "failed"]
        assert events[-1][1] == {"error": after}
