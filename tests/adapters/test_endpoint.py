"""The endpoint with real clients: what they get is what the library gives, whoever asks beside them."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import httpx
import numpy as np
import openai
import pytest
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction
from langchain_community.document_compressors import JinaRerank, jina_rerank
from langchain_community.embeddings import jina
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from tests.adapters.serving import NAME, Served, closed, head, serving, until

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import InvalidParameter, NotFinite
from eddy_embed.integrations.documents import first_tokens
from openai_eddy import Limits, create_app
from openai_eddy.app import RERANK_PATHS
from openai_eddy.engine import open_models

TEXTS = ["The ferry leaves at noon.", "Dogs travel for free.\n\nWho keeps the light?", "渡し船は正午に出る。 🐕"]
LONG = "The ferry leaves at noon. Dogs travel for free. The keeper of the light sleeps by day. " * 6
QUESTION = "When does the ferry leave?"
HOLD, BREAK = "Hold the ferry.", "Break the ferry."
METHODS = ("plain:exit=2", "plain:exit=1")
CLOSE = {"rtol": 0, "atol": 1e-5}
SIZES = {"inputs": 40, "input_characters": 4000, "input_tokens": 400, "request_tokens": 1200, "pending_tokens": 1200}
LIMITS = Limits(**SIZES, body_bytes=32_768, body_seconds=0.5)


class Held(Embedder):
    """An embedder that a text holds up until the test lets go, and that cannot embed another one."""

    gate = threading.Event()
    together: ClassVar[list[list[str]]] = []

    def encode_document(self, texts: Any, **options: Any) -> Any:
        self.together.append([texts] if isinstance(texts, str) else list(texts))
        if HOLD in texts:
            assert self.gate.wait(60)
        if BREAK in texts:
            raise NotFinite(f"text {list(texts).index(BREAK)} gave NaN")
        return super().encode_document(texts, **options)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    options = {"query_instruction": "Find: ", "max_length": 96}
    embedders = {method: Held("eddy-tiny", method=method, **options) for method in METHODS}
    reranker = Reranker("eddy-tiny", max_length=96)
    names = [NAME, "text-embedding-3-small"]
    with serving(embedders, names=names, limits=LIMITS, reranker=reranker, batch_tokens=64) as site:
        yield site


@pytest.fixture(autouse=True)
def survived(served: Served) -> Iterator[None]:
    """After every test nothing is left in the queue."""
    yield
    Held.gate.set()
    until(lambda: served.service.batcher.pending == 0 and not served.service.batcher._queue)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def usual(served: Served) -> Embedder:
    return served.embedders[METHODS[0]]


def vectors(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    return np.array([row["embedding"] for row in answer.json()["data"]])


# --- clients


def test_openai_package(client: openai.OpenAI, usual: Embedder) -> None:
    answer = client.embeddings.create(model=NAME, input=TEXTS)  # base64, which the package asks for by itself
    assert [(row.index, row.object) for row in answer.data] == [(0, "embedding"), (1, "embedding"), (2, "embedding")]
    np.testing.assert_allclose([row.embedding for row in answer.data], usual.encode_document(TEXTS), **CLOSE)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(usual.count_tokens(TEXTS))
    alone = client.embeddings.create(model="text-embedding-3-small", input=TEXTS[0], encoding_format="float", user="me")
    assert alone.model == "text-embedding-3-small" and len(alone.data) == 1
    assert [model.id for model in client.models.list()] == [NAME, "text-embedding-3-small"]
    one = client.models.retrieve(NAME).model_dump()
    assert (one["object"], one["dimension"], list(one["methods"]), one["rerank"]) == ("model", 320, list(METHODS), True)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_base64_is_exact_and_dimensions_are_cut(served: Served, usual: Embedder) -> None:
    numbers, coded = (
        served.post({"input": TEXTS[1], "encoding_format": encoding}).json()["data"][0]["embedding"]
        for encoding in ("float", "base64")
    )
    assert base64.b64decode(coded) == np.array(numbers, "<f4").tobytes()
    whole = usual.encode_document(TEXTS)
    cut = whole[:, :32] / np.linalg.norm(whole[:, :32], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors(served.post({"input": TEXTS, "dimensions": 32})), cut, **CLOSE)
    np.testing.assert_allclose(vectors(served.post({"input": TEXTS, "dimensions": 320})), whole, **CLOSE)


def test_roles_and_methods(served: Served) -> None:
    for method, embedder in served.embedders.items():
        answer = served.post({"input": TEXTS, "role": "query", "method": method})
        np.testing.assert_allclose(vectors(answer), embedder.encode_query(TEXTS), **CLOSE)
        assert abs(embedder.encode_query(TEXTS) - embedder.encode_document(TEXTS)).max() > 0.01
        assert answer.headers["x-eddy-method"] == method
        assert answer.headers["x-eddy-fingerprint"] == embedder.fingerprint


def test_jina_for_embeddings(served: Served, usual: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jina, "JINA_API_URL", f"{served.url}/embeddings")
    client = jina.JinaEmbeddings(jina_api_key="none", model_name=NAME)
    np.testing.assert_allclose(client.embed_documents(TEXTS), usual.encode_document(TEXTS), **CLOSE)
    with pytest.raises(RuntimeError, match=r"'input\[1\]' has 4001 characters"):
        client.embed_documents(["a", "a" * 4001])


def test_jina_for_reranking(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jina_rerank, "JINA_API_URL", f"{served.url}/rerank")  # the class takes no other address
    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(TEXTS)]
    best = JinaRerank(jina_api_key="none", model=NAME, top_n=2).compress_documents(documents, QUESTION)
    scores = Reranker("eddy-tiny", max_length=96).scores(QUESTION, TEXTS)
    assert [document.metadata["place"] for document in best] == np.argsort(-scores)[:2].tolist()
    relevance = [document.metadata["relevance_score"] for document in best]
    np.testing.assert_allclose(np.log(relevance), np.sort(scores)[::-1][:2], atol=1e-4)
    with pytest.raises(RuntimeError, match="The model `gpt-4` does not exist"):
        JinaRerank(jina_api_key="none", model="gpt-4").rerank(TEXTS, QUESTION)


def test_frameworks(served: Served, usual: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model": NAME, "base_url": served.url, "api_key": "none", "check_embedding_ctx_length": False}
    queries = OpenAIEmbeddings(**options, model_kwargs={"extra_body": {"role": "query"}})
    np.testing.assert_allclose(
        OpenAIEmbeddings(**options).embed_documents(TEXTS), usual.encode_document(TEXTS), **CLOSE
    )
    np.testing.assert_allclose(queries.embed_query(TEXTS[0]), usual.encode_query(TEXTS[0]), **CLOSE)
    like = OpenAILikeEmbedding(model_name=NAME, api_base=served.url, api_key="none", max_retries=0)
    lines = [text.replace("\n", " ") for text in TEXTS]
    np.testing.assert_allclose(like.get_text_embedding_batch(TEXTS), usual.encode_document(lines), **CLOSE)
    monkeypatch.setenv("CHROMA_OPENAI_API_KEY", "none")
    function = OpenAIEmbeddingFunction(model_name=NAME, api_base=served.url)
    np.testing.assert_allclose(np.stack(function(TEXTS)), usual.encode_document(TEXTS), **CLOSE)


# --- bodies


def test_fields_of_other_servers(served: Served, usual: Embedder) -> None:
    texts = TEXTS[:1]
    for more in (
        {"truncate": True, "output_dimension": 320, "normalize": True, "embedding_type": "float", "priority": 0},
        {"truncate": "NONE", "normalized": True, "embedding_types": ["float"], "metadata": {"a": 1}},
        {"truncate": "END", "output_dtype": "float", "late_chunking": False, "user": None, "dimensions": None},
        {"truncate": None, "input": [{"text": text} for text in texts], "add_special_tokens": True},
        {"truncate": False, "input": [{"type": "text", "text": text} for text in texts]},
        *({"truncation": value} for value in (True, False)),
        *({"input_type": value} for value in ("search_document", "passage", "classification", "clustering")),
        *({"task": value} for value in ("retrieval.passage", "text-matching", "separation")),
        *({"input_type": "search_query"}, {"input_type": "query"}, {"task": "retrieval.query"}),
    ):
        encode = usual.encode_query if "query" in str(more) else usual.encode_document
        answer = vectors(served.post({"input": texts, **more}))
        np.testing.assert_allclose(answer, encode(texts), **CLOSE, err_msg=str(more))
    answer = served.rerank(query=QUESTION, documents=TEXTS, top_k=2, truncation=False, priority=0, rank_fields=["text"])
    assert len(answer.json()["results"]) == 2


WRONG: list[tuple[Any, str | None, str]] = [
    (b"{", None, "could not parse the JSON"),
    (b'{"input": "\xff"}', None, "could not parse"),
    (b"[" * 20_000, None, "could not parse"),
    (b"[]", None, "must be a JSON object, not a list"),
    (b'{"input": "a"}', "model", "You must provide 'model'"),
    ({"input": ["a", "b\ud83d"]}, "input", "'input[1]': holds half a character"),
    ({"input": "a", "dimension": 3}, "dimension", "Unrecognized request argument supplied: dimension"),
    ({"input": "a", "role": "query", "task": "retrieval.query"}, "task", "supplied: task"),
    ({"input": ["a", {"image": "a"}]}, "input", "'input[1]': Input should be a string or {\"text\""),
    ({"input": []}, "input", "at least 1 item"),
    ({"input": [5, 6]}, "input", "check_embedding_ctx_length=False"),
    ({"input": ["a"] * 41}, "input", "41 inputs, more than 40"),
    ({"input": "ab " * 1000}, "input", "tokens, more than"),
    ({"input": "a" * 4001}, "input", "4001 characters"),
    ({"input": ["ab " * 100] * 40}, "input", "in all"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", "'float' or 'base64', not 'hex'"),
    ({"input": "a", "truncate": "START"}, "truncate", "'NONE' or 'END', not 'START'"),
    ({"input": "a", "normalize": False}, "normalize", "makes vectors with True"),
    ({"input": "a", "dimensions": 0}, "dimensions", "greater than 0, not 0"),
    ({"input": "a", "output_dimension": 321}, "dimensions", "have 320"),
    ({"input": "a", "role": "user"}, "role", "not 'user'"),
    ({"input": "a", "method": "htp:exit=2"}, "method", "this server has plain:exit=2, plain:exit=1"),
]


WRONG_RERANKING: list[tuple[dict[str, Any], str, str]] = [
    ({"query": " "}, "query", "'query' is blank"),
    ({"query": "\udc00"}, "query", "'query': holds half a character"),
    ({"documents": []}, "documents", "at least 1 item"),
    ({"documents": ["a", 3]}, "documents", "'documents[1]': Input should be a string or {\"text\": a string}, not 3"),
    ({"documents": [{"text": "a", "title": "b"}]}, "documents", "'title': 'b'"),
    ({"rank_fields": ["title"]}, "rank_fields", "'text', not 'title'"),
    ({"query": "a" * 4001}, "query", "'query' has 4001 characters"),
    ({"query": "Why? " * 80, "documents": [LONG]}, "query", "shorten the question"),
]


def test_malformed_requests(served: Served) -> None:
    usual = {"model": NAME, "query": QUESTION, "documents": TEXTS}
    cases = [
        ("/v1/embeddings", body if isinstance(body, bytes) else json.dumps({"model": NAME, **body}), param, message)
        for body, param, message in WRONG
    ]
    cases += [("/v1/rerank", json.dumps({**usual, **body}), param, message) for body, param, message in WRONG_RERANKING]
    for path, content, param, message in cases:
        answer = served.http.post(path, content=content, headers={"content-type": "application/json"})
        error = answer.json()["error"]
        expected = (400, param, "invalid_request_error")
        assert (answer.status_code, error["param"], error["type"]) == expected, (content[:200], error)
        assert message in error["message"] and answer.json() == {"error": error, "detail": error["message"]}, error


def test_a_blank_input_has_a_vector(served: Served, usual: Embedder) -> None:
    for role, encode in (("document", usual.encode_document), ("query", usual.encode_query)):
        answer = vectors(served.post({"input": [TEXTS[0], "", " \n", "\u00a0"], "role": role}))
        np.testing.assert_allclose(answer, encode([TEXTS[0], ".", ".", "."]), **CLOSE)


def test_inputs_are_cut_where_a_client_says(served: Served, usual: Embedder) -> None:
    words = "The ferry leaves at noon"
    cut = served.post({"role": "query", "input": LONG, "truncate_prompt_tokens": usual.count_tokens(words)})
    np.testing.assert_allclose(vectors(cut)[0], usual.encode_query(words), **CLOSE)
    assert usual.count_tokens(LONG) > usual.max_length
    cases: tuple[tuple[Any, dict[str, Any]], ...] = (
        ("query", {"truncate_prompt_tokens": -1}),
        ("document", {"truncate": True}),
    )
    for role, more in cases:
        encode = usual.encode_query if role == "query" else usual.encode_document
        (start,) = first_tokens(usual, [LONG], None, role=role)
        answer = served.post({"role": role, "input": [LONG, TEXTS[0]], **more})
        np.testing.assert_allclose(vectors(answer), encode([start, TEXTS[0]]), **CLOSE)
        assert LONG.startswith(start)
    whole = served.post({"input": LONG})
    np.testing.assert_allclose(vectors(whole)[0], usual.encode_document(LONG), **CLOSE)


# --- re-ranking


def test_every_path_gives_the_scores_of_the_library_best_first(served: Served) -> None:
    reranker = Reranker("eddy-tiny", max_length=96)
    texts = TEXTS[::-1]
    scores = reranker.scores(QUESTION, texts)
    tokens = sum(reranker.count_tokens(QUESTION, texts))
    for path in RERANK_PATHS:
        answer = served.rerank(path, query=QUESTION, documents=[texts[0], {"text": texts[1]}, *texts[2:]]).json()
        assert [result["index"] for result in answer["results"]] == np.argsort(-scores, kind="stable").tolist()
        for result in answer["results"]:
            assert result["document"] == {"text": texts[result["index"]]}
            assert result["relevance_score"] == pytest.approx(np.exp(scores[result["index"]]), rel=1e-4)
        assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert answer["model"] == NAME and answer["id"].startswith("rerank-")
    short = served.rerank(query=QUESTION, documents=texts, top_n=2, return_documents=False).json()["results"]
    assert [set(result) for result in short] == [{"index", "relevance_score"}] * 2
    for more, cut in (
        ({"max_tokens_per_doc": 20}, reranker.truncate(LONG, 20)),
        ({"truncate_prompt_tokens": -1}, reranker.truncate(LONG, query=QUESTION)),
        ({"truncate": True}, reranker.truncate(LONG, query=QUESTION)),
    ):
        (result,) = served.rerank(query=QUESTION, documents=[LONG], **more).json()["results"]
        assert result["relevance_score"] == pytest.approx(np.exp(reranker.scores(QUESTION, cut)[0]), rel=1e-4)


def test_one_loaded_model_embeds_and_reranks() -> None:
    methods = ["plain:exit=2", "htp:exit=2"]
    embedders, reranker = open_models("eddy-tiny", methods, rerank=True, max_length=96)
    assert reranker is not None and reranker.max_length == 96
    tensors = {id(tensor) for _, tensor in reranker._likelihood.host.tensors()}
    for method, embedder in embedders.items():
        assert embedder.fingerprint == Embedder("eddy-tiny", method=method, max_length=96).fingerprint
        shared = embedder._pipeline.open_runner.host.tensors()
        assert {id(tensor) for name, tensor in shared if "rotary" not in name} <= tensors  # computed for each view


# --- batches


async def test_every_answer_is_of_its_own_text_under_load(served: Served) -> None:
    """Requests of all sorts beside each other, some of which are given up: nobody gets a neighbour's vector."""
    pool = [f"Boat number {number} carries {number * 7} dogs. " * (1 + number % 4) for number in range(8)]
    known = {
        (method, role): (embedder.encode_query if role == "query" else embedder.encode_document)(pool)
        for method, embedder in served.embedders.items()
        for role in ("query", "document")
    }
    dice, gone = random.Random(5), list[int]()

    async def ask(client: openai.AsyncOpenAI, number: int) -> None:
        chosen = dice.sample(range(len(pool)), dice.choice([1, 1, 2, 6]))
        (method, role), expected = dice.choice(list(known.items()))
        inputs = [pool[at] for at in chosen]
        asking = client.embeddings.create(model=NAME, input=inputs, extra_body={"role": role, "method": method})
        if number % 6 == 5:
            try:
                await asyncio.wait_for(asking, dice.choice([0.001, 0.02]))
            except asyncio.TimeoutError:
                gone.append(number)
            return
        answer = np.array([row.embedding for row in (await asking).data])
        np.testing.assert_allclose(answer, expected[chosen], **CLOSE)

    async with openai.AsyncOpenAI(base_url=served.url, api_key="none", max_retries=5, timeout=120) as client:
        await asyncio.gather(*(ask(client, number) for number in range(24)))
    assert gone


