"""Questions to the page: the same hits as the index gives, and an honest answer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.demo.site import Site

from chroma_eddy import Index, open_index
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


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("smollm2", "smollm2"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("ollama:llama3.2", "ollama:llama3.2"),
        ("/models/gemma", "gemma"),
        ("/c/hub/models--Qwen--Qwen3-0.6B/snapshots/0a1b", "Qwen/Qwen3-0.6B"),
    ],
)
def test_models_are_called_by_their_names(name: str, label: str) -> None:
    assert model_label(name) == label


def test_one_document_can_be_asked(site: Site) -> None:
    """No other one answers, and one that is not there is an error."""
    key = guide(site)
    hits = [data for name, data in site.ask(QUESTION, document=key) if name == "hit"]
    assert {hit["document"] for hit in hits} == {key} and len(hits) == 8
    assert "alone" in site.client.get("/", params={"in": key}).text
    assert site.client.get("/", params={"in": "0" * 16}).status_code == 404
    assert site.client.get("/api/ask", params={"q": QUESTION, "document": "../x"}).status_code == 404


def guide(site: Site) -> str:
    """The id of the longest document."""
    key: str = next(each["id"] for each in site.documents() if each["name"] == "guide.md")
    return key


def test_the_documents_rows_are_read_once_for_a_list(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    entries = Index.entries
    monkeypatch.setattr(Index, "entries", lambda self, *keys: reads.append(keys) or entries(self, *keys))
    for path, count in (("/api/documents", 1), ("/", 1), ("/library", 0)):
        reads.clear()
        assert site.client.get(path).status_code == 200
        assert len(reads) == count, path


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


@pytest.mark.parametrize(("questions", "expected"), [(FOLLOWING, True), (COMPLETE, False)])
def test_what_cannot_stand_alone(questions: str, expected: bool) -> None:
    wrong = [each for each in re.split(r" \| |\n", questions) if is_follow_up(each) is not expected]
    assert wrong == []


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
    hit = events[2][1]
    query = {"q": then, "after": first}
    page = site.client.get(f"/documents/{hit['document']}", params=query).text
    assert f'data-c="{next(part["cosine"] for part in hit["parts"] if part.get("best"))}"' in page
    assert "after=How+often" in page


def test_the_last_questions_are_kept_and_forgotten(site: Site) -> None:
    history = QuestionHistory(site.folder)
    history.clear()
    for question in ("Who?", "What is a lens?", "What is a clock?", "What is a tide?", "What is a clock?"):
        history.add(question)
    site.ask("Who winds the clock?")
    expected = ["Who winds the clock?", "What is a clock?", "What is a tide?"]
    assert history.recent() == expected
    page = site.client.get("/").text
    assert all(f">{question}</a>" in page for question in expected)
    assert site.client.delete("/api/questions").status_code == 200
    assert QuestionHistory(site.folder).recent() == [] and "Asked before" not in site.client.get("/").text
    for damaged in ("[1, " * 100_000, "5"):
        (site.folder / "questions.json").write_text(damaged)
        assert history.recent() == []


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("the device is gone"), "RuntimeError: the device is gone"), (DemoError("no."), "no.")],
    ids=["unforeseen", "foreseen"],
)
def test_an_answer_that_fails_says_so(site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    """Before its first event with a status, after it with an event; never with a stream that only ends."""

    def failing(*_: object) -> None:
        raise error

    class Failing:
        write = failing

    with monkeypatch.context() as patch:
        patch.setattr(answering, "extract_sentences", failing)
        answer = site.client.get("/api/ask", params={"q": QUESTION})
        assert answer.status_code == (400 if isinstance(error, DemoError) else 500)
        assert ("the server failed (RuntimeError)" if answer.status_code == 500 else told) in answer.json()["error"]
    with monkeypatch.context() as patch:
        patch.setattr(site.state.reader, "generator", Failing())
        events = site.ask(QUESTION, k=1)
    assert [name for name, _ in events] == ["answer", "hit", "failed"]
    assert events[-1][1] == {"error": told}
