"""EddyEmbeddings as LangChain uses it, and under LangChain's own suites."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from langchain_eddy import EddyEmbeddings


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model": "eddy-tiny", "method": "plain:exit=1"}


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model_name": "eddy-tiny", "method": "plain:exit=2", "query_instruction": "Find the answer."}
