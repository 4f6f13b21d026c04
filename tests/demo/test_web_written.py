"""What the model writes: who writes, and which of its sentences are shown."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.demo.site import PATIENCE, Site, wait
from transformers import AutoModel, AutoModelForCausalLM

from eddy_demo.library.library import lock_library, next_settings, rebuild_library
from eddy_demo.library.settings import Choices
from eddy_demo.web.answers import write
from eddy_demo.web.answers.write import CannotGenerate, Evidence, Generator
from eddy_demo.web.http import BoundedWork, ChangeSignal
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from eddy_embed.model.loading.names import BUNDLED

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
POOLING = {"word_embedding_dimension": 320, "pooling_mode_mean_tokens": True}
QUESTION = "When does the ferry to the northern island leave?"
SENTENCES = [
    {"n": 1, "text": "The ferry leaves the harbour at noon, except on Sundays.", "link": "/documents/a#s-a-0-9"},
    {"n": 2, "text": "Dogs travel for free if they sit on the upper deck.", "link": "/documents/b#s-b-0-9"},
]


# Each: what the model writes, the quotes of the sentences shown, how many are left out.
WRITTEN = [
    ("The ferry leaves at noon.", [1], 0),
    ("At noon the ferry leaves the harbour [2].", [1], 0),  # the model's own citation is wrong
    ("Dogs travel for free. The ferry leaves at noon [1, 2].", [2, 1], 0),
    ("The captain sells tickets on board.", [], 1),
    ("The ferry leaves.", [], 1),  # the question says so much
    ("The ferry leaves at noon. The captain never sleeps. Dogs travel for free.", [1, 2], 1),
    ("The ferry leaves at noon. Dogs travel for free. The ferry leaves at noon. Dogs pay.", [1, 2], 0),
    (f"{SENTENCES[0]['text']} [1] So.".upper(), [], 2),  # which repeats a quote
    ("Dogs travel for free " + "and sit on the upper deck of the ferry " * 9, [], 0),
    ("Dogs travel for free:", [], 1),  # announces what it does not say
    ("", [], 0),
    (" [1]", [], 0),
]


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator.load("eddy-tiny", "cpu")


def test_what_no_sentence_supports_is_left_out(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every written sentence has a citation that was checked, and a text that goes round in circles ends."""
    for written, shown, left_out in WRITTEN:
        pieces = re.split(r"(?<=[ei])", written)
        monkeypatch.setattr(generator, "_pieces", lambda *_, pieces=pieces: (piece for piece in pieces))
        events = list(generator.write("When does the ferry leave?", SENTENCES))
        assert events[0][0] == "writing", written
        assert events[-1] == ("written", {"left_out": left_out}), written
        assert [data for name, data in events if name == "cite"] == [SENTENCES[n - 1] for n in shown], written
        texts = [data["text"] for name, data in events if name == "text" and data["text"]]
        assert len(texts) == len(shown) and all("[" not in text for text in texts), written


def test_a_sentence_that_says_otherwise_has_no_support() -> None:
    evidence = Evidence("Who pays?", [{"n": 1, "text": "Dogs travel for free, but only on the upper deck."}])
    assert evidence.supporting("Dogs travel for free on the upper deck.") == 1
    for written in (
        "Dogs do not travel for free on the upper deck.",  # the sentence denies nothing
        "The upper deck travels for free on dogs.",  # its words in another order
        "12 dogs travel for free on the upper deck.",  # a number of the model's own
        "…",
    ):
        assert evidence.supporting(written) is None, written
    evidence = Evidence("How fast?", [{"n": 1, "text": "The Mach number was 3.5 at the exit of the long nozzle."}])
    for number, supported in (("3.5", True), ("5.3", False), ("-3.5", False), ("35", False)):
        assert (evidence.supporting(f"The Mach number was {number} at the long nozzle.") == 1) is supported, number


