"""Types of arrays."""

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
