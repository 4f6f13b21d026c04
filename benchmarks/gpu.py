"""Eddy on an NVIDIA card, in minutes and without a network.

    python benchmarks/gpu.py                     # writes results/gpu-CARD.json and results/README.md
    python benchmarks/gpu.py --device cpu --shape small --tokens 512 --rounds 2      # tries the benchmark itself

Models with the shapes of Qwen3-0.6B, Qwen3-4B and Mistral-7B and random weights, in bfloat16. Of each: tokens per
second of the forward pass at lengths from 128 to 8,192, as a share of the rate at which the same card multiplies large
matrices, beside transformers with sdpa; texts of mixed lengths and one query, beside sentence-transformers; methods
over a plain pass of as many tokens; re-ranking; peaks of memory. Ratios are measured in turn, within one run.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from output import RESULTS, put, say
from speed import texts
from speed.timing import ratio, seconds, synchronise
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, MistralConfig, PreTrainedConfig, Qwen3Config
from transformers.utils import logging

from eddy_embed import Embedder, Reranker
from eddy_embed.model.loading.names import BUNDLED
from eddy_embed.text.sequence import pack, without_placeholders

LENGTHS = (128, 512, 2048, 8192)
METHODS_AT = (512, 2048)
"""Tokens of the texts that methods are measured on, as many of them as fill the passes."""
PASSES = 2
WINDOW = 40_960
MIXED = 150
"""Texts of mixed lengths."""
GOAL = {"mistral-7b": 0.55}
"""Share of the card's own rate that a shape is meant to reach from 512 tokens."""
METHODS = (
    ("tp:exit=-1", "plain:exit=-1", 1.03),
    ("plain:exit=-1+tempscale:tau=0.8", "plain:exit=-1", 1.03),
    ("htp:exit=-1", "plain:exit=-1", 1.05),
    ("kv:exit=-1", "plain:exit=-1", 1.05),
    ("reba:exit=-1", "echo:exit=-1", 1.1),
    ("reba:pool=mean,exit=-1", "echo:exit=-1", None),
)
"""A method, what it is measured by over as many tokens, and how many times that time it is meant to take at most."""
RERANKED = {"texts": 50, "tokens": 128, "goal": 0.5}
QUESTION = "which keeper crossed the broken bridge before noon?"


def _qwen3(hidden: int, inner: int, layers: int, heads: int, shared: int, width: int) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        head_dim=width,
        max_position_embeddings=WINDOW,
        initializer_range=0.01,
    )


SHAPES: dict[str, PreTrainedConfig] = {
    "small": _qwen3(128, 256, 4, 4, 2, 32),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, 8, 128),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, 8, 128),
    "mistral-7b": MistralConfig(sliding_window=None, initializer_range=0.01),
}
"""`small` is there to try the benchmark. Speed depends on no value; weights are small, so that states stay finite."""


def main() -> None:
    """Measure each shape, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="may be repeated")
    parser.add_argument("--tokens", type=int, default=16_384, help="in one pass")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="default on a card: benchmarks/results/gpu-CARD.json")
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here; --device cpu --shape small --tokens 512 tries the benchmark")
    card = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    named = RESULTS / f"gpu-{re.sub(r'[^a-z0-9]+', '-', card.lower())}.json"
    target = options.json or (named if options.device == "cuda" else None)
    began, rate = time.perf_counter(), matrix_rate(options.device)
    about = {"card": card, "torch": torch.__version__, "flops": rate, "tokens": options.tokens}
    say(json.dumps(about))
    rows: list[dict[str, Any]] = []
    for shape in options.shape or [name for name in SHAPES if name != "small"]:
        for row in measured(shape, options, rate):
            say(json.dumps(row))
            rows.append({"shape": shape, **row})
            if target is not None:
                target.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    if target == named:
        put(RESULTS / "README.md", "gpu", passes(about, rows))
    say(f"{time.perf_counter() - began:.0f} s")


def matrix_rate(device: str) -> float:
    """Operations per second in the product of two large square matrices of random numbers: the best of several."""
    size = 8192 if device == "cuda" else 1024
    one, two = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    run = partial(torch.mm, one, two)
    run()
    return 2 * size**3 / min(seconds(run, repeat=5) for _ in range(5))


def random_model(shape: str, device: str) -> tuple[Any, Any]:
    """A causal language model of a shape, with a head, and the bundled model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED["eddy-tiny"])
    tokenizer.model_max_length = WINDOW
    config = SHAPES[shape]
    config.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval(), tokenizer


def measured(shape: str, options: argparse.Namespace, rate: float) -> Iterator[dict[str, Any]]:
    """Rows of one shape, whose model is gone afterwards."""
    model, tokenizer = random_model(shape, options.device)
    common = {"tokenizer": tokenizer, "batch_tokens": options.tokens, "check": False}
    with Embedder(model, method="plain:exit=-1", **common) as plain:
        for length in LENGTHS:
            if length <= options.tokens:
                yield forward(shape, plain, model, length, rate, options)
        others = sentence_transformers(model, options.device)
        mixed, query = texts.mixed(MIXED if options.tokens > 512 else 20), texts.uniform(1, 12)
        peers = {size: partial(others, mixed, size) for size in (16, 64)}
        best = min(peers, key=lambda size: (peers[size](), seconds(peers[size]))[1])
        found = ratio(peers[best], partial(plain.encode_document, mixed), few(options))
        yield {"texts": "mixed", "peer": f"sentence-transformers, batches of {best}", "peer_over_eddy": found.row()}
        found = ratio(partial(others, query, 1), partial(plain.encode_query, query), options.rounds, 10)
        yield {"texts": "one query", "peer": "sentence-transformers", "peer_over_eddy": found.row()}
    yield from methods(model, tokenizer, options)
    yield reranking(model, tokenizer, options)


