"""Held-out perplexity of a model folder: for each source, and by position inside the window.

Works on any causal model that transformers loads.  Each document is cut into windows of ``length`` positions with
``<s>`` in front; every token of it is predicted once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_lm.prepare import documents

POSITION_EDGES = (0, 64, 128, 256, 512, 1024, 1536, 2048)


@dataclass
class PerplexityScore:
    """Sums over predicted tokens: nats, tokens, bytes of text."""

    nats: float = 0.0
    tokens: int = 0
    size: int = 0

    @property
    def perplexity(self) -> float:
        """Exponential of the mean loss of a token."""
        return math.exp(self.nats / max(1, self.tokens))

    @property
    def bits_per_byte(self) -> float:
        """Mean loss of a byte, which does not depend on the tokenizer."""
        return self.nats / math.log(2) / max(1, self.size)


class PerplexityModel:
    """A causal model with its tokenizer."""

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.model = cast(
            Any, AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), trust_remote_code=False)
        )
        self.model.to(device).eval()
        self.device = device

    @torch.inference_mode()
    def losses(self, text: str, length: int) -> list[Tensor]:
        """Return the loss of each token of a text in nats, a tensor for each window of at most ``length`` positions."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids.append(self.tokenizer.eos_token_id)
        windows = [ids[i : i + length - 1] for i in range(0, len(ids), length - 1)]
        found = []
        for window in windows:
            row = torch.tensor([[self.tokenizer.bos_token_id, *window]], device=self.device)
            hidden = self.model.model(input_ids=row[:, :-1], use_cache=False).last_hidden_state[0]
            parts = [
                torch.nn.functional.cross_entropy(self.model.lm_head(h).float(), t, reduction="none")
                for h, t in zip(torch.split(hidden, 512), torch.split(row[0, 1:], 512), strict=True)
            ]
            found.append(torch.cat(parts).cpu())
        return found


def read_heldout(path: Path, manifest: Path | None) -> list[tuple[str, str]]:
    """(source, document) pairs; sources follow ``_heldout.per_source`` of a manifest, in its order."""
    texts = list(documents(path))
    if manifest is None:
        return [("all", text) for text in texts]
    counts: dict[str, int] = json.loads(manifest.read_text(encoding="utf-8"))["_heldout"]["per_source"]
    names = [name for name, count in counts.items() for _ in range(count)]
    if len(names) != len(texts):
        raise ValueError(f"{manifest} counts {len(names)} held-out documents, {path} holds {len(texts)}")
    return list(zip(names, texts, strict=True))


def evaluate(
    model: PerplexityModel, pairs: list[tuple[str, str]], length: int
) -> tuple[dict[str, PerplexityScore], dict[str, PerplexityScore]]:
    """Return scores by source (``total`` for all), and by position over the full windows."""
    sources: dict[str, PerplexityScore] = {}
    positions = {
        f"{low}-{high}": PerplexityScore() for low, high in itertools.pairwise(POSITION_EDGES) if low < length - 1
    }
    for source, text in pairs:
        windows = model.losses(text, length)
        for score in (sources.setdefault(source, PerplexityScore()), sources.setdefault("total", PerplexityScore())):
            score.nats += float(sum(w.double().sum() for w in windows))
            score.tokens += sum(len(w) for w in windows)
            score.size += len(text.encode())
        for window in windows:
            for low, high in itertools.pairwise(POSITION_EDGES):
                if len(window) == length - 1 and low < length - 1:
                    positions[f"{low}-{high}"].nats += float(window[low:high].double().sum())
                    positions[f"{low}-{high}"].tokens += len(window[low:high])
    sources["total"] = sources.pop("total", PerplexityScore())
    return sources, positions


def table(scores: dict[str, PerplexityScore], bytes_known: bool) -> str:
    """Markdown table of scores."""
    lines = ["| | tokens | perplexity |" + (" bits per byte |" if bytes_known else "")]
    lines.append("|---|---|---|" + ("---|" if bytes_known else ""))
    for name, score in scores.items():
        extra = f" {score.bits_per_byte:.3f} |" if bytes_known else ""
        lines.append(f"| {name} | {score.tokens:,} | {score.perplexity:.2f} |{extra}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Held-out perplexity by source and by position.")
    parser.add_argument("--model", type=Path, required=True, help="model folder written by export, or any causal model")
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, help="manifest.json that counts the held-out documents by source")
    parser.add_argument("--length", type=int, default=2048, help="positions of a window")
    parser.add_argument("--every", type=int, default=1, help="take every n-th document")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    pairs = read_heldout(args.heldout, args.manifest)[:: args.every]
    sources, positions = evaluate(PerplexityModel(args.model, args.dtype, args.device), pairs, args.length)
    sys.stdout.write(
        f"{table(sources, True)}\n\nBy position, full windows of {args.length}:\n\n{table(positions, False)}\n"
    )


if __name__ == "__main__":
    main()
