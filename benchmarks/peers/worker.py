"""A process that embeds for another one, whose side `libraries` has.

It reads a line of JSON for each request: {"load": .., "threads": 2, ..}, {"texts": [..]} or {"batch_size": 4}. It
answers with a line of JSON: to the first with the versions of its packages, to the last with {"shape": [..]} and the
vectors behind it, float32.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Encode = Callable[[list[str], int], Any]
"""Vectors of texts, for a batch size."""


def answer(load: Callable[[dict[str, Any]], Encode], packages: tuple[str, ...]) -> None:
    """Answer until the requests end.

    Args:
        load: Loads what a request asks for.
        packages: Whose versions are told.
    """
    # Whatever the libraries print must not reach the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import numpy as np

    encode, texts = None, []
    for line in sys.stdin:
        asked = json.loads(line)
        if "load" in asked:
            encode = load(asked)
            answers.write(json.dumps({name: version(name) for name in packages}).encode() + b"\n")
        elif "texts" in asked:
            texts = asked["texts"]
            answers.write(b"{}\n")
        else:
            found = np.asarray(encode(texts, asked["batch_size"]), np.float32)
            answers.write(json.dumps({"shape": found.shape}).encode() + b"\n" + found.tobytes())
        answers.flush()
