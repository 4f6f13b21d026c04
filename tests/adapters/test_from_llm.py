"""One set of weights for answers and vectors: the frameworks' own LLM objects go on generating what they did."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from langchain_core.language_models import FakeListLLM
from llama_index.core.llms import MockLLM
from tests.adapters.samples import TEXTS, TINY
from torch.nn import Parameter

from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding

PROMPT = "The ferry to the island leaves"


@pytest.fixture(scope="module")
def llama_llm() -> Any:
    module = importlib.import_module("llama_index.llms.huggingface")
    return module.HuggingFaceLLM(
        model_name=str(TINY),
        tokenizer_name=str(TINY),
        device_map="cpu",
        context_window=512,
        max_new_tokens=12,
        generate_kwargs={"do_sample": False},
        model_kwargs={"dtype": "float32"},
    )


@pytest.fixture(scope="module")
def pipeline(live: tuple[Any, Any]) -> Any:
    """transformers' own pipeline, which is what HuggingFacePipeline holds."""
    from transformers import pipeline

    model, tokenizer = live
    return pipeline("text-generation", model=model, tokenizer=tokenizer, max_new_tokens=12, do_sample=False)


@dataclass
class Wrapped:
    """The two things that matter of langchain_huggingface's class, which needs an older huggingface-hub than ours."""

    pipeline: Any

    def invoke(self, prompt: str) -> str:
        return str(self.pipeline(prompt, return_full_text=False)[0]["generated_text"])


def embeds_with(model, embedder) -> None:
    tensors = [tensor for _, tensor in embedder._pipeline.open_runner.host.tensors()]
    mine = {tensor.data_ptr() for tensor in tensors if isinstance(tensor, Parameter)}
    theirs = {parameter.data_ptr() for parameter in model.parameters()}
    assert mine and mine <= theirs, "a copy of the weights"


def test_llama_index_llm_answers_and_embeds(llama_llm):
    before = llama_llm.complete(PROMPT).text
    embedding = EddyEmbedding.from_llm(llama_llm, method="plain:exit=1", query_instruction="Find it.")
    embeds_with(llama_llm._model, embedding.embedder)
    named = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1", dtype="float32")
    ours, theirs = (each.get_text_embedding_batch(TEXTS) for each in (embedding, named))
    assert np.abs(np.subtract(ours, theirs)).max() <= 1e-5
    assert llama_llm.complete(PROMPT).text == before


def test_langchain_llm_answers_and_embeds(pipeline):
    llm = Wrapped(pipeline)
    before = llm.invoke(PROMPT)
    embeddings = EddyEmbeddings.from_llm(llm, method="plain:exit=1")
    embeds_with(pipeline.model, embeddings.embedder)
    named = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1", dtype="float32")
    assert np.abs(np.subtract(embeddings.embed_documents(TEXTS), named.embed_documents(TEXTS))).max() <= 1e-5
    assert llm.invoke(PROMPT) == before


def test_llms_without_a_loaded_model_are_refused():
    with pytest.raises(InvalidParameter, match=r"MockLLM.*HuggingFaceLLM"):
        EddyEmbedding.from_llm(MockLLM(), method="plain:exit=1")
    with pytest.raises(InvalidParameter, match=r"FakeListLLM.*HuggingFacePipeline"):
        EddyEmbeddings.from_llm(FakeListLLM(responses=["a"]), method="plain:exit=1")
