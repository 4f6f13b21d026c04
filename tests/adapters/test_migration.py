"""What docs/migration.md says of other libraries' parameters; its examples run with those of the other documents."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.callbacks import CallbackManager
from llama_index.core.rate_limiter import TokenBucketRateLimiter
from llama_index.core.storage.kvstore import SimpleKVStore
from tests.adapters.samples import TINY

from chroma_eddy import EddyEmbeddingFunction
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
VALUES: dict[str, Any] = {
    "model_name": "eddy-tiny",
    "max_length": 512,
    "query_instruction": "query:",
    "text_instruction": "passage:",
    "normalize": True,
    "embed_batch_size": 10,
    "cache_folder": None,
    "trust_remote_code": False,
    "device": "cpu",
    "callback_manager": CallbackManager([]),
    "show_progress_bar": True,
    "show_progress": True,
    "num_workers": 2,
    "embeddings_cache": SimpleKVStore(),
    "rate_limiter": TokenBucketRateLimiter(requests_per_minute=60),
    "revision": None,
    "local_files_only": True,
    "model_kwargs": {},
    "encode_kwargs": {"batch_size": 32, "normalize_embeddings": True, "show_progress_bar": False},
    "normalize_embeddings": False,
}


def table(heading: str) -> dict[str, str]:
    """RowBatch of the table whose first column is headed so: parameter and what the page says of it."""
    lines = PAGE.read_text().split(f"\n| {heading} |", 1)[1].splitlines()[2:]
    rows: dict[str, str] = {}
    for line in lines:
        if not (row := re.fullmatch(r"\| (`\w+`(?:, `\w+`)*) \| (.+) \|", line)):
            break
        rows |= dict.fromkeys(re.findall(r"\w+", row[1]), row[2])
    return rows


OURS = [
    ("HuggingFaceEmbedding", EddyEmbedding),
    ("HuggingFaceEmbeddings", EddyEmbeddings),
    ("SentenceTransformerEmbeddingFunction", EddyEmbeddingFunction),
]


def test_every_row_of_a_framework_is_true():
    required = {"model_name": "eddy-tiny", "method": "htp:exit=2"}
    for ours, name, says in ((ours, *row) for heading, ours in OURS for row in table(heading).items()):
        if says.startswith("same"):
            ours(**{**required, name: VALUES[name]})
            continue
        assert says.startswith("not offered: "), name
        with pytest.raises(InvalidParameter) as refused:
            ours(**{**required, name: True})
        said = str(refused.value)
        assert name in said and "did you mean" not in said and "known:" not in said


@pytest.mark.parametrize("heading", ["SentenceTransformer", "TextEmbedding"])
def test_rows_of_libraries_name_what_exists(heading):
    names = {*inspect.signature(Embedder.__init__).parameters, *dir(Embedder)}
    for name, says in table(heading).items():
        assert not says.startswith("same") or name in names
        for word in re.findall(r"`(\w+)=?`", says):
            assert word in names or word in {"HF_TOKEN", "SentenceTransformer", "dot"}, f"{heading}.{name}: {word}"


def test_a_bare_causal_model_gives_the_vectors_of_sentence_transformers():
    package = importlib.import_module("sentence_transformers")
    texts = ["The ferry leaves at noon.", "Dogs travel for free. Cats do not, says the captain, and he is right."]
    theirs = package.SentenceTransformer(str(TINY), device="cpu", model_kwargs={"dtype": "float32"})
    ours = Embedder("eddy-tiny", method="plain:pool=last", query_instruction="query:", dtype="float32")
    assert np.abs(theirs.encode(texts, normalize_embeddings=True) - ours.encode_document(texts)).max() <= 1e-5
    asked = theirs.encode(texts, prompt="query: ", normalize_embeddings=True)
    assert np.abs(asked - ours.encode_query(texts)).max() <= 1e-5
