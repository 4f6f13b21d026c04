"""Perplexity of a causal model on a held-out text: each token of a document is predicted once, in windows."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tiny_lm.prepare import documents


@torch.inference_mode()
def nats(model: Any, tokenizer: Any, text: str, length: int) -> tuple[float, int]:
    """Loss of a text and the number of its tokens, the end among them, in windows that begin with `<s>`."""
    ids, total = [*tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], tokenizer.eos_token_id], 0.0
    for start in range(0, len(ids), length - 1):
        window = torch.tensor([[tokenizer.bos_token_id, *ids[start : start + length - 1]]])
        total += float(model(input_ids=window, labels=window).loss) * (window.shape[1] - 1)
    return total, len(ids)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--model", required=True, help="a folder, or a Hugging Face id")
    parser.add_argument("--heldout", type=Path, required=True, help="a file as prepare reads them")
    parser.add_argument("--length", type=int, default=2048, help="positions of a window")
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer, texts = AutoTokenizer.from_pretrained(args.model), list(documents(args.heldout))
    loss, tokens = map(sum, zip(*(nats(model, tokenizer, text, args.length) for text in texts), strict=True))
    bits = loss / math.log(2) / sum(len(text.encode()) for text in texts)
    print(f"{tokens:,} tokens, perplexity {math.exp(loss / tokens):.2f}, {bits:.3f} bits per byte")


if __name__ == "__main__":
    main()