def few(options: argparse.Namespace) -> int:
    """Rounds of what takes seconds."""
    return max(2, options.rounds - 2)


def forward(
    shape: str, embedder: Embedder, model: Any, length: int, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Eddy's pass over sequences of one length beside that of transformers over the same."""
    ids = np.random.default_rng(0).integers(5, model.config.vocab_size, (options.tokens // length, length))
    host = embedder._pipeline.open_runner.host
    packed = pack([without_placeholders(row) for row in ids])
    square = torch.from_numpy(ids).to(options.device)

    def ours() -> torch.Tensor:
        with torch.inference_mode():
            return host.run(packed, range(0), None).view(*ids.shape, -1).float().mean(1)

    def theirs() -> torch.Tensor:
        with torch.inference_mode():
            states: torch.Tensor = model.base_model(input_ids=square, use_cache=False).last_hidden_state
            return states.float().mean(1)

    one, other = (nn.functional.normalize(run(), dim=-1) for run in (ours, theirs))
    found = ratio(theirs, ours, options.rounds)
    return {
        "length": length,
        "tokens_per_s": round(ids.size / found.base),
        "share": round(flops(model, *ids.shape) / found.base / rate, 3),
        "goal": GOAL.get(shape) if length >= 512 else None,
        "apart": float(f"{float((one - other).norm(dim=-1).max()):.1e}"),
        "peak_bytes": [peak_of(run, options.device) for run in (ours, theirs)],
        "transformers_over_eddy": found.row(),
    }


def flops(model: Any, sequences: int, length: int) -> float:
    """Operations of a pass: two for each weight and token, four for each pair of tokens in causal attention."""
    config = model.config
    linear = sum(each.weight.numel() for each in model.base_model.modules() if isinstance(each, nn.Linear))
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs = sequences * length * (length + 1) / 2 * config.num_attention_heads * width * config.num_hidden_layers
    return 2 * linear * sequences * length + 4 * pairs


def sentence_transformers(model: Any, device: str) -> Callable[[list[str], int], Any]:
    """The library's own class around the same loaded model: texts and a batch size to vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    # A folder is read first, since it takes no loaded model; then the model is put in its place.
    first = Transformer(str(BUNDLED["eddy-tiny"]))
    first.model = model.base_model
    whole = SentenceTransformer(modules=[first, Pooling(model.config.hidden_size, "mean")], device=device)
    whole.max_seq_length = WINDOW

    def encode(given: list[str], batch_size: int) -> Any:
        return whole.encode(given, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)

    return encode


def methods(model: Any, tokenizer: Any, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """From texts to vectors: a method's time over its base's for as many tokens, and both peaks of memory."""
    layers = model.config.num_hidden_layers
    common = {"tokenizer": tokenizer, "batch_tokens": options.tokens, "check": False}

    @cache
    def embedder(method: str) -> Embedder:
        return Embedder(model, method=method.replace("kv:", f"kv:layers={layers // 3}-{2 * layers // 3},"), **common)

    for (method, base, goal), length in product(METHODS, METHODS_AT):
        if length > options.tokens:
            continue
        both = embedder(method), embedder(base)
        one = texts.text_of(both[0], length)
        other = texts.text_of(both[1], texts.positions(both[0], one))
        runs = [
            partial(each.encode_document, [text] * (PASSES * options.tokens // length))
            for each, text in zip(both, (one, other), strict=True)
        ]
        found = ratio(runs[0], runs[1], few(options))
        peaks = [peak_of(run, options.device) for run in runs]
        yield {"method": method, "base": base, "length": length, "goal": goal, "peak_bytes": peaks} | {
            "over_base": found.row()
        }


def reranking(model: Any, tokenizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds to re-rank passages for a question."""
    reranker = Reranker(model, tokenizer=tokenizer, batch_tokens=options.tokens)
    plain = Embedder(model, tokenizer=tokenizer, method="plain:exit=0", check=False)
    passages = [texts.text_of(plain, int(RERANKED["tokens"]))] * int(RERANKED["texts"])
    run = partial(reranker.scores, QUESTION, passages)
    run()
    taken = sorted(seconds(run) for _ in range(options.rounds))
    return {
        "reranked": RERANKED,
        "seconds": round(taken[len(taken) // 2], 4),
        "peak_bytes": peak_of(run, options.device),
    }


def peak_of(run: Callable[[], object], device: str) -> int | None:
    """Bytes that a call holds at its most beyond what was held before; None on a processor, which does not tell."""
    if device != "cuda":
        return None
    synchronise()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    run()
    synchronise()
    return torch.cuda.max_memory_allocated() - held


def passes(about: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the table of `results/README.md`."""
    rate = about["flops"] / 1e12
    head = f"**{about['card']}**, torch {about['torch']}, bfloat16; large matrices: {rate:.0f} TFLOP/s."
    lengths, places = [f"{length:,} tokens" for length in LENGTHS], ["mixed", "one query", "50 passages re-ranked"]
    table = [["", *lengths, *places]]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        own = [row for row in rows if row["shape"] == shape]
        cells = [
            f"{row['tokens_per_s']:,}/s, {row['share']:.0%}, {row['transformers_over_eddy']['median']:.2f}"
            for row in own
            if "share" in row
        ]
        cells += [f"{row['peer_over_eddy']['median']:.2f}" for row in own if "peer" in row]
        cells += [f"{row['seconds']:.2f} s" for row in own if "reranked" in row]
        table.append([shape, *cells, *["not measured"] * (len(table[0]) - 1 - len(cells))])
    return f"{head}\n\n{_table(table)}"


def _table(rows: list[list[str]]) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


if __name__ == "__main__":
    main()
