"""Re-ranking at the endpoint: the library's scores for real clients, beside embedding requests, within the limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from langchain_community.document_compressors import JinaRerank, jina_rerank
from langchain_core.documents import Document
from tests.adapters.serving import NAME, Served, serving, until

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import NotFinite
from openai_eddy.engine import open_models
from openai_eddy.limits import Limits
from openai_eddy.middleware import RERANK_PATHS

METHOD = "plain:exit=2"
QUESTION = "When does the ferry leave?"
TEXTS = ["Dogs travel for free.", "The ferry leaves at noon.", "渡し船は正午に出る。 🐕", "Who keeps the light?"]
LONG = "The keeper of the light sleeps by day. " * 12 + "The ferry leaves at noon."
BREAK = "Break the ferry."
ASK = {"model": NAME, "query": QUESTION, "documents": TEXTS}
LIMITS = Limits(inputs=40, input_characters=4000, input_tokens=400, request_tokens=4000, pending_tokens=4000)


class Held(Reranker):
    """A reranker that the test holds up, that notes what it judges, and that fails on one text."""

    gate = threading.Event()
    judged: list[list[str]]

    def scores(self, query: Any, texts: Any, **options: Any) -> Any:
        self.judged = [*getattr(self, "judged", []), [texts] if isinstance(texts, str) else texts]
        assert self.gate.wait(60)
        if BREAK in texts:
            raise NotFinite(f"text {texts.index(BREAK)} gave NaN")
        return super().scores(query, texts, **options)


class Noting(Embedder):
    """An embedder that notes how much had been judged when it embedded."""

    reranker: Held
    judged_before: int

    def encode_document(self, texts: Any, **options: Any) -> Any:
        self.judged_before = len(getattr(self.reranker, "judged", ()))
        return super().encode_document(texts, **options)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    Held.gate.set()
    embedder, reranker = Noting("eddy-tiny", method=METHOD), Held("eddy-tiny", max_length=96)
    embedder.reranker = reranker
    with serving({METHOD: embedder}, LIMITS, reranker=reranker, batch_tokens=64) as found:
        yield found


@pytest.fixture(autouse=True)
def survived(served: Served) -> Iterator[None]:
    """After every test nothing is left behind."""
    yield
    Held.gate.set()
    until(served.at_rest)


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker("eddy-tiny", max_length=96)


def ask(served: Served, path: str = "/v1/rerank", **more: Any) -> httpx.Response:
    return served.http.post(path, json={**ASK, **more})


def best_first(scores: Any) -> list[int]:
    return np.argsort(-scores, kind="stable").tolist()


def test_every_path_gives_the_librarys_scores_best_first(served: Served, reranker: Reranker) -> None:
    scores = reranker.scores(QUESTION, TEXTS)
    for path in RERANK_PATHS:
        got = ask(served, path).json()
        assert [each["index"] for each in got["results"]] == best_first(scores) != sorted(best_first(scores))
        for each in got["results"]:
            assert each["document"] == {"text": TEXTS[each["index"]]} and 0 < each["relevance_score"] < 1
            assert each["relevance_score"] == pytest.approx(np.exp(scores[each["index"]]), rel=1e-4)
        tokens = sum(reranker.count_tokens(QUESTION, TEXTS))
        assert got["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert got["model"] == NAME and got["id"].startswith("rerank-")


def test_langchain_with_jina(served: Served, reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jina_rerank, "JINA_API_URL", f"{served.url}/rerank")  # the class takes no other address
    found = JinaRerank(jina_api_key="none", model=NAME, top_n=2).compress_documents(
        [Document(text, metadata={"place": place}) for place, text in enumerate(TEXTS)], QUESTION
    )
    scores = reranker.scores(QUESTION, TEXTS)
    assert [each.metadata["place"] for each in found] == best_first(scores)[:2]
    got = [each.metadata["relevance_score"] for each in found]
    np.testing.assert_allclose(np.log(got), np.sort(scores)[::-1][:2], atol=1e-4)
    with pytest.raises(RuntimeError, match="The model `gpt-4` does not exist"):
        JinaRerank(jina_api_key="none", model="gpt-4").rerank(TEXTS, QUESTION)


def test_options(served: Served, reranker: Reranker) -> None:
    plain = ask(served).json()["results"]
    objects = ask(served, documents=[{"text": text} for text in TEXTS], top_n=None).json()["results"]
    assert objects == plain
    short = ask(served, top_n=2, return_documents=False).json()["results"]
    assert short == [{name: each[name] for name in ("index", "relevance_score")} for each in plain[:2]]
    assert ask(served, top_n=9).json()["results"] == plain


def test_long_documents_are_read_to_their_end_unless_cut(served: Served, reranker: Reranker) -> None:
    whole = ask(served, documents=[LONG, TEXTS[0]]).json()
    cut = ask(served, documents=[LONG, TEXTS[0]], max_tokens_per_doc=20).json()
    (start,) = reranker.truncate(LONG, 20)
    assert LONG.startswith(start) and "sleeps" in start and len(start) < 120
    for got, text in ((whole, LONG), (cut, start)):
        (score,) = reranker.scores(QUESTION, text)
        (found,) = [each for each in got["results"] if each["index"] == 0]
        assert found["relevance_score"] == pytest.approx(np.exp(score), rel=1e-4)
        assert found["document"]["text"] == LONG
    assert whole["usage"]["total_tokens"] > reranker.max_length > cut["usage"]["total_tokens"] / 2
    assert reranker.truncate([TEXTS[0]], 500) == [TEXTS[0]]


def test_question_and_document_are_cut_where_a_client_says(served: Served, reranker: Reranker) -> None:
    def asked(most: int) -> tuple[float, int]:
        got = ask(served, documents=[LONG], truncate_prompt_tokens=most, return_documents=False).json()
        return got["results"][0]["relevance_score"], got["usage"]["total_tokens"]

    question = len(reranker._likelihood.tokenizer([QUESTION])[0].ids)
    (start,) = reranker.truncate(LONG, 20)
    assert reranker.truncate([LONG, TEXTS[0]], 20 + question, query=QUESTION) == [start, TEXTS[0]]
    (whole,) = reranker.truncate(LONG, query=QUESTION)
    more = LONG[: len(whole) + len(LONG[len(whole) :].split(maxsplit=1)[0]) + 1]
    (in_one_pass,) = reranker.count_tokens(QUESTION, whole)
    assert start < whole < LONG and in_one_pass <= reranker.max_length < reranker.count_tokens(QUESTION, more)[0]
    for most, text in ((20 + question, start), (-1, whole), (5000, LONG)):
        (score,) = reranker.scores(QUESTION, text)
        expected = pytest.approx(np.exp(score), rel=1e-4), reranker.count_tokens(QUESTION, text)[0]
        assert asked(most) == expected, most
    for body in ({"truncate_prompt_tokens": question}, {"query": "Why? " * 80, "truncate_prompt_tokens": -1}):
        error = ask(served, documents=[LONG], **body).json()["error"]
        assert (error["param"], error["code"]) == ("query", "context_length_exceeded")
        assert "leaves no room for a text" in error["message"]


WRONG: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no question": ({"query": None}, "query", "You must provide 'query'"),
    "blank question": ({"query": " "}, "query", "'query' is blank"),
    "no documents": ({"documents": []}, "documents", "at least 1 item"),
    "one document": ({"documents": "a"}, "documents", "a valid array"),
    "blank document": ({"documents": ["a", {"text": " "}]}, "documents", "'documents[1]' is blank"),
    "fields of a document": ({"documents": [{"text": "a", "title": "b"}]}, "documents", "'title': 'b'"),
    "number": (
        {"documents": ["a", 3]},
        "documents",
        "'documents[1]': Input should be a string or {\"text\": a string}",
    ),
    "unknown field": ({"rank_fields": ["a"]}, None, "Unrecognized request argument supplied: rank_fields"),
    "top_n": ({"top_n": 0}, "top_n", "greater than 0, not 0"),
    "return_documents": ({"return_documents": 1}, "return_documents", "a valid boolean, not 1"),
    "max_tokens_per_doc": ({"max_tokens_per_doc": "9"}, "max_tokens_per_doc", "a valid integer"),
    "nothing to read": ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "0 leaves nothing to read"),
    "less than nothing": ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "equal to -1, not -2"),
    "many": ({"documents": ["a"] * 41}, "documents", "41 inputs, more than 40"),
    "characters": ({"documents": ["a" * 4001]}, "documents", "'documents[0]' has 4001 characters"),
    "characters of the question": ({"query": "a" * 4001}, "query", "'query' has 4001 characters"),
    "question without room for a text": ({"query": "Why? " * 80, "documents": [LONG]}, "query", "shorten the question"),
    "tokens": ({"documents": [LONG * 5]}, "documents", "tokens, more than this server's 400"),
    "tokens in all": ({"documents": [LONG] * 30}, "documents", "'documents' has"),
}


def test_malformed_requests(served: Served) -> None:
    for name, (more, param, said) in WRONG.items():
        answer = ask(served, **more)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), name
        assert said in error["message"], (name, error["message"])
    assert ask(served, model="other").json()["error"]["code"] == "model_not_found"
    assert served.http.post("/v1/rerank", content=json.dumps(ASK)).status_code == 415


def test_embeddings_do_not_wait_for_the_end_of_a_long_re_ranking(served: Served) -> None:
    held = served.service._engine.reranker
    Held.gate.clear()
    held.judged = []
    with ThreadPoolExecutor(2) as threads:
        judging = threads.submit(ask, served, documents=[f"Ferry {number} leaves." for number in range(30)])
        until(lambda: len(held.judged) == 1)
        embedding = threads.submit(served.post, {"model": NAME, "input": "Dogs travel for free."})
        until(lambda: served.service.scheduler.requests == 2)
        Held.gate.set()
        assert embedding.result().status_code == 200 and len(judging.result().json()["results"]) == 30
    assert served.embedders[METHOD].judged_before <= 2 and len(held.judged) > 10


def test_what_a_vanished_client_asked_for_is_not_judged(served: Served) -> None:
    held = served.service._engine.reranker
    Held.gate.clear()
    held.judged = []
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, served, documents=["a"])
        until(lambda: len(held.judged) == 1)
        with pytest.raises(httpx.ReadTimeout):
            served.http.post("/v1/rerank", json={**ASK, "documents": ["Nobody wants this."]}, timeout=0.3)
        until(lambda: served.service.scheduler.requests == 1)
        Held.gate.set()
        assert first.result().status_code == 200
    until(served.at_rest)
    assert held.judged == [["a"]]


def test_a_document_that_fails_is_named(served: Served) -> None:
    answer = ask(served, documents=["a", BREAK])
    assert answer.status_code == 500 and "'documents[1]' (NotFinite)" in answer.json()["error"]["message"]


def test_what_the_server_says_of_itself(served: Served) -> None:
    def judged() -> float:
        page = served.http.get("/metrics").text
        return sum(float(line.split()[1]) for line in page.splitlines() if 'eddy_inputs_total{role="judged"}' in line)

    before = judged()
    assert ask(served).status_code == 200 and judged() == before + len(TEXTS)
    page = served.http.get("/metrics").text
    assert 'eddy_tokens_total{role="judged"}' in page and 'eddy_requests_total{path="/v1/rerank",status="200"}' in page
    assert served.http.get(f"/v1/models/{NAME}").json()["rerank"] is True
    assert set(RERANK_PATHS) < set(served.http.get("/openapi.json").json()["paths"])


def test_one_loaded_model_embeds_and_judges(reranker: Reranker) -> None:
    methods = [METHOD, "htp"]
    embedders, made = open_models("eddy-tiny", methods, rerank=True, max_length=96)
    assert made is not None and made.max_length == 96
    assert np.array_equal(made.scores(QUESTION, TEXTS), reranker.scores(QUESTION, TEXTS))
    tensors = {id(tensor) for _, tensor in made._likelihood.host.tensors()}
    for method, embedder in embedders.items():
        alone = Embedder("eddy-tiny", method=method, max_length=96)
        assert embedder.fingerprint == alone.fingerprint
        own = embedder._pipeline.open_runner.host.tensors()
        assert {id(tensor) for name, tensor in own if "rotary" not in name} <= tensors  # computed for each view


def test_a_server_that_does_not_judge_says_how_it_would() -> None:
    embedders, none = open_models("eddy-tiny", [METHOD])
    assert none is None
    with serving(embedders) as served:
        answer = ask(served)
        assert answer.status_code == 404 and "eddy serve MODEL --rerank" in answer.json()["error"]["message"]
        assert served.http.get(f"/v1/models/{NAME}").json()["rerank"] is False