def waiting(served: Served, requests: int) -> None:
    until(lambda: len(served.service.batcher._queue) == requests)


def test_a_text_that_fails_fails_alone(served: Served) -> None:
    Held.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(served.post, {"input": HOLD})
        until(lambda: [HOLD] in Held.together)
        bad = threads.submit(served.post, {"input": ["a", BREAK]})
        good = threads.submit(served.post, {"input": ["b", "c"]})
        waiting(served, 2)
        Held.gate.set()
        assert first.result().status_code == good.result().status_code == 200
    assert {"a", BREAK, "b", "c"} in map(set, Held.together)  # both requests in one batch
    error = bad.result().json()["error"]
    assert bad.result().status_code == 500 and error["type"] == "server_error" and "'input[1]'" in error["message"]


def test_what_a_vanished_client_asked_for_is_not_done(served: Served) -> None:
    Held.gate.clear()
    Held.together.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(served.post, {"input": HOLD})
        until(lambda: [HOLD] in Held.together)
        with pytest.raises(httpx.ReadTimeout):
            served.post({"input": "Nobody wants this."}, timeout=0.3)
        waiting(served, 0)
        Held.gate.set()
        assert first.result().status_code == 200
    assert ["Nobody wants this."] not in Held.together


def test_overload_is_refused_with_a_time_and_the_accepted_is_answered(served: Served, usual: Embedder) -> None:
    Held.gate.clear()
    Held.together.clear()
    with ThreadPoolExecutor(4) as threads, openai.OpenAI(base_url=served.url, api_key="-", max_retries=0) as client:
        first = threads.submit(served.post, {"input": HOLD})
        until(lambda: [HOLD] in Held.together)
        many = [LONG] * (3 * LIMITS.pending_tokens // 4 // usual.count_tokens(LONG))
        waits = threads.submit(served.post, {"input": many})
        waiting(served, 1)
        with pytest.raises(openai.RateLimitError) as refused:
            client.embeddings.create(model=NAME, input=many)
        assert int(refused.value.response.headers["retry-after"]) >= 1 and refused.value.code == "rate_limit_exceeded"
        assert served.http.get("/health").json() == {"status": "ok"}
        Held.gate.set()
        assert [asked.result().status_code for asked in (first, waits)] == [200] * 2


# --- the guard


def test_other_paths_methods_and_types(served: Served) -> None:
    answers = [
        served.http.get("/"),
        served.http.get("/v1/embeddings"),
        served.post({"input": "a"}, headers={"content-type": "text/plain"}),
        served.post({"input": "a"}, headers={"content-encoding": "gzip"}),
        served.post({"input": "a", "model": "gpt-4"}),
        served.post({"input": "a"}, headers={"origin": "https://a.example"}),
        served.http.get("/health", headers={"sec-fetch-site": "cross-site"}),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 415, 415, 404, 403, 403]
    errors = [answer.json()["error"] for answer in answers]
    assert {error["type"] for error in errors} == {"invalid_request_error"}
    assert "/v2/rerank" in errors[0]["message"] and errors[0]["message"].endswith("a client's base URL ends in /v1.")
    assert (errors[4]["param"], errors[4]["code"]) == ("model", "model_not_found")
    assert "--allowed-origin https://a.example" in errors[5]["message"]


def test_bodies_that_are_huge_slow_or_of_two_lengths_are_refused(served: Served) -> None:
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    chunked = head(None, "Transfer-Encoding: chunked")
    endless = closed(served.raw(chunked + 3 * chunk))
    assert endless.startswith(b"HTTP/1.1 413") and b"request_too_large" in endless and b"32 kB" in endless
    assert closed(served.raw(head(10**12) + b"{")).startswith(b"HTTP/1.1 413")
    for slow in (served.raw(head(50) + b"{"), served.raw(chunked + b"1\r\n{\r\n")):
        assert closed(slow).startswith(b"HTTP/1.1 408")
    inside = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # to a proxy, the end of a body
    two = closed(served.raw(head(len(inside) + 5, "Transfer-Encoding: chunked") + b"0\r\n\r\n" + inside))
    assert two.startswith(b"HTTP/1.1 400") and two.count(b"HTTP/1.1") == 1 and b"send one" in two
    assert served.post({"input": "a"}).status_code == 200


def test_keys_hosts_and_origins(usual: Embedder) -> None:
    page = "app://obsidian.md"
    options = {"keys": ["first-key", "second-key"], "hosts": ["127.0.0.1", "eddy.example"], "allowed_origins": [page]}
    with serving({"plain": usual}, **options) as served:

        def status(path: str = "/v1/models", **headers: str) -> int:
            return served.http.get(path, headers=headers).status_code

        for key in ("first-key", "second-key"):
            assert status(authorization=f"Bearer {key}") == 200
        for wrong in ("Bearer first-ke", "Bearer first-key2", "Bearer", "Basic first-key", "first-key"):
            assert status(authorization=wrong) == 401
        assert (status(), status("/health")) == (401, 200)
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            openai.OpenAI(base_url=served.url, api_key="wrong").models.list()
        known = {"authorization": "Bearer first-key"}
        reranking = {"model": NAME, "query": QUESTION, "documents": TEXTS}
        answer = served.http.post("/v1/rerank", json=reranking, headers=known)  # it has no reranker
        assert answer.status_code == 404 and "eddy serve MODEL --rerank" in answer.json()["error"]["message"]
        assert status(host="eddy.example:80", **known) == status(host="EDDY.example", **known) == 200
        for host in ("evil.example", "eddy.example.evil", "someone@127.0.0.1", "127.0.0.1:80@evil.example"):
            assert status(host=host, **known) in (400, 421)
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        first = served.http.options("/v1/embeddings", headers={"origin": page, **asked})
        assert first.status_code == 200 and first.headers["access-control-allow-headers"] == "authorization"
        refused = served.http.get("/v1/models", headers={"origin": page})  # its script can read why
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, page)
        other = served.http.options("/v1/embeddings", headers={"origin": "https://evil.example", **asked})
        assert other.status_code == 400 and "access-control-allow-origin" not in other.headers
    for wrong in ("localhost:3000", "http://localhost:3000/", "HTTP://a.example", ""):
        with pytest.raises(InvalidParameter, match=f"'{wrong}' is no origin"):
            create_app({"plain": usual}, [NAME], allowed_origins=[wrong]).build_middleware_stack()


def test_a_blank_document_comes_last(served: Served) -> None:
    without = served.rerank(query=QUESTION, documents=TEXTS).json()["results"]
    answer = served.rerank(query=QUESTION, documents=["", *TEXTS, {"text": " \n"}]).json()["results"]
    assert [result["index"] - 1 for result in answer[:3]] == [result["index"] for result in without]
    assert [(result["index"], result["relevance_score"]) for result in answer[3:]] == [(0, 0.0), (4, 0.0)]
    blank = served.rerank(query=QUESTION, documents=["", " "]).json()["results"]
    assert [result["index"] for result in blank] == [0, 1]
