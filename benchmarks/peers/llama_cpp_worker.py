"""llama.cpp's embeddings, for an interpreter that has llama-cpp-python.

The first request is {"load": file, "weights": "Q8_0" or null, "as": file, "threads": 2}; `worker` says the rest. With
"weights" the file is first written in that format.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from worker import Encode, answer

TOKENS = 8192
"""Longest text: mean pooling wants it in one batch."""


def load(asked: dict[str, Any]) -> Encode:
    """Load a GGUF file."""
    import llama_cpp

    model = llama_cpp.Llama(
        requantised(asked) if asked["weights"] else asked["load"],
        embedding=True,
        n_ctx=TOKENS,
        n_batch=TOKENS,
        n_ubatch=TOKENS,
        n_threads=asked["threads"],
        n_threads_batch=asked["threads"],
        flash_attn=True,
        pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN,
        verbose=False,
    )
    return lambda texts, batch_size: [
        vector
        for first in range(0, len(texts), batch_size)
        for vector in model.embed(texts[first : first + batch_size], normalize=True, truncate=False)
    ]


def requantised(asked: dict[str, str]) -> str:
    """The file in another format; made once."""
    import llama_cpp

    if not os.path.exists(asked["as"]):
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{asked['weights']}")
        settings.allow_requantize = True
        part = f"{asked['as']}.part"
        if llama_cpp.llama_model_quantize(asked["load"].encode(), part.encode(), ctypes.byref(settings)):
            raise SystemExit(f"{asked['load']} cannot be written as {asked['weights']}")
        os.replace(part, asked["as"])
    return asked["as"]


if __name__ == "__main__":
    answer(load, ("llama-cpp-python",))
