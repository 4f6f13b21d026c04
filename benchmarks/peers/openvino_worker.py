"""sentence-transformers over OpenVINO, for an interpreter of its own: it wants an older transformers than ours.

The first request is {"load": folder, "int8": false, "threads": 2}; `worker` says the rest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from worker import Encode, answer


def load(asked: dict[str, Any]) -> Encode:
    """Load a folder of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(asked["threads"])
    config = {"INFERENCE_NUM_THREADS": str(asked["threads"]), "INFERENCE_PRECISION_HINT": "bf16"}
    if asked["int8"]:
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "32"
    options = {"ov_config": config, "load_in_8bit": asked["int8"]}
    model = SentenceTransformer(asked["load"], device="cpu", backend="openvino", model_kwargs=options)
    encode = partial(model.encode, normalize_embeddings=True)
    return lambda texts, batch_size: encode(texts, batch_size=batch_size)


if __name__ == "__main__":
    answer(load, ("openvino", "optimum-intel", "sentence-transformers", "torch", "transformers"))
