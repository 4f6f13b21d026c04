"""Eddy on an accelerator, in one command under ten minutes and without a network.

    python benchmarks/gpu.py

Models with the shapes of Qwen3-0.6B, Qwen3-4B and Mistral-7B and random weights, in bfloat16, made on the card. For
each length from 128 to 8,192 tokens: tokens per second of Eddy's forward pass (sequences of one length, as many as
make 32,768 tokens), its share of the rate at which the same card multiplies large matrices, the same for transformers
with `sdpa` and for sentence-transformers, in turn; then what methods cost beyond the tokens they add, and peaks of
memory. Written to `benchmarks/results/gpu-CARD.json` after each shape, so that what ran is kept if time runs out.
`--device cpu --shape small --tokens 512` tries the same code on a processor, and writes nothing unless told to.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from output import RESULTS, ROOT, say
from speed import overhead, shapes
from speed.texts import text_of
from speed.timing import ratio, seconds, synchronise
from torch import nn
from transformers.utils import logging

from eddy_embed import Embedder
from eddy_embed.text.sequence import pack, without_placeholders

LENGTHS = (128, 512, 2048, 8192)
TOKENS = 32_768
GOAL = {"mistral-7b": 0.55}
"""Share of the card's own rate that a shape is meant to reach from 512 tokens."""
METHODS_AT = (512, 2048)
MODELS = ROOT / "runs" / "models"


def main() -> None:
    """Measure each shape, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--shape", action="append", choices=list(shapes.SHAPES), help="may be repeated")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in one pass")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=560, help="seconds after which no further shape is begun")
    parser.add_argument("--json", type=Path, help="default on an accelerator: benchmarks/results/gpu-CARD.json")
    options = parser.parse_args()
    logging.set_verbosity_error()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here; --device cpu --shape small --tokens 512 tries the benchmark")
    began, card = time.perf_counter(), card_of(options.device)
    name = re.sub(r"\W+", "-", card.lower()).strip("-")
    target = options.json or (RESULTS / f"gpu-{name}.json" if options.device != "cpu" else None)
    rate = matrix_rate(options.device, options.dtype)
    about = {"card": card, "torch": torch.__version__, "dtype": options.dtype, "flops": rate, "tokens": options.tokens}
    say(f"{card}: {rate / 1e12:.1f} TFLOP/s on large matrices in {options.dtype}")
    rows: list[dict[str, Any]] = []
    for shape in options.shape or ("qwen3-0.6b", "qwen3-4b", "mistral-7b"):
        if time.perf_counter() - began > options.limit:
            say(f"{shape}: not begun, {options.limit:.0f} s are over")
            continue
        for row in measured(shape, options, rate):
            say(json.dumps(row))
            rows.append(row)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    say(f"{time.perf_counter() - began:.0f} s{f'; written: {target}' if target else ''}")


def card_of(device: str) -> str:
    """The accelerator's name."""
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


def matrix_rate(device: str, dtype: str, size: int | None = None) -> float:
    """Operations per second in the product of two large square matrices: the best of several."""
    size = size or (8192 if device != "cpu" else 1024)
    one, two = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    run = partial(torch.mm, one, two)
    run()
    return 2 * size**3 / min(seconds(run, repeat=5) for _ in range(5))


def measured(shape: str, options: argparse.Namespace, rate: float) -> Iterator[dict[str, Any]]:
    """Rows of one shape, whose model is gone afterwards."""
    model, own = shapes.random_model(shape, options.dtype, options.device), shapes.tokenizer()
    lengths = [length for length in LENGTHS if length <= options.tokens]
    embedder = Embedder(
        model, tokenizer=own, method="plain:exit=-1", max_length=max(lengths), batch_tokens=options.tokens
    )
    for length in lengths:
        count = options.tokens // length
        ids = np.random.default_rng(0).integers(5, len(own), (count, length))
        found = beside(shape, embedder, model, own, ids, rate, options)
        yield {"shape": shape, "length": length, "sequences": count} | found
    yield {"shape": shape, "half depth": overhead.half_depth(model, own, lengths[-1], options.rounds)}
    at = tuple(length for length in METHODS_AT if length <= options.tokens) or (options.tokens,)
    for row in overhead.rows(model, own, at, options.rounds):
        yield {"shape": shape, **row}
    yield {"shape": shape, "peaks": peaks(model, own, at[-1], options.device)}


