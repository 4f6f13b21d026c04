"""The endpoint with real clients: what they get is what the library gives, whoever asks beside them."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import random
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import openai
import pytest
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction
from langchain_community.embeddings import jina
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from tests.adapters.serving import NAME, Served, serving

from eddy_embed import Embedder
from eddy_embed.encoding.calibration import calibrated
from eddy_embed.errors import InvalidParameter, InvalidText, UnknownMethod
from eddy_embed.integrations import TextRole, first_tokens
from openai_eddy import create_app
from openai_eddy.engine import open_models
from openai_eddy.errors import ApiError
from openai_eddy.limits import Limits
from openai_eddy.middleware import Keys, read_keys
from openai_eddy.request import InputType, Task
from openai_eddy.responses import truncate_dimensions

TEXTS = ["The ferry leaves at noon.", "Dogs travel for free.\n\nWho keeps the light?", "渡し船は正午に出る。 🐕"]
LONG = "The ferry leaves at noon. Dogs travel for free. The keeper of the light sleeps by day. " * 6
METHODS = ("htp:pool=mean", "plain:exit=2")
ANSWERED = {"rtol": 0, "atol": 1e-6}
IN_COMPANY = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    options = {"query_instruction": "Find: ", "max_length": 96}
    with serving(open_models("eddy-tiny", METHODS, **options)[0], names=[NAME, "text-embedding-3-small"]) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def usual(served: Served) -> Embedder:
    return served.embedders[METHODS[0]]


def test_openai_package(client: openai.OpenAI, usual: Embedder) -> None:
    got = client.embeddings.create(model=NAME, input=TEXTS)  # base64, which the package asks for by itself
    assert [(row.index, row.object) for row in got.data] == [(0, "embedding"), (1, "embedding"), (2, "embedding")]
    np.testing.assert_allclose([row.embedding for row in got.data], usual.encode_document(TEXTS), **ANSWERED)
    assert got.usage.prompt_tokens == got.usage.total_tokens == sum(usual.count_tokens(TEXTS)) and got.model == NAME
    alone = client.embeddings.create(model="text-embedding-3-small", input=TEXTS[0], encoding_format="float", user="me")
    assert alone.model == "text-embedding-3-small" and len(alone.data) == 1
    np.testing.assert_allclose(alone.data[0].embedding, usual.encode_document(TEXTS[0]), **ANSWERED)


def test_base64_is_exact(served: Served, usual: Embedder) -> None:
    numbers, coded = (
        served.post({"model": NAME, "input": TEXTS[1], "encoding_format": encoding}).json()["data"][0]["embedding"]
        for encoding in ("float", "base64")
    )
    assert base64.b64decode(coded) == np.array(numbers, "<f4").tobytes()
    np.testing.assert_allclose(numbers, usual.encode_document(TEXTS[1]), **ANSWERED)


def test_roles_and_methods(client: openai.OpenAI, served: Served) -> None:
    for method, embedder in served.embedders.items():
        got = client.embeddings.create(model=NAME, input=TEXTS, extra_body={"role": "query", "method": method})
        np.testing.assert_allclose([row.embedding for row in got.data], embedder.encode_query(TEXTS), **ANSWERED)
        assert abs(embedder.encode_query(TEXTS) - embedder.encode_document(TEXTS)).max() > 0.01
    answer = served.post({"model": NAME, "input": "a", "method": METHODS[1]})
    fingerprint = Embedder("eddy-tiny", method=METHODS[1], query_instruction="Find: ", max_length=96).fingerprint
    assert (answer.headers["x-eddy-method"], answer.headers["x-eddy-fingerprint"]) == (METHODS[1], fingerprint)


def test_words_of_other_servers(served: Served, usual: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    def got(**more: object) -> np.ndarray:
        return np.array(
            [row["embedding"] for row in served.post({"model": NAME, "input": TEXTS, **more}).json()["data"]]
        )

    expected = {"query": usual.encode_query(TEXTS), "document": usual.encode_document(TEXTS)}
    for name, values in (("input_type", get_args(InputType)), ("task", get_args(Task))):
        for value in values:
            role = "query" if value.endswith("query") else "document"
            np.testing.assert_allclose(got(**{name: value}), expected[role], **IN_COMPANY)
    monkeypatch.setattr(jina, "JINA_API_URL", f"{served.url}/embeddings")
    client = jina.JinaEmbeddings(jina_api_key="none", model_name=NAME)
    np.testing.assert_allclose(client.embed_documents(TEXTS), expected["document"], **IN_COMPANY)
    with pytest.raises(RuntimeError, match=r"'input\[1\]' is blank"):
        client.embed_documents(["a", " "])


@pytest.mark.parametrize("role", ["document", "query"])
def test_inputs_are_cut_where_a_client_says(role: TextRole, served: Served, usual: Embedder) -> None:
    encode, body = {"query": usual.encode_query, "document": usual.encode_document}[role], {"model": NAME, "role": role}
    for words in ("The ferry leaves at noon", LONG):
        most = usual.count_tokens(words)
        got = served.post({**body, "input": LONG, "truncate_prompt_tokens": most}).json()
        np.testing.assert_allclose(got["data"][0]["embedding"], encode(words), **ANSWERED)
    whole = served.post({**body, "input": [LONG, TEXTS[0]], "truncate_prompt_tokens": -1}).json()
    kept = first_tokens(usual, [LONG], None, role=role)[0]
    more = LONG[: len(kept) + len(LONG[len(kept) :].split(maxsplit=1)[0]) + 1]
    assert LONG.startswith(kept) and usual.count_tokens(kept, role=role) <= usual.max_length
    assert usual.count_tokens(more, role=role) > usual.max_length
    np.testing.assert_allclose([row["embedding"] for row in whole["data"]], encode([kept, TEXTS[0]]), **IN_COMPANY)


def test_a_server_is_calibrated_before_its_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path))
    fits: list[object] = []
    monkeypatch.setattr("eddy_embed.embedder.calibrated", lambda *given: fits.append(given) or calibrated(*given))
    embedders = open_models("eddy-tiny", ["plain:exit=0+centre", "plain:exit=1+whiten"])[0]
    assert not fits
    with serving(embedders) as served:
        assert len(fits) == len(list(tmp_path.glob("calibrations/*.npz"))) == 2
        for method, more in product(embedders, ({"role": "query"}, {"unit": "passage"})):
            assert served.post({"model": NAME, "input": TEXTS, "method": method, **more}).status_code == 200
    assert len(fits) == 2


def test_slashes_too_many(served: Served) -> None:
    assert served.http.get("/v1/models/").json() == served.http.get("/v1/models").json()
    assert served.http.get(f"/v1//models/{NAME}/").json()["id"] == NAME and served.http.get("/health/").is_success
    assert served.http.post("/v1//embeddings/", json={"model": NAME, "input": "a"}).status_code == 200


def test_only_named_origins_are_let_in(usual: Embedder) -> None:
    page = "app://obsidian.md"
    asked = {"origin": page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with serving({"plain": usual}, keys=Keys(["k"]), allowed_origins=[page]) as served:
        first = served.http.options(
            "/v1/embeddings", headers={**asked, "access-control-request-private-network": "true"}
        )
        assert first.status_code == 200 and first.headers["access-control-allow-headers"] == "authorization"
        assert first.headers["access-control-allow-private-network"] == "true"
        refused = served.http.get("/v1/models", headers={"origin": page})  # its script can read why
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, page)
        other = served.http.options("/v1/embeddings", headers={**asked, "origin": "https://evil.example"})
        assert other.status_code == 400 and "access-control-allow-origin" not in other.headers
    for wrong in ("localhost:3000", "http://localhost:3000/", "HTTP://a.example", ""):
        with pytest.raises(InvalidParameter, match=f"'{wrong}' is no origin"):
            create_app({"plain": usual}, [NAME], allowed_origins=[wrong])


def test_token_ids(client: openai.OpenAI, usual: Embedder) -> None:
    tokenizer = usual._pipeline.planner.tokenizer
    ids = [tokens.ids.tolist() for tokens in tokenizer(TEXTS)]
    got = client.embeddings.create(model=NAME, input=[[*tokenizer.prefix.tolist(), *ids[0]], *ids[1:]])
    np.testing.assert_allclose([row.embedding for row in got.data], usual.encode_document(TEXTS), **ANSWERED)
    alone = client.embeddings.create(model=NAME, input=ids[0])
    assert alone.usage.prompt_tokens == len(ids[0]) and [usual.text_of(each) for each in ids] == TEXTS
    letters = [tokens.ids.tolist()[0] for tokens in tokenizer(list("ferry"))]
    for foreign in (letters, tokenizer(["🐕"])[0].ids.tolist()[:1], [10**9], []):
        with pytest.raises(InvalidText, match="no text has the token ids"):
            usual.text_of(foreign)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model=NAME, input=letters)


def test_dimensions(client: openai.OpenAI, usual: Embedder) -> None:
    whole = usual.encode_document(TEXTS)
    got = client.embeddings.create(model=NAME, input=TEXTS, dimensions=32)
    kept = whole[:, :32] / np.linalg.norm(whole[:, :32], axis=1, keepdims=True)
    np.testing.assert_allclose([row.embedding for row in got.data], kept, **ANSWERED)
    assert np.array_equal(truncate_dimensions(whole, 32, normalize=False), whole[:, :32])
    with pytest.raises(ApiError, match="all 0"):
        truncate_dimensions(np.eye(3, dtype=np.float32), 2, normalize=True)
    full = client.embeddings.create(model=NAME, input=TEXTS, dimensions=usual.dimension)
    np.testing.assert_allclose([row.embedding for row in full.data], whole, **ANSWERED)


@pytest.mark.parametrize(("unit", "late"), [("passage", True), ("sentence", True), ("passage", False)])
def test_parts_with_their_characters(unit: str, late: bool, served: Served, usual: Embedder) -> None:
    more = {"passage_size": 24} if unit == "passage" else {}
    body = {"model": NAME, "input": [LONG, TEXTS[1]], "unit": unit, "late": late, **more}
    got = served.post(body).json()
    expected = [
        (number, part.start, part.end, part.n_tokens, part.vector)
        for number, document in enumerate(usual.encode_long([LONG, TEXTS[1]], passage_size=24, late=late))
        for part in getattr(document, f"{unit}s")
    ]
    rows = got["data"]
    assert [(r["input"], r["start"], r["end"], r["tokens"]) for r in rows] == [each[:4] for each in expected]
    assert [row["index"] for row in rows] == list(range(len(rows))) and len(rows) > 6
    np.testing.assert_allclose([row["embedding"] for row in rows], [each[4] for each in expected], **ANSWERED)


def test_long_inputs_are_read_to_their_end(served: Served, usual: Embedder) -> None:
    got = served.post({"model": NAME, "input": LONG}).json()
    assert got["usage"]["prompt_tokens"] == usual.count_tokens(LONG) > usual.max_length
    np.testing.assert_allclose(got["data"][0]["embedding"], usual.encode_document(LONG), **ANSWERED)
    assert "eddy_windowed_inputs" in served.http.get("/metrics").text


def test_langchain(served: Served, usual: Embedder) -> None:
    options = {"model": NAME, "base_url": served.url, "api_key": "none", "check_embedding_ctx_length": False}
    documents = OpenAIEmbeddings(**options)
    queries = OpenAIEmbeddings(**options, model_kwargs={"extra_body": {"role": "query"}})
    np.testing.assert_allclose(documents.embed_documents(TEXTS), usual.encode_document(TEXTS), **ANSWERED)
    np.testing.assert_allclose(queries.embed_query(TEXTS[0]), usual.encode_query(TEXTS[0]), **ANSWERED)


def test_llama_index(served: Served, usual: Embedder) -> None:
    documents = OpenAILikeEmbedding(model_name=NAME, api_base=served.url, api_key="none", max_retries=0)
    got = documents.get_text_embedding_batch(TEXTS)
    np.testing.assert_allclose(got, usual.encode_document([text.replace("\n", " ") for text in TEXTS]), **ANSWERED)
    queries = OpenAILikeEmbedding(
        model_name=NAME, api_base=served.url, api_key="none", additional_kwargs={"extra_body": {"role": "query"}}
    )
    np.testing.assert_allclose(queries.get_query_embedding(TEXTS[0]), usual.encode_query(TEXTS[0]), **ANSWERED)


def test_chroma(served: Served, usual: Embedder, monkeypatch) -> None:
    monkeypatch.setenv("CHROMA_OPENAI_API_KEY", "none")
    function = OpenAIEmbeddingFunction(model_name=NAME, api_base=served.url)
    np.testing.assert_allclose(np.stack(function(TEXTS)), usual.encode_document(TEXTS), **ANSWERED)


def test_curl(served: Served, usual: Embedder, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    # Large enough for curl to ask before it sends: `Expect: 100-continue`.
    body.write_text(json.dumps({"model": NAME, "input": [TEXTS[0], TEXTS[0] + " " * 1_200_000]}))
    command = ["curl", "-sS", "--fail-with-body", f"{served.url}/embeddings", "-H", "Content-Type: application/json"]
    child = subprocess.run([*command, "-d", f"@{body}"], capture_output=True, text=True)
    assert child.returncode != 0 and "characters, more than this server's 1000000" in child.stdout
    body.write_text(json.dumps({"model": NAME, "input": TEXTS[0]}))
    child = subprocess.run([*command, "-d", f"@{body}"], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(
        json.loads(child.stdout)["data"][0]["embedding"], usual.encode_document(TEXTS[0]), **ANSWERED
    )


def test_models_health_and_metrics(served: Served, client: openai.OpenAI, usual: Embedder) -> None:
    assert [model.id for model in client.models.list()] == [NAME, "text-embedding-3-small"]
    one = client.models.retrieve(NAME).model_dump()
    assert (one["object"], one["dimension"], list(one["methods"])) == ("model", 320, list(METHODS))
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    assert served.http.get("/health").json() == {"status": "ok"}
    assert served.service.scheduler._budget == usual.batch_tokens == usual._pipeline.open_runner.batch_tokens
    page = served.http.get("/metrics").text
    for metric in ('eddy_requests_total{path="/v1/models",status="200"}', "eddy_batch_tokens_sum", "eddy_model_info{"):
        assert metric in page
    assert "/v1/embeddings" in served.http.get("/openapi.json").json()["paths"]


async def test_every_answer_is_of_its_own_text_under_concurrency(served: Served) -> None:
    """Requests of all sorts beside each other, some of which are given up: nobody gets a neighbour's vector."""
    pool = [f"Boat number {number} carries {number * 7} dogs. " * (1 + number % 4) for number in range(12)]
    known = {
        (method, role): (embedder.encode_query if role == "query" else embedder.encode_document)(pool)
        for method, embedder in served.embedders.items()
        for role in ("query", "document")
    }
    dice = random.Random(5)
    gone: list[int] = []

    async def ask(client: openai.AsyncOpenAI, number: int) -> None:
        chosen = dice.sample(range(len(pool)), dice.choice([1, 1, 2, 6]))
        (method, role), expected = dice.choice(list(known.items()))
        asking = client.embeddings.create(
            model=NAME, input=[pool[at] for at in chosen], extra_body={"role": role, "method": method}
        )
        if number % 10 == 9:
            try:
                await asyncio.wait_for(asking, dice.uniform(0, 0.05))
            except asyncio.TimeoutError:
                gone.append(number)
            return
        got = np.array([row.embedding for row in (await asking).data])
        np.testing.assert_allclose(got, expected[chosen], **IN_COMPANY)

    async with openai.AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0, timeout=120) as client:
        await asyncio.gather(*(ask(client, number) for number in range(40)))
    assert gone


