"""What the adapters have in common: one embedder in a process, and one name for a passage."""

from __future__ import annotations

import inspect
import uuid
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from eddy_embed import Embedder, methods
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import document_identity, is_random, isolate_failures, passage_id
from eddy_embed.integrations.settings import EmbedderSettings
from eddy_embed.integrations.shared import open_embedder
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding


def test_two_frameworks_load_one_model():
    one = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2", max_length=61)
    other = EddyEmbeddings(model="eddy-tiny", method="plain:exit=2", max_length=61)
    assert one.embedder is other.embedder
    settings = EmbedderSettings(model_name="eddy-tiny", method="plain:exit=2", max_length=61)
    assert open_embedder(settings) is one.embedder


def test_settings_are_the_parameters_of_the_embedder():
    parameters = dict(inspect.signature(Embedder.__init__).parameters)
    for name in ("self", "tokenizer", "model"):
        del parameters[name]
    fields = {name: field for name, field in EmbedderSettings.model_fields.items() if name != "model_name"}
    assert list(fields) == list(parameters)
    for name, field in fields.items():
        assert field.default == (parameters[name].default if name != "model_kwargs" else {}), name
        assert field.description, name


def test_a_default_that_is_spelt_out_is_the_default():
    def key(model_name="m", method="htp:exit=2", **more):
        return EmbedderSettings(model_name=model_name, method=method, **more).key()

    assert key(overflow="window", model_kwargs={}, fitted=None, check=False) == key()
    assert len({key(), key("n"), key(normalize=False), key(model_kwargs={"a": 1}), key(max_length=9)}) == 5


def test_settings_are_plain_values_and_stay_as_they_are():
    settings = EmbedderSettings(model_name=Path("m"), method=methods.htp(exit=2), dtype=torch.float32, device="cpu")
    assert settings.stored() == {
        **{"model_name": "m", "method": "htp:exit=2", "overflow": "window", "normalize": True, "dtype": "float32"},
        **{"language": "en", "local_files_only": False, "model_kwargs": {}},
    }
    with pytest.raises(ValidationError, match="frozen"):
        settings.method = "plain"
    for wrong in ({"metod": "htp"}, {"max_length": 0}, {"overflow": "cut"}):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            EmbedderSettings(model_name="m", **wrong)


def test_one_failing_item_has_its_error_and_the_others_their_results():
    calls = []

    def run(numbers):
        calls.append(numbers)
        return [1 / number for number in numbers]

    *before, error, after = isolate_failures(run, [1, 2, 0, 4], ZeroDivisionError)
    assert before == [1, 0.5] and isinstance(error, ZeroDivisionError) and after == 0.25
    assert calls == [[1, 2, 0, 4], [1, 2], [0, 4], [0], [4]]
    assert isolate_failures(run, []) == []
    with pytest.raises(ZeroDivisionError):
        isolate_failures(run, [1, 0], KeyError)


@pytest.mark.parametrize(
    ("document_id", "metadata", "identity"),
    [
        ("report", {"source": "a.txt"}, "report"),
        (None, {"source": "a.txt", "file_path": "/a.txt"}, "/a.txt"),
        ("", {"url": "https://example.org"}, "https://example.org"),
        (None, {}, ""),
    ],
)
def test_documents_have_names(document_id, metadata, identity):
    assert document_identity(document_id, metadata) == identity


def test_random_ids_are_told_from_given_ones():
    assert is_random(str(uuid.uuid4()))
    assert not is_random(str(uuid.uuid5(uuid.NAMESPACE_URL, "x"))) and not is_random("report")


def test_passage_ids_are_for_good():
    """Rows of existing collections are found by them."""
    assert passage_id("story", "Text. Two.", 1, 0, 5, "f", True) == "c922432c-9cd3-5f33-b6f5-4b6ba9bf024b"


CHANGES = {"identity": "b", "text": "Other.", "copy": 1, "end": 4, "fingerprint": "g", "late": False}


@pytest.mark.parametrize("name", CHANGES)
def test_passage_ids_follow_all_that_decides_a_vector(name):
    usual = {"identity": "a", "text": "Text.", "copy": 0, "start": 0, "end": 5, "fingerprint": "f", "late": True}
    assert passage_id(**usual) != passage_id(**{**usual, name: CHANGES[name]})
