"""Questions to the page: the same hits as the index gives, an honest answer, and no error however many ask."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.demo.conftest import BREAD, CLOCK, TIDES
from tests.demo.site import Site, long_text, read_events, serving, wait

from chroma_eddy import open_index
from eddy_demo import handbook
from eddy_demo.errors import DemoError
from eddy_demo.web.answers import answering
from eddy_demo.web.answers.follow_up import is_follow_up
from eddy_demo.web.answers.history import QuestionHistory
from eddy_demo.web.answers.sample_rules import question_of
from eddy_demo.web.answers.support import ANSWERS, is_fragment, is_prose
from eddy_demo.web.uploads import library_writer
from eddy_embed import Embedder

QUESTION = "How does max_length set a smaller window than the model's, to save memory?"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("web") / "library", method=None) as site:
        for name in ("long-documents.md", "files.md", "layers.md"):
            site.upload(name, (handbook.folder() / name).read_bytes())
        for name, text in (("tides.md", TIDES), ("bread.txt", BREAD), ("clock.html", CLOCK)):
            site.upload(name, text.encode())
        assert {job["state"] for job in site.settled()} == {"done"}
        yield site


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
        assert (data["page"], data["last_page"]) == (hit.page, hit.last_page)
        assert [*filter(None, [data["title"], data["headings"]])] == hit.headings.split(" > ", 1)
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
        assert each["name"].endswith((".md", ".txt", ".html"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The ferry leaves at noon.", True),
        ("Opening hours 9 to 5", True),
        ("渡し船は正午に島へ向けて出発する。", True),
        ("## The ferry to the island", False),
        ("| Ferry | noon | free of charge |", False),
        ("When does the ferry leave?", False),
        ("What the ferry does not do:", False),
        ("Not that.", False),
        ("“When does the ferry to the island leave?”", False),
    ],
)
def test_what_can_answer(text: str, expected: bool) -> None:
    assert is_prose(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The ferry leaves at noon.", True),
        ("The ferry to the island leaves at noon.", False),
        ("渡し船は正午に島へ向けて出発する。", False),
    ],
)
def test_what_is_too_short_to_lead(text: str, expected: bool) -> None:
    assert is_fragment(text) is expected


def test_no_answer_is_said(site: Site) -> None:
    others = (
        "Who painted the ninth bell of Quillon?",
        "How do the weavers of Sorrelby greet a comet?",
        "What does a Pellian fox carry in its left shoe?",
        "When did the Harrowmont choir lose its blue door?",
    )
    silent = [dict(site.ask(question, k=1))["answer"] for question in others]
    assert not any(answer["sentences"] for answer in silent) and all(answer["best"] < ANSWERS for answer in silent)


def test_one_document_can_be_asked(site: Site) -> None:
    """No other one answers, and one that is not there is an error."""
    key = next(each["id"] for each in site.documents() if each["name"] == "files.md")
    hits = [data for name, data in site.ask(QUESTION, document=key) if name == "hit"]
    assert {hit["document"] for hit in hits} == {key} and len(hits) == 8
    assert "alone" in site.client.get("/", params={"in": key}).text
    assert site.client.get("/", params={"in": "0" * 16}).status_code == 404
    assert site.client.get("/api/ask", params={"q": QUESTION, "document": "../x"}).status_code == 404


@pytest.mark.parametrize(
    "question",
    [
        "And what did she do then?",
        "and text boxes",
        "What about the harbour?",
        "Why?",
        "How large is it?",
        "Which files does it read?",
        "Who wound that?",
        "Who can wind it?",
        "What happened then?",
        "What happens to its weights on Monday?",
        "How many passages does one of these libraries have?",
        "For that, which key is needed?",
        "What's it for?",
        "What’s that?",
        "What's its size?",
        "Where's it kept?",
        "What'll it cost?",
        "Why doesn't it work?",
        "Why won’t it start?",
        "Can't it read PDF files?",
        "Which files can't it read?",
        "Isn't that file too long?",
    ],
)
def test_what_cannot_stand_alone(question: str) -> None:
    assert is_follow_up(question)


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "Who is the keeper, and what does she do?",
        "If the server ends, does it resume?",
        "Who is the keeper that winds the clock?",
        "Does a library know its model?",
        "Is it possible to read a PDF file?",
        "How long does it take to read a PDF file?",
        "Are there any limits?",
        "What does this document say about ferries?",
        "The index has a writer. What is it for?",
        "Which methods read one token?",
        "Who, in the harbour, is the keeper?",
        "Who? The keeper of the lighthouse?",
        "Who: keeper",
        "Who's the keeper that winds the clock?",
        "Isn't it possible to read a PDF file?",
        "Who wrote the manual and when did he die?",
        "渡し船はいつ出発しますか？",
        "?",
    ],
)
def test_what_can_stand_alone(question: str) -> None:
    assert not is_follow_up(question)


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
    asked = [f"What does file {number} say?" for number in range(12)]
    for question in [*asked, asked[5], asked[5]]:
        history.add(question)
    site.ask("Who winds the clock?")
    expected = ["Who winds the clock?", asked[5], *(asked[at] for at in (11, 10, 9, 8, 7, 6, 4, 3))]
    assert history.recent() == expected
    page = site.client.get("/").text
    assert all(f">{question}</a>" in page for question in expected)
    assert site.client.delete("/api/questions").status_code == 200
    assert QuestionHistory(site.folder).recent() == [] and "Asked before" not in site.client.get("/").text
    for damaged in ("[1, " * 100_000, "5"):
        (site.folder / "questions.json").write_text(damaged)
        assert history.recent() == []


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("- A **batch** is a number of documents; passes are filled by tokens.", "What is a batch?"),
        ("`EddyChroma` is a vector store over an [index](chroma.md).", "What is EddyChroma?"),
        ("A written sentence is shown only if a sentence found supports it.", "When is a written sentence shown?"),
        ("Each document is embedded whole, so that its windows stay together.", "Why is each document embedded whole?"),
        ("Uploads are kept until they are written.", "How long are uploads kept?"),
        ("The doors were left open because nobody came.", "Why were the doors left open?"),
        ("## How the requests are batched", "How are the requests batched?"),
        ("# 2. Which models can I use?", "Which models can I use?"),
        ("The last line is a method.", ""),
        ("It is a vector store.", ""),
        ("He was late because nobody called him.", ""),
        ("The door was open when he came.", ""),
        ("The key of both is a number.", ""),
        ("## Limits", ""),
        ("## Who can reach it?", ""),
        ("## Any failures of mine?", ""),
        ("“A ferry is a boat,” she said.", ""),
        ("渡し船は正午に島へ向けて出発する。", ""),
    ],
)
def test_questions_made_of_sentences(sentence: str, question: str) -> None:
    assert question_of(sentence, f"The uploads are many. {sentence}") == question


def test_sample_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its document answer first; they are kept with the library and forgotten with their document."""
    monkeypatch.setattr(library_writer, "_BUSY_SECONDS", 0.02)
    lamp = (
        "A lantern is a lamp in a case. The wick is trimmed when the flame smokes. A keeper is a person without sleep."
    )
    with serving(tmp_path / "library") as site:
        assert site.client.get("/api/samples").json() == {"questions": []}
        site.upload("lamp.txt", lamp)
        site.upload("tides.md", f"{TIDES}\n\nA tide table is a list of hours.")
        site.settled()
        ids = {each["name"]: each["id"] for each in site.documents()}
        wait(lambda: all(map(site.state.samples.offered, ids.values())))
        offered = {name: site.state.samples.offered(key) for name, key in ids.items()}
        assert offered["tides.md"] == ["What is a tide table?"]
        assert "When is the wick trimmed?" in offered["lamp.txt"]
        for name, questions in offered.items():
            for question in questions:
                assert dict(site.ask(question))["answer"]["sentences"][0]["document"] == ids[name]
        assert site.client.get("/api/samples", params={"document": "../x"}).status_code == 404
    with serving(tmp_path / "library") as site:
        site.settled()
        assert {name: site.state.samples.offered(key) for name, key in ids.items()} == offered
        assert site.client.delete(f"/api/documents/{ids['lamp.txt']}").status_code == 200
        wait(lambda: "lantern" not in (site.folder / "samples.json").read_text())
        wait(lambda: site.state.samples.offered() == offered["tides.md"])
        (site.folder / "samples.json").write_text("[")
    with serving(tmp_path / "library") as site:
        wait(lambda: site.state.samples.offered() == offered["tides.md"])


