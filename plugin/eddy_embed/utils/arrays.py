"""Types of arrays."""

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def unit(vectors: Doubles) -> Doubles:
    """Return vectors of shape (.., width) divided by their length; zeros stay zeros."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, np.finfo(np.float64).tiny))