def test_keys_and_hosts(usual: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("# ours\nfirst-key\n\nsecond-key\n")
    keys = read_keys("third-key, fourth-key", tmp_path / "keys")
    with serving({"plain": usual}, keys=keys, hosts=["127.0.0.1", "eddy.example"]) as served:

        def status(path: str = "/v1/models", **headers: str) -> int:
            return served.http.get(path, headers=headers).status_code

        for key in ("first-key", "second-key", "third-key", "fourth-key"):
            assert status(authorization=f"Bearer {key}") == 200
        for wrong in ("Bearer first-ke", "Bearer first-key2", "Bearer # ours", "Bearer", "Basic first-key", "first"):
            assert status(authorization=wrong) == 401
        assert (status(), status("/metrics"), status("/health")) == (401, 401, 200)
        with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
            openai.OpenAI(base_url=served.url, api_key="wrong").models.list()
        known = {"authorization": "Bearer first-key"}
        assert status(host="eddy.example:80", **known) == status(host="EDDY.example", **known) == 200
        assert status(host="evil.example", **known) == status(host="eddy.example.evil", **known) == 403
    for variable, file in ((" , ", None), (None, tmp_path / "empty")):
        (tmp_path / "empty").write_text("# none\n")
        with pytest.raises(InvalidParameter):
            read_keys(variable, file)
    assert not read_keys(None, None)
    compared: list[bytes] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(one) or one == other)
    assert keys.admit(b"first-key") and len(compared) == 4  # the ones behind it, too
    with pytest.raises(InvalidParameter):
        Keys(["with blank"])


def test_what_is_refused_before_a_model_loads(tmp_path: Path) -> None:
    with pytest.raises(UnknownMethod):
        open_models("nowhere", ["plain", "plian"])
    with pytest.raises(InvalidParameter, match="post-processing"):
        open_models("nowhere", ["plain"], post=tmp_path / "fitted")
    with pytest.raises(InvalidParameter, match="accepts nothing"):
        Limits(inputs=0)


def test_post_processing(tmp_path: Path) -> None:
    fitted = Embedder("eddy-tiny", method="plain:exit=1+whiten")
    fitted.fit([LONG, *TEXTS]).save(tmp_path / "fitted")
    methods = ["plain:exit=1", "plain:exit=1+whiten"]
    plain, whitened = open_models("eddy-tiny", methods, post=tmp_path / "fitted")[0].values()
    assert np.array_equal(whitened.encode_document(TEXTS), fitted.encode_document(TEXTS))
    assert plain.post is None