def test_a_document_is_held_against_a_question(site: Site) -> None:
    """Each sentence of the page has the cosine that the index gives it."""
    hit = dict(site.ask(QUESTION, k=1))["hit"]
    page = site.client.get(f"/documents/{hit['document']}", params={"q": QUESTION}).text
    best = next(part for part in hit["parts"] if part.get("best"))
    place = best["link"].split("#")[1]
    start = page.index(f'id="{place}"')
    assert f'data-c="{best["cosine"]}"' in page[start : start + 200]
    assert page.count("data-c=") >= page.count('id="s-')


def test_fifty_ask_while_documents_are_written(site: Site) -> None:
    """The document is under way from the first question to the last, held before its end."""
    resume = site.pause()
    site.upload("long.txt", long_text(300).encode())
    site.halfway()
    end = site.pause(0.5)
    resume()

    def ask(number: int) -> int:
        answer = site.client.get("/api/ask", params={"q": f"{QUESTION} Number {number}.", "k": 3})
        names = [name for name, _ in read_events(answer)]
        assert names == ["answer", "hit", "hit", "hit", "done"], answer.text
        return len(names)

    with ThreadPoolExecutor(50) as pool:
        assert sum(pool.map(ask, range(50))) == 250
    states = {job["name"]: job["state"] for job in site.state.writer.snapshot()["jobs"]}
    assert states["long.txt"] in ("embedding", "writing")
    end()
    assert {job["name"]: job["state"] for job in site.settled()}["long.txt"] == "done"


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


def test_an_empty_library_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "library", method=None) as site:
        assert [name for name, _ in site.ask("Anything?")] == ["done"]
        assert "Nothing to ask yet" in site.client.get("/").text
        assert "No document yet. Choose some above" in site.client.get("/library").text
        why = site.client.get("/why").text
        assert "There is no document to compare on yet: put one into the" in why
        assert "There are too few texts for a picture yet: put documents into the" in why
        assert not (tmp_path / "library" / "chroma").exists()


def test_without_a_model_it_says_why(tmp_path: Path) -> None:
    """Nothing hangs: the page and every question tell the same."""
    with serving(tmp_path / "library", model=str(tmp_path / "nowhere")) as site:
        told = site.until(lambda p: p["error"])["error"]
        assert "nowhere" in told
        answer = site.client.get("/api/ask?q=Anything")
        assert (answer.status_code, answer.json()["error"]) == (400, told)
        assert site.client.get("/api/health").json()["ready"] is False
