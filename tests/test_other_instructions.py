"""The same embedder with other instructions: as if it had been made so, on the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter

TEXTS = ["The ferry leaves at noon.", "Bread needs flour."]


@pytest.mark.parametrize("method", ["plain", "htp", "kv"])
def test_other_instructions_are_those_of_another_embedder(method: str) -> None:
    base = Embedder("eddy-tiny", method=method, text_instruction="Read this:")
    before = base.fingerprint, base.encode_query(TEXTS)
    other = base.with_instructions(query="Which boat?")
    made = Embedder("eddy-tiny", method=method, query_instruction="Which boat?", text_instruction="Read this:")
    assert other.fingerprint == made.fingerprint != base.fingerprint
    np.testing.assert_allclose(other.encode_query(TEXTS), made.encode_query(TEXTS), atol=1e-6)
    np.testing.assert_allclose(other.encode_document(TEXTS), base.encode_document(TEXTS), atol=1e-6)
    assert np.abs(other.encode_query(TEXTS) - before[1]).max() > 1e-3
    assert (base.fingerprint, base.counts.texts) == (before[0], 4)
    bare = other.with_instructions(query="", text="")
    np.testing.assert_allclose(
        bare.encode_query(TEXTS), Embedder("eddy-tiny", method=method).encode_query(TEXTS), atol=1e-6
    )
    with pytest.raises(InvalidParameter, match="query_instruction=3"):
        base.with_instructions(query=3)


def test_what_was_fitted_with_other_instructions_is_not_used() -> None:
    fitted = Embedder("eddy-tiny", method="plain+centre")
    fitted.fit([*TEXTS, "Dogs travel for free."])
    assert fitted.with_instructions().fingerprint == fitted.fingerprint
    with pytest.raises(FingerprintMismatch, match="instruction"):
        fitted.with_instructions(text="Read this:")
