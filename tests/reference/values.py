"""What stands at a placeholder before the first copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .double import double
from .forward import embed_ids


def deviation(model: Any) -> float:
    """Standard deviation over all entries of the embedding module's output, for up to 4096 ids spread evenly."""
    rows = double(model).get_input_embeddings().weight.shape[0]
    ids = np.linspace(0, rows - 1, min(rows, 4096)).astype(int)
    output = embed_ids(model, ids.tolist()).numpy()
    centred = output - output.mean()
    return float(np.sqrt((centred**2).mean()))


def value(model: Any, kind: int, seed: int = 0, init: str = "scaled", tokenizer: Any = None) -> np.ndarray:
    """Value of a placeholder, shape (hidden,): kind 0 for PST, 1 for B-PST; `init` as in Token Prepending's table 4."""
    hidden = double(model).get_input_embeddings().weight.shape[1]
    if init == "zeros":
        return np.array([0.0] * hidden)
    if init == "ones":
        return np.array([1.0] * hidden)
    if init == "uniform":
        return np.random.default_rng([seed, kind]).uniform(0.0, 1.0, hidden)
    if init == "space":
        words = tokenizer.get_vocab()
        blank = next(word for word in (" ", "▁", "Ġ") if word in words)
        return embed_ids(model, [words[blank]])[0].numpy()
    normal = np.random.default_rng([seed, kind]).standard_normal(hidden)
    return normal if init == "gaussian" else normal * deviation(model)