def test_every_quote_is_looked_at() -> None:
    """The second supports what the first denies, and what repeats the second is no news because the first is longer."""
    denied = [{"n": 1, "text": "Dogs do not travel for free below."}, {"n": 2, "text": "Dogs travel for free above."}]
    assert Evidence("Who pays?", denied).supporting("Dogs travel for free.") == 2
    longer = [{"n": 1, "text": "Dogs travel for free if they sit above."}, {"n": 2, "text": "Dogs travel for free."}]
    assert Evidence("Who pays?", longer).repeats("Dogs travel for free!")


def instructed(folder: Path, **files: str) -> str:
    """The bundled model with a chat template, as if it had been trained to follow instructions."""
    shutil.copytree(BUNDLED["eddy-tiny"], folder)
    (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}\n")
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
    return str(folder)


def test_a_model_that_follows_instructions_writes_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is large enough to write well; any writes if it is asked to."""
    model = instructed(tmp_path / "instructed")
    assert Generator.choose(model, "cpu", None) is None
    assert Generator.choose("eddy-tiny", "cpu", asked=True) is not None
    monkeypatch.setattr(write, "LEAST_PARAMETERS", 0)
    assert Generator.choose("eddy-tiny", "cpu", None) is None
    assert Generator.choose(model, "cpu", asked=False) is None
    generator = Generator.choose(model, "cpu", None)
    assert generator is not None and generator.follows_instructions
    embedding_model = instructed(tmp_path / "embedding", modules=json.dumps(MODULES))
    (tmp_path / "embedding" / "1_Pooling").mkdir()
    (tmp_path / "embedding" / "1_Pooling" / "config.json").write_text(json.dumps(POOLING))
    assert Generator.choose(embedding_model, "cpu", None) is None


def test_a_model_that_cannot_write_still_quotes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked it to: what it lacks is logged, and is an error only where somebody asks."""
    monkeypatch.setattr(write, "LEAST_PARAMETERS", 0)
    folder = Path(instructed(tmp_path / "headless"))
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    assert Generator.choose(str(folder), "cpu", None) is None
    assert "the page only quotes" in caplog.text and "such as lm_head.weight" in caplog.text
    with pytest.raises(CannotGenerate, match=r"cannot write answers: .*such as lm_head.weight.*--no-generate"):
        Generator.choose(str(folder), "cpu", asked=True)
    with pytest.raises(InvalidParameter, match="cuda"):
        Generator.choose("eddy-tiny", "cuda:99", asked=True)


