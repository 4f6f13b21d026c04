"""Questions to the page: the same hits as the index gives, and an answer that is right or says so."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.demo.site import PATIENCE, Site, wait

from chroma_eddy import Document, open_index
from eddy_demo import ask
from eddy_demo.ask import ANSWERS, CANDIDATES, choose_quotes, is_fragment, is_prose, pages_cited, section
from eddy_demo.display_text import model_label
from eddy_demo.errors import DemoError
from eddy_demo.web.answers import quote
from eddy_demo.web.answers.quote import reranked_answer
from eddy_embed import Embedder
from eddy_embed.reranker import Likelihood

QUESTION = "When does the ferry to the northern island leave, and when does it come back?"
LINE = """# The line

The line has three boats. They are painted white.

## Fares

| Route | Fare | Note |
| --- | --- | --- |
| North island | 5 crowns | dogs travel for free |
| South island | 7 crowns | bicycles \\| prams need a ticket |

Children pay half of the fare.

### Season tickets

Chapter 3. The season ticket

A season ticket costs eighty crowns.

```
buy --season-ticket --crowns=80
```

## Storms

In a storm the boats stay in the harbour. Which flag is on the pier then? The flag on the pier is red then.
"""


def test_hits_are_those_of_the_index(site: Site) -> None:
    """In order, with true cosines, exact ranges, and the place of the best sentence."""
    events = site.ask(QUESTION, k=5)
    assert [name for name, _ in events] == ["answer", *["hit"] * 5, "done"]
    answer = events[0][1]
    assert answer["answers"] and [quoted["n"] for quoted in answer["sentences"]] in ([1], [1, 2], [1, 2, 3])
    for quoted in answer["sentences"]:
        page, _, place = quoted["link"].partition("#")
        assert f'id="{place}"' in site.client.get(page).text
    reader = site.state.reader
    embedder = Embedder(reader.settings.model, method=reader.settings.method)
    with open_index(site.folder / "chroma", "library", embedder) as index:
        expected = index.query(QUESTION, 5, sentences=True)
        whole = {document.id: document.text for document in index.documents()}
    for (_, data), hit in zip(events[1:-1], expected, strict=True):
        best = ask.best_sentence(hit)
        assert data["cosine"] == pytest.approx(hit.cosine, abs=1e-4) and data["fit"] == round(hit.score, 2)
        assert (data["document"], data["start"], data["end"]) == (hit.document, hit.start, hit.end)
        assert data["name"] == hit.metadata["name"]
        assert (data["page"], data["cited"], data["headings"]) == (best.page, pages_cited(best), section(hit, best))
        (marked,) = (part for part in data["parts"] if part.get("best"))
        assert "".join(piece["text"] for piece in marked["pieces"]).split() == best.text.split()
        assert data["link"] == f"/documents/{hit.document}#s-{hit.document}-{best.start}-{best.end}"
        shown = "".join(piece["text"] for part in data["parts"] for piece in part["pieces"])
        assert shown.split() == whole[hit.document][hit.start : hit.end].split()


@pytest.mark.parametrize("size", [300, 24])
def test_a_quote_has_its_own_section_and_a_row_its_head(size: int, tmp_path: Path) -> None:
    """In one passage that begins in another section, or in passages of a row or two; never a heading or code."""
    with open_index(tmp_path, "line", Embedder("eddy-tiny", method="plain:exit=0"), passage_size=size) as index:
        index.upsert([Document("line", LINE, {"title": "The line", "name": "line.md"})])
        for question, text, where in (
            ("Which boats are painted white?", "They are painted white.", ""),
            (
                "What is the fare to the south island?",
                "Route: South island; Fare: 7 crowns; Note: bicycles | prams need a ticket",
                "Fares",
            ),
            ("Do children pay half of the fare?", "Children pay half of the fare.", "Fares"),
            (
                "How many crowns does a season ticket cost?",
                "A season ticket costs eighty crowns.",
                "Chapter 3. The season ticket",
            ),
            ("Which flag is on the pier in a storm?", "The flag on the pier is red then.", "Storms"),
        ):
            hits = index.query(question, CANDIDATES, alpha=0, sentences=True)
            quotes = {quoted.text: quoted for quoted in choose_quotes(hits)}
            assert text in quotes and not any("Chapter" in other or "buy" in other or "?" in other for other in quotes)
            found = quotes[text]
            assert section(found.hit, found.place) == where
            if found.row:
                rows = [part["cells"] for part in quote.hit_data(found.hit)["parts"] if "cells" in part]
                texts = [tuple("".join(piece["text"] for piece in cell).strip() for cell in row) for row in rows]
                assert texts[0] == found.head == ("Route", "Fare", "Note") and found.row in texts
                assert not any("---" in row for row in texts)


def test_what_can_answer_and_what_is_a_fragment() -> None:
    prose = ("The ferry leaves at noon.", "Opening hours 9 to 5", "渡し船は正午に島へ向けて出発する。")
    other = ("## The ferry to the island", "| Ferry | noon | free of charge |", "Not that.")
    asked = ("When does the ferry leave?", "What the ferry does not do:", "“When does the ferry to the island leave?”")
    assert all(map(is_prose, prose)) and not any(map(is_prose, other + asked))
    assert [is_fragment(text) for text in prose] == [False, True, False]


def test_no_answer_is_said(site: Site) -> None:
    others = (
        "Who painted the ninth bell of Quillon?",
        "How do the weavers of Sorrelby greet a comet?",
        "What does a Pellian fox carry in its left shoe?",
        "When did the Harrowmont choir lose its blue door?",
    )
    silent = [dict(site.ask(question, k=1)) for question in others]
    assert not any(events["answer"]["sentences"] or events["answer"]["answers"] for events in silent)
    assert all(events["hit"]["fit"] < ANSWERS for events in silent)


def test_who_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    named = replace(site.state.reader.settings, model="/home/me/models/Qwen 3.gguf")
    monkeypatch.setattr(site.state.reader, "settings", named)
    assert "read by <strong>Qwen 3</strong>" in site.client.get("/").text


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
    assert "hit" not in dict(site.ask(QUESTION, document="../x"))


def test_an_answer_that_fails_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first event with a status, after it with an event; never with a stream that only ends."""
    gone = "RuntimeError: the device is gone"
    for error, status, before, after in (
        (RuntimeError("the device is gone"), 500, "the server failed (RuntimeError)", gone),
        (DemoError("no."), 400, "no.", "no."),
    ):

        def failing(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(quote, "choose_quotes", failing)
            answer = site.client.get("/api/ask", params={"q": QUESTION})
            assert answer.status_code == status and before in answer.json()["error"]
        with monkeypatch.context() as patch:
            patch.setattr(site.state.reader, "generator", SimpleNamespace(write=failing))
            events = site.ask(QUESTION, k=1)
        assert [name for name, _ in events] == ["answer", "hit", "failed"]
        assert events[-1][1] == {"error": after}


def test_reranked_passages_follow_the_first_answer(site: Site) -> None:
    """They are those of the index's own re-ranking, and the progress ends with all of them."""
    events = site.ask(QUESTION, k=5, rerank="true")
    names = [name for name, _ in events]
    again = names.index("again")
    assert names[:6] == ["answer", *["hit"] * 5]
    assert site.ask(QUESTION, k=5)[-1][1]["reranked"] is None
    assert set(names[6:again]) == {"reranking"}
    assert names[again:] == ["again", "answer", *["hit"] * 5, "done"]
    progress = [data for name, data in events if name == "reranking"]
    assert progress[-1]["done"] == progress[-1]["total"] > 0
    assert events[-1][1]["reranked"] > 0 and events[-1][1]["passages"] == 5
    expected = site.state.reader.read(lambda index: index and index.query(QUESTION, CANDIDATES, rerank=True))
    assert [data["start"] for name, data in events[again:] if name == "hit"] == [hit.start for hit in expected[:5]]


def test_a_reader_who_leaves_stops_the_model(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the pass that is under way, of many."""
    begun, go = list[int](), threading.Event()
    run = Likelihood._pass

    def counted(self: Likelihood, laid: list[Any]) -> list[float]:
        begun.append(len(laid))
        assert go.wait(PATIENCE)
        return run(self, laid)

    monkeypatch.setattr(Likelihood, "_pass", counted)
    reranker = site.state.reader.reranker()
    monkeypatch.setattr(reranker, "_likelihood", replace(reranker._likelihood, batch_tokens=1))
    events = reranked_answer(site.state.reader, QUESTION, 5)
    assert next(events) == ("reranking", {"done": 0, "total": 0})
    wait(lambda: begun)
    closing = threading.Thread(target=events.close)
    closing.start()
    wait(lambda: closing.is_alive())
    time.sleep(0.1)  # it waits for the pass
    assert closing.is_alive()
    go.set()
    closing.join(PATIENCE)
    assert begun == [1] and not closing.is_alive()


def test_an_embedding_model_cannot_rerank(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(site.state.reader), "can_rerank", False)
    response = site.client.get("/api/ask", params={"q": QUESTION, "rerank": "true"})
    assert response.status_code == 400 and "it cannot re-rank" in response.json()["error"]
    assert "Re-rank the passages" not in site.client.get("/").text
