"""One model that reads and writes, and pictures of what it does, against its own numbers and plain numpy."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from tests.demo.site import PATIENCE, Site, long_text, serving, wait
from transformers import AutoModelForCausalLM, AutoTokenizer

from chroma_eddy import open_index
from eddy_demo import handbook
from eddy_demo.web.answers import generation
from eddy_demo.web.http.concurrency import WorkerPool
from eddy_demo.web.limits import Limits
from eddy_embed import Embedder
from eddy_embed.model.loading.names import BUNDLED

QUESTION = "What happens to a document that is longer than the model's window?"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The model of this library also writes."""
    with serving(
        tmp_path_factory.mktemp("web") / "library", Limits(comparison_characters=8_000), generate=True
    ) as site:
        for name in ("long-documents.md", "layers.md"):
            site.upload(name, (handbook.folder() / name).read_bytes())
        site.upload("long.txt", long_text(120).encode())
        assert {job["state"] for job in site.settled()} == {"done"}
        yield site


def test_the_same_weights_read_and_write(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One set of tensors; vectors as those of an embedder that loads its own; text as the model alone writes it."""
    monkeypatch.setattr(generation, "MAX_NEW_TOKENS", 40)
    reader = site.state.reader
    model = reader.generator.model
    own = {parameter.data_ptr() for parameter in model.parameters()}
    weights = [
        tensor
        for name, tensor in reader.unfitted_embedder._pipeline.open_runner.host.tensors()
        if name.endswith("weight")
    ]
    assert len(weights) > 5
    assert {tensor.data_ptr() for tensor in weights} <= own
    separate = Embedder("eddy-tiny", method=reader.settings.method)
    assert separate.fingerprint == reader.unfitted_embedder.fingerprint
    np.testing.assert_allclose(
        reader.unfitted_embedder.encode_query(QUESTION), separate.encode_query(QUESTION), atol=1e-6
    )
    page = site.client.get("/").text
    saved, whole = separate.explain("a").bytes, sum(p.numel() * p.element_size() for p in model.parameters())
    assert f"{whole / 1e6:.1f} MB of weights read and write" in page
    assert f"would take {saved / 1e6:.1f} MB more" in page

    events = site.ask(QUESTION)
    names = [name for name, _ in events]
    assert names.index("writing") > max(at for at, name in enumerate(names) if name == "hit")
    assert names[-2:] == ["written", "done"]
    given = dict(events)["answer"]["sentences"]
    alone = AutoModelForCausalLM.from_pretrained(BUNDLED["eddy-tiny"], dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"])
    ids = torch.tensor([reader.generator.prompt(QUESTION, given)])
    asked = tokenizer.decode(ids[0], skip_special_tokens=True)
    assert asked.endswith(f"Question: {QUESTION}\nAnswer:")
    assert all(each["text"] in asked for each in given)
    out = alone.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
    text = "".join(reader.generator._pieces(QUESTION, given))
    assert text == tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True) != ""


def test_who_leaves_stops_the_model(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not end by itself for a long time, and goes on only when its reader has left."""
    monkeypatch.setattr(generation, "MAX_NEW_TOKENS", 1_500)
    model = site.state.reader.generator.model
    monkeypatch.setattr(model.generation_config, "eos_token_id", None)
    left, passes = threading.Event(), list[bool]()

    def held(*_: Any) -> None:
        passes.append(left.is_set())
        assert len(passes) < 20 or left.wait(PATIENCE)

    hook = model.register_forward_hook(held)
    try:
        with site.client.stream("GET", "/api/ask", params={"q": QUESTION}) as response:
            assert any(line == "event: text" for line in response.iter_lines())
        left.set()
        wait(lambda: site.state.generation_lock.is_free)
    finally:
        hook.remove()
    assert 0 < len(passes) < 1_000


def test_who_waits_for_the_model_holds_no_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody gets what was found at once; only the text waits for its turn."""
    go, begun = threading.Event(), list[int]()

    def pieces(*_: Any) -> Iterator[str]:
        begun.append(1)
        assert go.wait(PATIENCE)
        yield "At noon."

    monkeypatch.setattr(site.state.reader.generator, "_pieces", pieces)
    asked = [site.client.stream("GET", "/api/ask", params={"q": f"{QUESTION} {n}"}) for n in range(8)]
    with ExitStack() as stack:
        lines = [stack.enter_context(each).iter_lines() for each in asked]
        for each in lines:
            assert next(line for line in each if line == "event: hit")
        wait(lambda: begun and site.state.generation_lock.waiting == 7)
        assert site.state.workers.active == 0
        assert site.client.get("/why").status_code == 200
        with site.client.stream("GET", "/api/ask", params={"q": f"{QUESTION} 8"}) as leaves:
            kept = leaves.iter_lines()  # which closes the connection when it is dropped
            assert next(line for line in kept if line == "event: hit")
            wait(lambda: site.state.generation_lock.waiting == 8)
        wait(lambda: site.state.generation_lock.waiting == 7)
        go.set()
        for each in lines:
            assert [line for line in each if line == "event: done"]
    assert len(begun) == 8


def test_what_runs_the_model_is_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    key = site.documents()[0]["id"]
    monkeypatch.setattr(site.state, "workers", WorkerPool(1, 0))
    for path in ("/why", f"/documents/{key}?q=ferry", "/api/ask?q=ferry"):
        answer = site.client.get(path)
        assert (answer.status_code, "too many questions" in answer.text.lower()) == (503, True)


def test_one_comparison_at_a_time(site: Site) -> None:
    """Another one is told so at once; what needs no comparison is shown."""
    methods = site.state.explorer
    with methods._comparing:
        page = site.client.get("/why", params={"q": "a", "document": site.documents()[0]["id"]}).text
    assert "Another comparison is under way" in page
    assert '<g class="token ' in page


def test_the_library_s_own_method_needs_no_other_weights(site: Site) -> None:
    """The page begins with it; a method that differs in post-processing alone shares them too."""
    reader = site.state.reader
    assert f'name="method" value="{reader.method}"' in site.client.get("/why").text
    own = site.state.explorer.get(reader, reader.method)
    assert own._pipeline.open_runner is reader.unfitted_embedder._pipeline.open_runner


def test_a_prompt_fits_the_window(site: Site) -> None:
    generator = site.state.reader.generator
    many = [{"n": n, "text": "The long river was quiet in the early morning. " * 30} for n in range(1, 21)]
    ids = generator.prompt(QUESTION, many)
    assert len(ids) + generation.MAX_NEW_TOKENS <= generator.model.config.max_position_embeddings
    assert "river was quiet" in generator.tokenizer.decode(ids)


def test_tokens_and_copies(site: Site) -> None:
    """A box for each token, an arc for each copy."""
    text = "The ferry leaves at noon. Dogs travel for free."
    page = site.client.get("/why", params={"text": text, "method": "htp:exit=2"}).text
    explanation = Embedder("eddy-tiny", method="htp:exit=2").explain(text)
    arcs = re.findall(r'<path class="arc".*?<title>(\d+) → (\d+)</title>', page)
    expected = [(token.source, at) for at, token in enumerate(explanation.tokens) if token.source is not None]
    assert [tuple(map(int, arc)) for arc in arcs] == expected != []
    assert len(re.findall(r'<g class="token ', page)) == len(explanation.tokens)
    assert page.count('class="token held"') == sum(token.role.name in ("PST", "BPST") for token in explanation.tokens)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"method": "nonsense"}, "nonsense"),
        ({"text": " "}, "blank"),
        ({"text": "x" * 601}, "Show a text of at most 600 characters"),
        ({"method": "plain+whiten"}, "learns from a whole library"),
        ({"q": "a", "document": "0" * 16}, "The document is not in the library any more"),
    ],
)
def test_what_cannot_be_shown(site: Site, query: dict[str, str], told: str) -> None:
    answer = site.client.get("/why", params=query)
    assert answer.status_code == 200
    assert told in answer.text


def test_two_methods_side_by_side(site: Site) -> None:
    """Both orders, as each method's own embedder gives them."""
    keys = {row["name"]: row["id"] for row in site.documents()}
    document = keys["layers.md"]
    asked = {"q": QUESTION, "document": document, "other": "plain"}
    page = site.client.get("/why", params=asked).text
    shown = [float(value) for value in re.findall(r"cosine (-?\d\.\d{4}) ·", page)]
    text = (handbook.folder() / "layers.md").read_text(encoding="utf-8")
    expected = []
    for method in (site.state.reader.settings.method, "plain"):
        embedder = Embedder("eddy-tiny", method=method)
        query = embedder.encode_query(QUESTION)
        passages = embedder.encode_long(text, passage_size=site.state.reader.settings.passage_size).passages
        expected += sorted((float(passage.vector @ query) for passage in passages), reverse=True)[:6]
    assert shown == pytest.approx(expected, abs=2e-4)
    refused = site.client.get("/why", params=asked | {"document": keys["long.txt"]}).text
    assert "at most 8,000 are embedded anew" in refused


def test_what_the_page_invites_to_compare_is_compared(site: Site) -> None:
    """It named post-processing, which one document cannot fit, and then refused it."""
    invitation = next(part for part in site.client.get("/why").text.split("<p") if 'href="#two"' in part)
    invited = invitation.split('href="#two"')[0]
    assert "post-processing" not in invited
    names = re.findall(r"<code>(.*?)</code>", invited)
    assert names == ["tempscale"]
    for name in names:
        assert site.state.explorer.get(site.state.reader, f"htp+{name}")


def test_lengths(site: Site) -> None:
    """Mean cosines of pairs, by plain loops over all that is stored."""
    from eddy_demo.web.answers.explain import analyse_lengths

    found = analyse_lengths(site.state.reader.index)
    assert found is not None
    with open_index(site.folder / "chroma", "library") as index:
        rows = [index.store.get(part, metadatas=True, embeddings=True) for part in ("-sentences", "", "-documents")]
    sized = [
        (row.get("eddy_n_tokens", row.get("eddy_tokens")), vector / np.linalg.norm(vector))
        for part in rows
        for row, vector in zip(part.metadatas, part.vectors.astype(np.float64), strict=True)
    ]
    assert len(found.points) == len(sized)
    for middle, mean, count in found.bins:
        least = round(middle / 2**0.5)
        own = [vector for size, vector in sized if least <= size < 2 * least]
        assert len(own) == count
        pairs = [float(a @ b) for at, a in enumerate(own) for b in own[:at]]
        assert mean == pytest.approx(np.mean(pairs), abs=1e-5)
    assert site.client.get("/why").text.count("<circle") >= len(sized)
