"""Every method on every family equals its naive reference, alone and in mixed batches, in float64 and float32."""

from __future__ import annotations

import numpy as np
import pytest
from tests import families
from tests.comparison import INSTRUCTION, METHODS, TEXTS, embedder, exact, expected, gap


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_equals_the_reference_in_float64(family: str, method: str) -> None:
    e = embedder(family, method, exactly=True)
    together = exact(e, TEXTS)
    assert gap(e, family, method, TEXTS) <= 1e-9
    for at, text in enumerate(TEXTS):
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
    e = embedder(family, method, exactly=True, query_instruction=INSTRUCTION)
    assert gap(e, family, method, TEXTS[:1], INSTRUCTION) <= 1e-9
    assert np.abs(exact(e, TEXTS[:1], "document")[0] - expected(family, method, TEXTS[0])).max() <= 1e-9