def beside(
    shape: str, embedder: Embedder, model: Any, own: Any, ids: Any, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Eddy's pass over sequences of one length, and the others' over the same."""
    host = embedder._pipeline.open_runner.host
    packed = pack([without_placeholders(row) for row in ids])
    square = torch.from_numpy(ids).to(options.device)

    def ours() -> torch.Tensor:
        with torch.inference_mode():
            states = host.run(packed, range(0), None)
            return states.view(*ids.shape, -1).float().mean(1)

    def transformers() -> torch.Tensor:
        with torch.inference_mode():
            states: torch.Tensor = model.base_model(input_ids=square, use_cache=False).last_hidden_state
            return states.float().mean(1)

    gap = float((unit(ours()) - unit(transformers())).abs().max())
    used = flops(model, *ids.shape)
    forward = ratio(transformers, ours, options.rounds)
    texts = own.batch_decode(ids)
    cut = Embedder(
        model,
        tokenizer=own,
        method="plain:exit=-1",
        max_length=ids.shape[1],
        overflow="truncate",
        batch_tokens=ids.size,
    )
    whole = ratio(sentence_transformers(model, texts, ids.shape[1], options), partial(cut.encode_document, texts), 3)
    return {
        "tokens_per_s": round(ids.size / forward.base),
        "share": round(used / forward.base / rate, 3),
        "goal": GOAL.get(shape) if ids.shape[1] >= 512 else None,
        "gap": float(f"{gap:.1e}"),
        "peak_bytes": peak_of(ours, options.device),
        "peak_bytes_transformers": peak_of(transformers, options.device),
        "transformers": forward.row(),
        "sentence-transformers, from texts": whole.row(),
    }


def sentence_transformers(model: Any, texts: list[str], length: int, options: argparse.Namespace) -> Callable[[], Any]:
    """The library's own class around the same loaded model, from texts to vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    # A folder of its own kind is read first, since it takes no loaded model; then the model is put in its place.
    first = Transformer(str(shapes.bare("small", MODELS)), model_kwargs={"dtype": options.dtype})
    first.model = model.base_model
    whole = SentenceTransformer(modules=[first, Pooling(model.config.hidden_size, "mean")], device=options.device)
    whole.max_seq_length = length
    return partial(whole.encode, texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False)


def flops(model: Any, sequences: int, length: int) -> float:
    """Operations of a pass: two for each weight and token, four for each pair of tokens in causal attention."""
    config = model.config
    linear = sum(each.weight.numel() for each in model.base_model.modules() if isinstance(each, nn.Linear))
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs = sequences * length * (length + 1) / 2 * config.num_attention_heads * width * config.num_hidden_layers
    return 2 * linear * sequences * length + 4 * pairs


def unit(states: torch.Tensor) -> torch.Tensor:
    """Each vector over its length."""
    return torch.nn.functional.normalize(states, dim=-1)


def peaks(model: Any, own: Any, length: int, device: str) -> dict[str, int | None]:
    """Bytes beyond the weights that methods need at their most, for one text of so many tokens."""
    found = {}
    for method in ("echo:exit=-1", "reba:exit=-1", "reba:pool=mean,exit=-1"):
        embedder = Embedder(model, tokenizer=own, method=method, max_length=length + 64)
        found[method] = peak_of(partial(embedder.encode_document, text_of(embedder, length)), device)
    return found


def peak_of(run: Callable[[], object], device: str) -> int | None:
    """Bytes that a call holds at its most beyond what was held before; None on a processor, which does not tell."""
    if not device.startswith("cuda"):
        return None
    synchronise()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    run()
    synchronise()
    return torch.cuda.max_memory_allocated() - held


if __name__ == "__main__":
    main()
