"""Methods with post-processing in the frameworks: fitted, saved beside an index, reopened; and what a mismatch says."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from llama_index.core import Document as LlamaDocument

from eddy_embed import Embedder
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.vector_stores.eddy import EddyChromaVectorStore

TEXTS = [
    "The ferry to the island leaves at nine. It is red, and it is slow.",
    "Bread rises because yeast turns sugar into gas. Bakers wait for it.",
    "Granite cools slowly, deep under the ground. Lava cools fast.",
]
METHOD = "plain:exit=0+whiten:dims=4"
ASKED = "When does the ferry leave?"
CLASSES = pytest.mark.parametrize("kind", [EddyEmbedding, EddyEmbeddings])


def made(kind: Any, **settings: Any) -> Any:
    return kind(**{"model_name": "eddy-tiny", "method": METHOD, "check": False, **settings})


def vector(embedding: Any) -> np.ndarray:
    """Of the question."""
    ask = embedding.embed_query if isinstance(embedding, EddyEmbeddings) else embedding.get_query_embedding
    return np.asarray(ask(ASKED))


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    embedder = Embedder("eddy-tiny", method=METHOD, check=False)
    embedder.fit(TEXTS)
    return embedder.encode_query(ASKED)


@CLASSES
def test_fitted_saved_and_reopened(kind, tmp_path, expected):
    own, other = made(kind), made(kind)
    calibrated = vector(own)
    assert np.abs(calibrated - expected).max() > 1e-3, "on general text, until it is fitted"
    own.save(tmp_path / "general")
    assert np.allclose(vector(kind.load(tmp_path / "general")), calibrated, atol=1e-5)
    documents = [Document(text) if kind is EddyEmbeddings else LlamaDocument(text=text) for text in TEXTS]
    assert own.fit(documents) is own
    assert np.allclose(vector(own), expected, atol=1e-5)
    assert np.allclose(vector(other), calibrated, atol=1e-5), "each has its own"
    with pytest.raises(EddyError, match=r"save\(folder\)"):
        pickle.dumps(own)
    own.save(tmp_path / "new")
    again = kind.load(tmp_path / "new", device="cpu")
    assert again.fingerprint == own.fingerprint and np.allclose(vector(again), expected, atol=1e-5)
    assert np.allclose(vector(pickle.loads(pickle.dumps(own))), expected, atol=1e-5)
    with pytest.raises(
        FingerprintMismatch, match=rf"\A.*: made with `{re.escape(METHOD)}`, opened with `htp:exit=2`\.\n"
    ):
        kind.load(tmp_path / "new", method="htp:exit=2", fitted=None)
    saved = json.loads((tmp_path / "new" / "eddy_embedder.json").read_text())
    assert not {"device", "check", "trust_remote_code"} & set(saved)


def test_what_cannot_be_fitted_saved_or_loaded_is_refused(tmp_path):
    kind = EddyEmbeddings
    with pytest.raises(InvalidParameter, match="no post-processing"):
        made(kind, method="plain:exit=2").fit(TEXTS)
    wrapped = kind.from_embedder(Embedder("eddy-tiny", method=METHOD, check=False))
    with pytest.raises(InvalidParameter, match="where it was made"):
        wrapped.fit(TEXTS)
    with pytest.raises(EddyError, match="live model"):
        wrapped.save(tmp_path)
    with pytest.raises(InvalidParameter, match=r"eddy_embedder\.json holds no embedder"):
        kind.load(tmp_path)


def test_an_index_keeps_the_fit_of_the_embeddings_that_made_it(tmp_path):
    file, folder = tmp_path / "library.npz", str(tmp_path / "db")
    makers = (
        lambda **more: EddyChroma("langchain", made(EddyEmbeddings, **more), persist_directory=folder),
        lambda **more: EddyChromaVectorStore("langchain", made(EddyEmbedding, **more), persist_dir=folder),
        lambda **more: EddyChroma("langchain", made(EddyEmbeddings, **more)),
    )
    engine = Embedder("eddy-tiny", method=METHOD, check=False)
    engine.fit(TEXTS).save(file)
    for make in makers:
        assert make(fitted=str(file)).index.embedder.fingerprint == engine.fingerprint
    store = EddyChroma.from_texts(TEXTS, made(EddyEmbeddings, fitted=str(file)), persist_directory=folder)
    found = store.similarity_search_with_score(ASKED, k=3)
    file.unlink()
    opened, theirs = makers[0](), makers[1]()
    assert opened.similarity_search_with_score(ASKED, k=3) == found
    for model in (opened.embeddings, theirs.embed_model, pickle.loads(pickle.dumps(theirs)).embed_model):
        assert model.fingerprint == engine.fingerprint
        assert np.allclose(vector(model), engine.encode_query(ASKED), atol=1e-5)
    assert makers[2]().index.embedder.fingerprint != engine.fingerprint, "nothing is kept in memory"


def test_a_saved_folder_decides_nothing_of_the_process(tmp_path: Path) -> None:
    """A stranger's folder must not make foreign code run."""
    EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=0").save(tmp_path)
    (file,) = tmp_path.glob("*.json")
    saved = json.loads(file.read_text())
    for name, value in (("trust_remote_code", True), ("model_kwargs", {"trust_remote_code": True}), ("system", "rm")):
        file.write_text(json.dumps({**saved, name: value}))
        named = "trust_remote_code" if name == "model_kwargs" else name
        with pytest.raises(InvalidParameter, match=f"names {named}, which save does not write"):
            EddyEmbeddings.load(tmp_path)
    file.write_text("[]")
    with pytest.raises(InvalidParameter, match="holds no embedder"):
        EddyEmbeddings.load(tmp_path)
