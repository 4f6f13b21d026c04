"""Recorded vectors and settings of every method: a change of code leaves them as they are.

python -m tests.test_recorded_vectors     # records them anew, after a change that is meant to change them
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eddy_embed import Embedder
from eddy_embed.utils.settings import digest

FILE = Path(__file__).parent / "fixtures" / "vectors.npz"

METHODS = (
    *("plain", "plain:exit=0", "plain:exit=-2", "plain:pool=last", "plain:pool=weighted", "prompteol", "cot"),
    *("knowledge", "metaeol", "echo", "echo+readout:pool=last", "tp", "tp:prompt=cot", "tp:source=text"),
    *("tp:released_text=true", "htp", "htp:pool=mean", "htp:range=1-3", "htp:source=released"),
    *("htp:released_text=true", "kv:layers=3-5", "plain+reroute:layers=2-4", "kv:layers=3-5,rebase=true", "reba"),
    "reba:pool=mean",
    *("plain+tempscale:tau=0.9", "tp:prompt=cot+tempscale:tau=0.8", "htp+last2avg"),
    "plain:exit=-2+sif+layeravg",
)
TEXTS = (
    "Eddies form behind rocks.",
    "Eddies form behind rocks. The water turns there, against the stream. A fish can rest in one; a boat can wait.",
)


def measure(method: str) -> tuple[str, np.ndarray]:
    """Digest of the method's settings; two documents, a query and the parts of a long document, shape (rows, width)."""
    with Embedder("eddy-tiny", method=method, dtype="float32", device="cpu") as embedder:
        rows = [embedder.encode_document(list(TEXTS)), embedder.encode_query(TEXTS[:1])]
        if embedder.can_embed_spans:
            document = embedder.encode_long(" ".join(TEXTS), passage_size=20, late=True)
            rows += [np.stack([part.vector for part in (*document.passages, *document.sentences)])]
        return digest(embedder.settings["method"]), np.concatenate(rows)


@pytest.mark.parametrize("method", METHODS)
def test_vectors_are_as_recorded(method: str) -> None:
    recorded = np.load(FILE)
    settings, vectors = measure(method)
    assert settings == recorded[f"{method}/settings"]
    assert vectors.shape == recorded[method].shape
    # Processors round differently; on the one that recorded, the difference is 0.
    assert np.abs(vectors - recorded[method]).max() <= 2e-6


def record() -> None:
    """Write the file."""
    arrays: dict[str, np.ndarray] = {}
    for method in METHODS:
        settings, arrays[method] = measure(method)
        arrays[f"{method}/settings"] = np.array(settings)
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    record()
