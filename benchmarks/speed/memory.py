"""Peak memory beyond the loaded model, each number from a process of its own; on Linux."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
BUDGETS = (1024, 2048, 4096, 8192)
COUNTS = (10, 40, 160)
LENGTHS = (2_000, 8_000, 32_000)
"""Words of one document."""


def rows(shape: str, layers: int | None = None, dtype: str = "float32") -> Iterator[dict[str, Any]]:
    """The peak against the token budget, the number of texts, and the length of a document."""
    common = {"shape": shape, "layers": layers, "dtype": dtype, "window": 512}
    budget = BUDGETS[1]
    for value in BUDGETS:
        yield {"against": "batch_tokens", "value": value} | _measured(
            **common, batch_tokens=value, texts=100, words=100
        )
    for value in COUNTS:
        yield {"against": "texts", "value": value} | _measured(**common, batch_tokens=budget, texts=value, words=100)
    for value in LENGTHS:
        yield {"against": "words of a document", "value": value} | _measured(
            **common, batch_tokens=budget, texts=1, words=value
        )


def reba(shape: str, tokens: int, layers: int | None = None, dtype: str = "float32") -> dict[str, Any]:
    """The peaks of echo, of ReBA, and of ReBA as published: with the attention of all layers returned."""
    common = {"shape": shape, "layers": layers, "dtype": dtype, "window": 2 * tokens + 64, "batch_tokens": 2 * tokens}
    found = {
        method: _measured(**common, method=method, positions=tokens) for method in ("echo", "reba", "reba:pool=mean")
    }
    found["all attentions returned"] = _measured(**common, method="", positions=tokens)
    return {"tokens": tokens, "goal": 1.3, "peaks": found}


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


def _child(
    shape: str,
    layers: int | None,
    dtype: str,
    window: int,
    batch_tokens: int,
    method: str = "plain",
    texts: int = 1,
    words: int = 0,
    positions: int = 0,
) -> dict[str, Any]:
    import torch

    from eddy_embed import Embedder
    from speed.shapes import random_model, tokenizer
    from speed.texts import text_of, uniform

    model, own = random_model(shape, dtype, layers=layers), tokenizer()
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
