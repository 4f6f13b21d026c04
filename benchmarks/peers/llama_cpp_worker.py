"""llama.cpp's embeddings, for an interpreter that has llama-cpp-python.

Reads a line of JSON for each request, {"load": file, "weights": "Q8_0" or null, "as": file, "threads": 2},
{"texts": [..]} or {"batch_size": 1}, and answers with a line of JSON: to the first with the package's version, to the
last with {"shape": [..]} and the vectors behind it, float32. With "weights" the file is first written in that format.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from array import array
from importlib.metadata import version

TOKENS = 8192
"""Longest text: mean pooling wants it in one batch."""


def main() -> None:
    """Answer until the requests end."""
    # Whatever the library prints must not reach the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import llama_cpp

    model, texts = None, []
    for line in sys.stdin:
        asked = json.loads(line)
        if "load" in asked:
            file = requantised(asked) if asked["weights"] else asked["load"]
            model = llama_cpp.Llama(
                file,
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
            answers.write(json.dumps({"llama-cpp-python": version("llama-cpp-python")}).encode() + b"\n")
        elif "texts" in asked:
            texts = asked["texts"]
            answers.write(b"{}\n")
        else:
            size = asked["batch_size"]
            found = [
                vector
                for first in range(0, len(texts), size)
                for vector in model.embed(texts[first : first + size], normalize=True, truncate=False)
            ]
            answers.write(json.dumps({"shape": [len(found), len(found[0])]}).encode() + b"\n")
            answers.write(array("f", [value for vector in found for value in vector]).tobytes())
        answers.flush()


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
    main()