def test_who_writes_follows_the_library(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library made anew with another model is answered by that one's generator, and by none if it has none."""
    monkeypatch.setattr(write, "LEAST_PARAMETERS", 0)
    reader = LibraryReader(LibraryOptions(library), ChangeSignal())
    reader.load()
    for model, writes in ((instructed(tmp_path / "instructed"), True), ("eddy-tiny", False)):
        assert (reader.generator is None) is writes
        settings = next_settings(reader.settings, Choices(model, "plain:exit=0"))
        with lock_library(library):
            rebuild_library(library, settings, reader.begin_rebuild(settings))
        reader.open()
        reader.end_rebuild()
        assert reader.settings.model == model and (reader.generator is not None) is writes
        if writes:
            assert_shared(reader)


@pytest.fixture
def writer(site: Site, generator: Generator, monkeypatch: pytest.MonkeyPatch) -> Generator:
    """Lets the bundled model write the answers of the server."""
    monkeypatch.setattr(site.state.reader, "generator", generator)
    models = generator, site.state.reader.embedder
    monkeypatch.setattr(site.state.reader, "_models", lambda _: models)  # also when it opens the library again
    return generator


def assert_shared(reader: LibraryReader) -> None:
    """The embedder's weights are the generator's."""
    assert reader.generator is not None
    own = {id(parameter) for parameter in reader.generator.model.parameters()}
    host = reader.embedder._pipeline.open_runner.host
    weights = {id(tensor) for name, tensor in host.tensors() if name.endswith("weight")}
    assert len(weights) > 5 and weights <= own


def test_the_same_weights_read_and_write(library: Path) -> None:
    """One set of tensors, and vectors as those of an embedder that loads its own."""
    reader = LibraryReader(LibraryOptions(library, generate=True), ChangeSignal())
    reader.load()
    assert_shared(reader)
    separate = Embedder("eddy-tiny", method=reader.settings.method)
    assert separate.fingerprint == reader.embedder.fingerprint
    np.testing.assert_allclose(reader.embedder.encode_query(QUESTION), separate.encode_query(QUESTION), atol=1e-6)
    assert reader.summary(reader.entries())["writes"]


def test_text_is_as_the_model_alone_writes_it(site: Site, writer: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the quotes, and comes after what was found."""
    monkeypatch.setattr(write, "MAX_NEW_TOKENS", 10)
    events = site.ask(QUESTION)  # which waits until the library is open
    assert "What the model writes stands below" in site.client.get("/").text
    names = [name for name, _ in events]
    assert names.index("writing") > max(at for at, name in enumerate(names) if name == "hit")
    assert names[-2:] == ["written", "done"]
    quotes = dict(events)["answer"]["sentences"]
    alone = AutoModelForCausalLM.from_pretrained(BUNDLED["eddy-tiny"], dtype=torch.float32)
    ids = torch.tensor([writer.prompt(QUESTION, quotes)])
    asked = writer.tokenizer.decode(ids[0], skip_special_tokens=True)
    assert asked.endswith(f"Question: {QUESTION}\nAnswer:")
    assert quotes and all(quote["text"] in asked for quote in quotes)
    out = alone.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)
    text = "".join(writer._pieces(QUESTION, quotes))
    assert text == writer.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True) != ""


def test_who_waits_for_the_model_holds_no_thread(
    site: Site, writer: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody gets what was found at once; only the text waits for its turn."""
    go, begun = threading.Event(), list[int]()

    def waiting() -> int:
        return int(site.state.answers.running.statistics().tasks_waiting)

    def pieces(*_: Any) -> Iterator[str]:
        begun.append(1)
        assert go.wait(PATIENCE)
        yield "At noon."

    monkeypatch.setattr(writer, "_pieces", pieces)
    asked = [site.client.stream("GET", "/api/ask", params={"q": f"{QUESTION} {n}"}) for n in range(8)]
    with ExitStack() as stack:
        lines = [stack.enter_context(each).iter_lines() for each in asked]
        for each in lines:
            assert next(line for line in each if line == "event: hit")
        wait(lambda: begun and waiting() == 7)
        assert not site.state.searches.running.borrowed_tokens
        assert site.client.get(f"/documents/{site.documents()[0]['id']}?q=ferry").status_code == 200
        with site.client.stream("GET", "/api/ask", params={"q": f"{QUESTION} 8"}) as leaves:
            kept = leaves.iter_lines()  # which closes the connection when it is dropped
            assert next(line for line in kept if line == "event: hit")
            wait(lambda: waiting() == 8)
        wait(lambda: waiting() == 7)
        go.set()
        for each in lines:
            assert [line for line in each if line == "event: done"]
    assert len(begun) == 8


def test_what_runs_the_model_is_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    key = site.documents()[0]["id"]
    monkeypatch.setattr(site.state, "searches", BoundedWork(1, 0, "questions"))
    for path in (f"/documents/{key}?q=ferry", "/api/ask?q=ferry"):
        answer = site.client.get(path)
        assert (answer.status_code, "too many questions" in answer.text.lower()) == (503, True)


def test_a_prompt_fits_the_window(generator: Generator) -> None:
    many = [{"n": n, "text": "The long river was quiet in the early morning. " * 30} for n in range(1, 21)]
    ids = generator.prompt("Who rests?", many)
    assert len(ids) + write.MAX_NEW_TOKENS <= generator.model.config.max_position_embeddings
    assert "river was quiet" in generator.tokenizer.decode(ids)
