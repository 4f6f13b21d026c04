"""Checkpoints: a folder of safetensors files of limited size and a JSON file, written all or nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]


def save(
    folder: Path, step: int, tensors: Tensors, facts: dict[str, Any], part_mib: float = 16.0, keep: int = 2
) -> Path:
    """Write ``folder/step-NNNNNN`` in files of at most ``part_mib``; remove all checkpoints but the newest ``keep``."""
    target = folder / f"step-{step:06d}"
    draft = folder / f".{target.name}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    limit = int(part_mib * 2**20) - 64 * 1024  # room for the file's header
    part: Tensors = {}
    size = number = 0
    for name, tensor in tensors.items():
        if part and size + tensor.nbytes > limit:
            save_file(part, draft / f"part-{number:02d}.safetensors")
            part, size, number = {}, 0, number + 1
        part[name] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
    save_file(part, draft / f"part-{number:02d}.safetensors")
    (draft / "state.json").write_text(json.dumps({"step": step, **facts}, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    os.replace(draft, target)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def latest(folder: Path) -> Path:
    """Newest checkpoint of a run."""
    found = checkpoints(folder)
    if not found:
        raise FileNotFoundError(f"no checkpoint step-NNNNNN in {folder}: train first")
    return found[-1]


def load(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and facts of a checkpoint."""
    tensors: Tensors = {}
    for part in sorted(path.glob("part-*.safetensors")):
        tensors.update(load_file(part))
    return tensors, json.loads((path / "state.json").read_text(encoding="utf-8"))
