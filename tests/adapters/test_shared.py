"""What the adapters have in common: one embedder in a process, and one name for a passage."""

from __future__ import annotations

import inspect

from eddy_embed import Embedder
from eddy_embed.integrations.documents import passage_id
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


def test_passage_ids_are_for_good():
    """Rows of existing collections are found by them."""
    assert passage_id("story", "Text. Two.", 1, 0, 5, "f", True) == "c922432c-9cd3-5f33-b6f5-4b6ba9bf024b"


def test_passage_ids_follow_all_that_decides_a_vector():
    usual = {"identity": "a", "text": "Text.", "copy": 0, "start": 0, "end": 5, "fingerprint": "f", "late": True}
    changes = {"identity": "b", "text": "Other.", "copy": 1, "end": 4, "fingerprint": "g", "late": False}
    ids = {passage_id(**usual), *(passage_id(**{**usual, name: value}) for name, value in changes.items())}
    assert len(ids) == 1 + len(changes)
