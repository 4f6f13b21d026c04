"""sentence-transformers over OpenVINO, for an interpreter of its own: it wants an older transformers than ours.

Reads a line of JSON for each request, {"load": folder, "int8": false, "threads": 2}, {"texts": [..]} or
{"batch_size": 4}, and answers with a line of JSON: to the first with the versions of its packages, to the last with
{"shape": [..]} and the vectors behind it, float32.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version

PACKAGES = ("openvino", "optimum-intel", "sentence-transformers", "torch", "transformers")


def main() -> None:
    """Answer until the requests end."""
    # Whatever the libraries print must not reach the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch
    from sentence_transformers import SentenceTransformer

    model, texts = None, []
    for line in sys.stdin:
        asked = json.loads(line)
        if "load" in asked:
            torch.set_num_threads(asked["threads"])
            config = {"INFERENCE_NUM_THREADS": str(asked["threads"]), "INFERENCE_PRECISION_HINT": "bf16"}
            if asked["int8"]:
                config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "32"
            options = {"ov_config": config, "load_in_8bit": asked["int8"]}
            model = SentenceTransformer(asked["load"], device="cpu", backend="openvino", model_kwargs=options)
            answers.write(json.dumps({name: version(name) for name in PACKAGES}).encode() + b"\n")
        elif "texts" in asked:
            texts = asked["texts"]
            answers.write(b"{}\n")
        else:
            found = model.encode(texts, batch_size=asked["batch_size"], normalize_embeddings=True)
            answers.write(json.dumps({"shape": found.shape}).encode() + b"\n" + found.astype("float32").tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
