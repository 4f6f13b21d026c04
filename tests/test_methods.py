"""Every method on every family equals its naive reference, alone and in mixed batches, in float64 and float32."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from eddy_embed import Embedder, Segmenter
from eddy_embed.progress import Progress

from tests import families
from tests.reference import methods as reference
from tests.reference.double import AllDouble, double

METHODS = {
    "plain": ("plain", {}),
    "plain:pool=last": ("plain", {"pool": "last"}),
    "plain:pool=weighted,exit=-2": ("plain", {"pool": "weighted", "exit": -2}),
    "plain:pool=hybrid,exit=3": ("plain", {"pool": "hybrid", "exit": 3}),
    "plain:exit=0": ("plain", {"exit": 0}),
    "prompteol": ("prompteol", {}),
    "prompteol:exit=-3": ("prompteol", {"exit": -3}),
    "tp": ("tp", {}),
    "tp:range=1-4,placeholders=2": ("tp", {"range": (1, 4), "placeholders": 2}),
    "tp:prompt=prompteol,range=2-5,exit=-1": ("tp", {"prompt": "prompteol", "range": (2, 5), "exit": -1}),
    "htp": ("htp", {}),
    "htp:range=1-4,exit=-1": ("htp", {"range": (1, 4), "exit": -1}),
    "htp:k=2,range=1-5,exit=4,pool=all": ("htp", {"k": 2, "range": (1, 5), "exit": 4, "pool": "all"}),
    "htp:range=1-3,local_only=true": ("htp", {"range": (1, 3), "local_only": True}),
    "htp:range=1-3,global_only=true": ("htp", {"range": (1, 3), "global_only": True}),
}
TEXTS = [
    "The river rose at night. By morning the bridge was gone! Who would carry the letters now?",
    "Salt.",
    "An eddy is a current that runs back: water or smoke.\n\nIt forms behind a stone. Trout rest there.",
    '"Fetch the lamp," he said, and "quickly".',
]


@cache
def loaded(family: str, exactly: bool):
    model, tokenizer = families.build(family)
    return (double(model) if exactly else model), tokenizer


@cache
def expected(family: str, method: str, text: str, instruction: str | None = None) -> np.ndarray:
    name, parameters = METHODS[method]
    model, tokenizer = loaded(family, False)
    sentences = [(sentence.start, sentence.end) for sentence in Segmenter("en").sentences(text)]
    return reference.embed(
        name, parameters, model, tokenizer, text, sentences=sentences, instruction=instruction, role="query"
    )


def embedder(family: str, method: str, *, exactly: bool = False, **options) -> Embedder:
    model, tokenizer = loaded(family, exactly)
    return Embedder(model, tokenizer=tokenizer, method=method, **options)


def exact(e: Embedder, texts: list[str], role: str = "document") -> np.ndarray:
    """Vectors in float64, also where transformers would compute in float32; shape (texts, dimension)."""
    with AllDouble():
        return np.stack([vector for _, vector in e._vectors(texts, role, Progress(show=False))])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_equals_the_reference_in_float64(family: str, method: str) -> None:
    e = embedder(family, method, exactly=True)
    together = exact(e, TEXTS)
    for at, text in enumerate(TEXTS):
        assert np.abs(together[at] - expected(family, method, text)).max() <= 1e-9
        assert np.abs(exact(e, [text])[0] - together[at]).max() <= 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_equals_the_reference_in_float32(family: str, method: str) -> None:
    e = embedder(family, method)
    together = e.encode_document(TEXTS)
    for at, text in enumerate(TEXTS):
        assert np.abs(together[at] - expected(family, method, text)).max() <= 1e-5
        assert np.abs(e.encode_document(text) - together[at]).max() <= 1e-5


@pytest.mark.parametrize("method", ["plain", "prompteol", "tp", "tp:prompt=prompteol,range=2-5,exit=-1", "htp"])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_instructions_equal_the_reference(family: str, method: str) -> None:
    instruction = "Given a question, find the passage that answers it"
    e = embedder(family, method, exactly=True, query_instruction=instruction)
    vector = exact(e, TEXTS[:1], "query")[0]
    assert np.abs(vector - expected(family, method, TEXTS[0], instruction)).max() <= 1e-9
    assert np.abs(exact(e, TEXTS[:1], "document")[0] - expected(family, method, TEXTS[0])).max() <= 1e-9
