"""Methods on families equal their naive references, alone and in mixed batches, in float64 and float32."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests import families
from tests.comparison import CORE, INSTRUCTION, METHODS, TEXTS, embedder, exact, expected, gap, loaded, sentences_of
from tests.reference import methods as reference
from tests.selection import each_once, mostly_slow, turns

ALL = product(families.FAMILIES, METHODS)
USUAL = [*product(["llama"], METHODS), *turns(["qwen3", "gpt2", "gemma2"], CORE)]
KEPT = [
    *("plain:pool=weighted,exit=-2", 'metaeol:prompts="A: {text} is\\n{text} means:",exit=-2', "kv:layers=2-4", "reba"),
    *("reba:k=3,pool=mean,exit=4", "reba:pool=mean,piece=7+tempscale:tau=0.6", "reba:variant=released"),
    "htp:k=2,range=1-4,exit=4,pool=all+last2avg",
]
"""Methods whose vectors are compared with their lengths."""
INSTRUCTED = ["plain", "prompteol", "echo", "tp:prompt=prompteol,range=2-5,exit=-1", "htp"]


@pytest.mark.parametrize(("family", "method"), mostly_slow(ALL, USUAL))
def test_equals_the_reference(family: str, method: str) -> None:
    e, exactly = embedder(family, method), embedder(family, method, exactly=True)
    thorough = family == "llama" and method in CORE  # `test_contract` has the batches of the others
    texts = TEXTS if thorough else TEXTS[::3] if "released" in method else TEXTS[:2]
    single, double = e.encode_query(texts), exact(exactly, texts, "query")
    for at, text in enumerate(texts):
        right = expected(family, method, text)
        assert np.abs(double[at] - right).max() <= 1e-9, text
        assert np.abs(single[at] - right).max() <= 1e-5, text
        if thorough:
            assert np.abs(exact(exactly, [text], "query")[0] - double[at]).max() <= 1e-12, text
            assert np.abs(e.encode_query(text) - single[at]).max() <= 1e-5, text


@pytest.mark.parametrize("method", KEPT)
def test_lengths_equal_the_reference_where_they_are_kept(method: str) -> None:
    vectors = exact(embedder("llama", method, exactly=True, normalize=False), TEXTS[::3], "query")
    name, parameters = METHODS[method]
    for vector, text in zip(vectors, TEXTS[::3], strict=True):
        raws = [
            reference.run(
                name, parameters, *loaded("llama"), text, role="query", sentences=sentences_of(text), wording_of=wording
            ).raws()[-1]
            for wording in parameters.get("prompts", [None])
        ]
        assert np.abs(vector - sum(raws) / len(raws)).max() <= 1e-8 * np.abs(raws).max()


@pytest.mark.parametrize(("family", "method"), each_once(families.FAMILIES, INSTRUCTED))
def test_instructions_equal_the_reference(family: str, method: str) -> None:
    e = embedder(family, method, exactly=True, query_instruction=INSTRUCTION)
    assert gap(e, family, method, TEXTS[:1], INSTRUCTION) <= 1e-9
    document = exact(e, TEXTS[:1])[0]
    assert np.abs(document - expected(family, method, TEXTS[0], role="document")).max() <= 1e-9
