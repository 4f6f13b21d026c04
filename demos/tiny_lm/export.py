"""Write a checkpoint as a model folder that ``transformers`` and Eddy load: bfloat16 safetensors and the tokenizer."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from tiny_lm import checkpoint
from tiny_lm.model import NetworkShape
from tiny_lm.prepare import BOS_ID, EOS_ID, PAD_ID

MAX_BYTES = 40_000_000


def llama_config(shape: NetworkShape) -> LlamaConfig:
    """The configuration under which ``LlamaForCausalLM`` computes what was trained."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.head_dim,
        hidden_act="silu",
        max_position_embeddings=shape.window,
        rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
        attention_dropout=0.0,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        dtype="bfloat16",
    )


def export(path: Path, data: Path, out: Path) -> Path:
    """Write the folder of a model from a checkpoint, or the newest of a run, with the tokenizer in ``data``."""
    chosen = path if (path / "state.json").is_file() else checkpoint.latest(path)
    tensors, facts = checkpoint.load(chosen)
    meta = json.loads((data / "meta.json").read_text(encoding="utf-8"))
    if facts["tokenizer"] != meta["tokenizer_sha256"]:
        raise ValueError(f"{chosen} was trained with another tokenizer than {data} holds: give the data of the run")
    weights = {n.removeprefix("w."): w.to(torch.bfloat16) for n, w in tensors.items() if n.startswith("w.")}
    size = sum(w.nbytes for w in weights.values())
    if size > MAX_BYTES:
        raise ValueError(f"{size} bytes of weights are over the limit of {MAX_BYTES}: train a smaller shape")
    out.mkdir(parents=True, exist_ok=True)
    llama_config(NetworkShape(**facts["settings"]["shape"])).save_pretrained(out)
    draft = out / "model.safetensors.tmp"
    save_file(weights, draft, metadata={"format": "pt", "steps": str(facts["step"]), "tokens": str(facts["seen"])})
    draft.chmod(0o644)  # safetensors writes for the owner alone
    draft.replace(out / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(data / name, out / name)
    return out / "model.safetensors"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write a checkpoint as a model folder.")
    parser.add_argument("--run", type=Path, required=True, help="folder of checkpoints, or one checkpoint")
    parser.add_argument("--data", type=Path, required=True, help="folder written by prepare")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    args = parser.parse_args()
    export(args.run, args.data, args.out)


if __name__ == "__main__":
    main()
