"""Peak memory beyond the loaded model, each number from a process of its own; on Linux."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
SHAPE, LAYERS, DTYPE = "qwen3-0.6b", 4, "float32"
"""What is measured: random weights in a known shape, and the bundled tokenizer, since sizes do not depend on values."""
WINDOW = 40_960
TOKENS = 2048
"""Tokens of the text that methods repeat."""
BUDGETS = (1024, 2048, 4096, 8192)
COUNTS = (10, 40, 160)
LENGTHS = (2_000, 8_000, 32_000)
"""Words of one document."""


def rows() -> Iterator[dict[str, Any]]:
    """The peak against the token budget, the number of texts, and the length of a document."""
    budget = BUDGETS[1]
    for value in BUDGETS:
        yield {"against": "batch_tokens", "value": value} | _measured(batch_tokens=value, texts=100, words=100)
    for value in COUNTS:
        yield {"against": "texts", "value": value} | _measured(batch_tokens=budget, texts=value, words=100)
    for value in LENGTHS:
        yield {"against": "words of a document", "value": value} | _measured(batch_tokens=budget, words=value)


def reba(tokens: int = TOKENS) -> dict[str, Any]:
    """The peaks of echo, of ReBA, and of ReBA as published: with the attention of all layers returned."""
    common = {"window": 2 * tokens + 64, "batch_tokens": 2 * tokens, "positions": tokens}
    methods = ("echo", "reba", "reba:pool=mean")
    found = {method: _measured(**common, method=method) for method in methods}
    found["all attentions returned"] = _measured(**common, method="")
    return {"tokens": tokens, "peaks": found}


def _measured(**given: Any) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-c", "from speed.memory import child; child()", json.dumps(given)],
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    if child.returncode:
        raise SystemExit(f"{given}: {child.stderr}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def child() -> None:
    """Measure one thing in this process, print it."""
    sys.stdout.write(f"{json.dumps(_child(**json.loads(sys.argv[1])))}\n")


def _model() -> tuple[Any, Any]:
    """The model and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

    from eddy_embed.model.loading.names import BUNDLED

    tokenizer = AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"])
    tokenizer.model_max_length = WINDOW
    config = Qwen3Config(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=LAYERS,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=WINDOW,
        initializer_range=0.01,
        vocab_size=len(tokenizer),
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, DTYPE)).eval(), tokenizer


def _child(
    batch_tokens: int, window: int = 512, method: str = "plain", texts: int = 1, words: int = 0, positions: int = 0
) -> dict[str, Any]:
    import torch

    from eddy_embed import Embedder
    from speed.texts import text_of, uniform

    model, own = _model()
    embedder = Embedder(model, tokenizer=own, method=method or "echo", max_length=window, batch_tokens=batch_tokens)
    chosen = [text_of(embedder, positions)] if positions else uniform(texts, words)
    ids = own(chosen[0], return_tensors="pt")["input_ids"]
    embedder.encode_document("A first text warms up.")
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    ready = resident()
    forget()
    if method:
        embedder.encode_document(chosen)
    else:
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            out = model.base_model(
                torch.cat([ids, ids], dim=1), output_attentions=True, output_hidden_states=True, use_cache=False
            )
            assert len(out.attentions) == model.config.num_hidden_layers
    top = peak()
    return {"peak": top, "ready": ready, "over": top - ready, "weights": weights}


def forget() -> None:
    """Let the peak begin again at what is held now: a process inherits that of the one that started it."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Most bytes held since then; Linux alone tells."""
    return _status("VmHWM")


def resident() -> int:
    """Bytes held now."""
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024
