"""Passages of long documents for LangChain's stores: vectors of the whole, exact places, ids that last."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_core.documents import Document
from llama_index.core import Document as Node
from tests.adapters.samples import REPEATS, STORY

from eddy_embed.errors import InvalidText
from langchain_eddy import EddyEmbeddings, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1")


def documents() -> list[Document]:
    return [
        Document(STORY, id="story", metadata={"title": "The ferry"}),
        Document(REPEATS, metadata={"source": "repeats.txt"}),
    ]


def test_passages_have_exact_places_and_the_engine_s_vectors(embeddings):
    passages = list(embed_passages(documents(), embeddings, passage_size=24))
    expected = [p for d in embeddings.embedder.encode_long([STORY, REPEATS], passage_size=24) for p in d.passages]
    assert len(passages) == len(expected) > 10
    for passage, span in zip(passages, expected, strict=True):
        metadata = passage.document.metadata
        text = STORY if metadata["eddy_document"] == "story" else REPEATS
        assert text[metadata["start_index"] : metadata["end_index"]] == passage.document.page_content
        assert np.abs(np.array(passage.vector) - span.vector).max() <= 1e-5
        assert metadata["eddy_n_tokens"] == span.n_tokens and metadata["eddy_fingerprint"] == embeddings.fingerprint
        assert metadata["eddy_n_windows"] == 1 and metadata["eddy_n_truncated"] == 0
    assert passages[0].document.metadata["title"] == "The ferry"
    assert passages[-1].document.metadata["source"] == "repeats.txt"


def test_ids_spans_and_vectors_are_those_of_llama_index(embeddings):
    model = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1")
    nodes = LongDocumentNodeParser(embed_model=model, passage_size=24).get_nodes_from_documents(
        [Node(text=STORY, id_="story"), Node(text=REPEATS, metadata={"source": "repeats.txt"}), Node(text=STORY)]
    )
    passages = list(embed_passages([*documents(), Document(STORY)], embeddings, passage_size=24))
    assert [node.node_id for node in nodes] == [passage.document.id for passage in passages]
    assert [(node.start_char_idx, node.end_char_idx) for node in nodes] == [
        (passage.document.metadata["start_index"], passage.document.metadata["end_index"]) for passage in passages
    ]
    apart = np.subtract([node.embedding for node in nodes], [passage.vector for passage in passages])
    assert np.abs(apart).max() <= 1e-5


def test_documents_without_text_are_named_and_bad_ones_refused(embeddings):
    with pytest.warns(UserWarning, match=r"2 of 4 documents.*'empty', number 3"):
        found = list(embed_passages([Document("", id="empty"), *documents(), Document(" \n")], embeddings))
    assert {passage.document.metadata["eddy_document"] for passage in found} == {"story", "repeats.txt"}
    with pytest.raises(InvalidText, match=r"number 0.*character 1"):
        list(embed_passages([Document("a\ud800")], embeddings))


@pytest.mark.parametrize("overflow", ["window", "truncate"])
def test_windows_and_what_is_cut_are_told(overflow):
    small = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", max_length=64, overflow=overflow)
    metadata = next(embed_passages(documents(), small, passage_size=24)).document.metadata
    assert (metadata["eddy_n_windows"] > 1) == (overflow == "window")
    assert (metadata["eddy_n_truncated"] > 0) == (overflow == "truncate")
