"""GGUF files as folders that transformers reads, each made once and kept in a cache."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import torch
from filelock import FileLock
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedConfig

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.loading.gguf.cache import ABOUT, CACHE, CacheEntry, cache_folder, digest_of
from eddy_embed.model.loading.gguf.config import ROPE_TENSORS, config_of
from eddy_embed.model.loading.gguf.header import HUB, GgufFile
from eddy_embed.model.loading.gguf.tokenizer import tokenizer_of

_SPARE = 64 * 2**20
"""Bytes of disk that a conversion leaves free."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def converted(file: GgufFile, dtype: torch.dtype) -> Path:
    """The folder of a GGUF file's model in transformers' format, its weights in `dtype`; made if it is not there.

    One process converts, others wait for it. The cache holds an entry for each content of a file and each dtype.

    Raises:
        UnsupportedModel: The file is not one that can be converted exactly.
        OSError: The cache cannot be written to, or its disk has no room; nothing is left behind.
    """
    path = file.path.resolve()
    named = str(dtype).removeprefix("torch.")
    digest = digest_of(path)
    folder = cache_folder() / "models" / f"{digest[:32]}-{named}"
    if CacheEntry.read(folder):
        return folder
    file.check()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = f"{error.strerror}: the cache of converted models; name another folder by {CACHE}"
        raise OSError(error.errno, said, str(folder.parent)) from None
    with FileLock(f"{folder}.lock"):
        if CacheEntry.read(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        with _part(folder, file.values * dtype.itemsize) as part:
            _convert(file, part, digest, dtype)
            files = {each.name: each.stat().st_size for each in sorted(part.iterdir())}
            entry = CacheEntry(str(path), digest, named, files)
            (part / ABOUT).write_text(json.dumps(asdict(entry), indent=2), encoding="utf-8")
    return folder


def _convert(file: GgufFile, folder: Path, digest: str, dtype: torch.dtype) -> None:
    name = file.metadata.get("general.name") or file.path.name
    sys.stderr.write(f"Converting {name} ({file.quantisation}) from GGUF; later openings skip this.\n")
    started = time.monotonic()
    tokenizer = tokenizer_of(file)
    config = config_of(file, gguf_digest=digest)
    _check_size(file, config)
    with _names_mapped_once():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,  # empty: the file is named by its whole path
            config=config,
            trust_remote_code=False,
            gguf_file=str(file.path),
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported in `info`, and refused below
        )
    model, info = loaded
    if absent := [*info["missing_keys"], *map(str, info["mismatched_keys"])]:
        raise UnsupportedModel(f"{file.path} lacks {absent[0]}, or it has another shape; {HUB}")
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sys.stderr.write(f"Converted in {time.monotonic() - started:.0f} s, to {folder.parent}.\n")


_mapping = threading.Lock()


@contextmanager
def _names_mapped_once() -> Iterator[None]:
    """Make the table of a model's tensor names once: transformers asks for it again at every module, for seconds."""
    library: Any = gguf
    with _mapping:  # a second conversion would put the first one's function back
        usual = library.get_tensor_name_map
        library.get_tensor_name_map = cache(usual)
        try:
            yield
        finally:
            library.get_tensor_name_map = usual


def _check_size(file: GgufFile, config: PreTrainedConfig) -> None:
    """Refuse a file with other values than the model has, before memory is set aside for it."""
    make: Any = AutoModelForCausalLM  # which has no types
    with torch.device("meta"):
        model = make.from_config(config, trust_remote_code=False)
    wanted = sum(parameter.numel() for parameter in model.parameters())
    settings = {f"rope_{name}.weight" for name in ROPE_TENSORS}
    held = file.values - sum(each.values for each in file.tensors if each.name in settings)
    if wanted != held:
        raise UnsupportedModel(f"{file.path}: {held:,} values in the file, {wanted:,} in {type(model).__name__}; {HUB}")


@contextmanager
def _part(folder: Path, needed: int) -> Iterator[Path]:
    """A folder beside an entry's place that takes this place when it is complete, and is removed on an error."""
    free = shutil.disk_usage(folder.parent).free
    if free < needed + _SPARE:
        raise _no_room(folder, needed, free)
    for stale in folder.parent.glob(f".{folder.name}.*.part"):  # of a process that was killed: its lock is free
        shutil.rmtree(stale, ignore_errors=True)
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        os.replace(part, folder)
    except (OSError, SafetensorError) as error:
        # safetensors gives the number in its words alone.
        if any(f"rror {number}" in str(error) or f"no {number}]" in str(error) for number in _FULL):
            raise _no_room(folder, needed, shutil.disk_usage(folder.parent).free) from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _no_room(folder: Path, needed: int, free: int) -> OSError:
    said = f"the converted model takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    return OSError(errno.ENOSPC, f"{said}; make room, or name a folder on another disk by {CACHE}", str(folder.parent))
