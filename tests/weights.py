"""How near vectors from weights in half precision and in codes are to those from float32: `python -m tests.weights`.

Prints the table of docs/models.md, as measured on this machine. `test_weights` holds the bounds that stand here.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests import families
from tests.comparison import TEXTS
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig
from torchao.quantization.granularity import PerGroup
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, TorchAoConfig
from transformers.utils import logging as transformers_logging

from eddy_embed import Embedder

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # says in each product that its input is cast

HALF = 0.9
"""Least cosine in bfloat16, over all families."""
ENCODERS_HALF = 0.99
"""The same over all encoders."""
COMPANY = 2e-2
"""Largest difference between a text's vectors alone and in company, unless weights and states are plain float32."""


def int8() -> TorchAoConfig:
    return TorchAoConfig(quant_type=Int8WeightOnlyConfig())


def int8_states() -> TorchAoConfig:
    return TorchAoConfig(quant_type=Int8DynamicActivationInt8WeightConfig())


def int4() -> TorchAoConfig:
    return TorchAoConfig(quant_type=IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))


def llm_int8() -> BitsAndBytesConfig:
    return BitsAndBytesConfig(load_in_8bit=True)


def nf4() -> BitsAndBytesConfig:
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)


QUANTISED: dict[str, tuple[Callable[[], Any], float]] = {
    "torchao int8": (int8, 0.998),
    "torchao int8, activations too": (int8_states, 0.996),
    "torchao int4": (int4, 0.75),
    "bitsandbytes int8": (llm_int8, 0.996),
    "bitsandbytes nf4": (nf4, 0.8),
}
"""What quantises at loading, and the least cosine with the plain vectors: random weights magnify what is lost."""


def near(model: str, method: str, **options: Any) -> tuple[float, float]:
    """The least cosine with the vectors of plain float32, and the largest difference between alone and in company."""
    made = Embedder(model, method=method, **options)
    vectors = made.encode_document(TEXTS)
    alone = np.stack([made.encode_document(text) for text in TEXTS])
    plain = Embedder(model, method=method).encode_document(TEXTS)
    return float(np.sum(vectors * plain, axis=1).min()), float(np.abs(vectors - alone).max())


def main() -> None:
    """Print the table."""
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as random:
        config = LlamaConfig(**families._shape(intermediate_size=128))
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(random)
        families.build("llama")[1].save_pretrained(random)
        kinds: dict[str, tuple[float, dict[str, Any]]] = {"bfloat16": (HALF, {"dtype": "bfloat16"})}
        for name, (quantise, least) in QUANTISED.items():
            kinds[name] = (least, {"dtype": "float32", "model_kwargs": {"quantization_config": quantise()}})
        lines = [
            "| weights | test bound | random weights | eddy-tiny | alone or in a batch |",
            "|---|---|---|---|---|",
        ]
        for name, (least, options) in kinds.items():
            (one, apart), (other, also) = (
                near(model, method, **options)
                for model, method in ((random, "htp:range=1-3,exit=3"), ("eddy-tiny", "htp"))
            )
            lines.append(f"| {name} | {least} | {one:.4f} | {other:.4f} | {max(apart, also):.0e} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
