"""Passages that the model reranks for the page: after the first answer, with progress, until nobody waits."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.demo.site import PATIENCE, Site, wait

from eddy_demo.ask import CANDIDATES
from eddy_demo.web.answers.quote import reranked_answer
from eddy_embed.reranker import Likelihood

QUESTION = "When does the ferry to the northern island leave, and when does it come back?"


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
