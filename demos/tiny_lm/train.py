"""Pre-train a Llama by next-token prediction with transformers' Trainer; run it again to go on."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tiny_lm.data import Recipe, Steps
from tiny_lm.prepare import BOS_ID, EOS_ID, PAD_ID, WINDOW

SHAPE = {"hidden_size": 320, "num_hidden_layers": 8, "num_attention_heads": 5, "intermediate_size": 640}
"""eddy-tiny's: 10.8 M parameters."""


def new_model(shape: dict[str, int], vocab_size: int, seed: int) -> LlamaForCausalLM:
    """A Llama with tied embeddings and random float32 weights.

    Matrices are normal with standard deviation 0.02 (embedding) or 1/sqrt(fan-in), divided by sqrt(2 L) where they
    write to the residual stream (GPT-2); norms are one.
    """
    special = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    fixed = {"max_position_embeddings": WINDOW, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, **special}
    config = LlamaConfig(vocab_size=vocab_size, **fixed, **shape)
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            std = 0.02 if "embed_tokens" in name else weight.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * config.num_hidden_layers)
            torch.nn.init.normal_(weight, std=std, generator=generator)
    return model


class MuonAndAdamW(Optimizer):
    """torch's Muon for the matrices inside the layers, its AdamW for the embedding and the norms."""

    def __init__(self, model: torch.nn.Module) -> None:
        weights = dict(model.named_parameters())
        inside = [n for n, weight in weights.items() if weight.ndim == 2 and "embed_tokens" not in n]
        others = [weights[n] for n in weights if n not in inside]
        self.both: list[Optimizer] = [
            AdamW(others, lr=0.003, betas=(0.9, 0.95), weight_decay=0.0),
            Muon([weights[n] for n in inside], lr=0.02, weight_decay=0.01, momentum=0.95),
        ]
        super().__init__([group for each in self.both for group in each.param_groups], {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Let both do their step."""
        for each in self.both:
            each.step()

    def state_dict(self) -> dict[str, Any]:
        """What both keep."""
        return {"both": [each.state_dict() for each in self.both]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set what both keep."""
        for each, state in zip(self.both, state_dict["both"], strict=True):
            each.load_state_dict(state)
        self.param_groups = [group for each in self.both for group in each.param_groups]


def train(data: Path, run: Path, recipe: Recipe, shape: dict[str, int] = SHAPE, **arguments: Any) -> None:
    """Train, or go on from the newest checkpoint, and write the model in bfloat16 to `run`/model.

    Args:
        data: Folder that `prepare` wrote.
        run: Folder of checkpoints.
        recipe: What is read, at which rates.
        shape: Sizes of the network, as `LlamaConfig` names them.
        **arguments: Further arguments of transformers' `TrainingArguments`.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(data)
    model, steps = new_model(shape, len(tokenizer), recipe.seed), Steps(data, recipe)
    optimizer, (knots, factors) = MuonAndAdamW(model), zip(*recipe.schedule, strict=True)
    settings = TrainingArguments(
        output_dir=str(run),
        max_steps=len(steps),
        per_device_train_batch_size=1,  # an item is a whole step
        train_sampling_strategy="sequential",
        use_cache=False,  # with a cache transformers does not keep packed pieces apart
        max_grad_norm=1.0,
        remove_unused_columns=False,
        report_to="none",
        save_total_limit=2,
        **arguments,
    )
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=steps,
        data_collator=lambda items: items[0],
        optimizers=(optimizer, LambdaLR(optimizer, lambda step: float(np.interp(step, knots, factors)))),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run) if run.is_dir() else None)
    model.config.use_cache = True
    model.to(torch.bfloat16).save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--data", type=Path, required=True, help="folder written by prepare")
    parser.add_argument("--run", type=Path, required=True, help="folder of checkpoints and of the model")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of the recipe, such as settings.json")
    parser.add_argument("--save-steps", type=int, default=50, help="steps between checkpoints")
    args = parser.parse_args()
    recipe, cpu = Recipe(**json.loads(args.settings.read_text("utf-8"))), not torch.accelerator.is_available()
    train(args.data, args.run, recipe, bf16=True, use_cpu=cpu, logging_steps=10, save_steps=args.save_steps)


if __name__ == "__main__":
    main()
