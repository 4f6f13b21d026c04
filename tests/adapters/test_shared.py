"""What the adapters have in common: one embedder in a process, and one name for a passage."""

from __future__ import annotations

import uuid

import pytest

from eddy_embed.integrations.document_ids import document_identity, is_random, passage_id
from eddy_embed.integrations.shared_embedders import open_embedder, settings_key, settings_of
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding


def test_two_frameworks_load_one_model():
    one = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2", max_length=61)
    other = EddyEmbeddings(model="eddy-tiny", method="plain:exit=2", max_length=61)
    assert one.embedder is other.embedder
    assert open_embedder("eddy-tiny", {"method": "plain:exit=2", "max_length": 61}) is one.embedder


def test_a_default_that_is_spelt_out_is_the_default():
    short = {"method": "htp:exit=2"}
    assert settings_key("m", {**short, "overflow": "window", "model_kwargs": {}, "post": None}) == settings_key(
        "m", short
    )
    assert settings_key("m", {**short, "normalize": False}) != settings_key("m", short)
    assert settings_key("m", {**short, "model_kwargs": {"a": 1}}) != settings_key("m", short)
    assert settings_key("n", short) != settings_key("m", short)


def test_settings_are_those_of_the_engine_only():
    class Holder:
        method, max_length, overflow, colour = "htp", None, "error", "blue"

    assert settings_of(Holder()) == {"method": "htp", "overflow": "error"}


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


@pytest.mark.parametrize("change", [{"identity": "b"}, {"copy": 1}, {"end": 4}, {"fingerprint": "g"}, {"late": False}])
def test_passage_ids_follow_all_that_decides_a_vector(change):
    usual = {"identity": "a", "text": "Text.", "copy": 0, "start": 0, "end": 5, "fingerprint": "f", "late": True}
    assert passage_id(**usual) != passage_id(**{**usual, **change})
