"""A GGUF file mapped into memory, which notices that it is written to."""

from __future__ import annotations

import mmap
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from eddy_embed.errors import ModelNotFound


class MappedFile:
    """A file whose pages are read when they are needed, and dropped when memory is short."""

    def __init__(self, path: Path) -> None:
        """Map a file; what stands in its place later is another file.

        Raises:
            OSError: It cannot be read.
        """
        self.path = path
        self._file = path.open("rb")
        self._state = self._now()
        self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def tensor(self, start: int, size: int) -> torch.Tensor:
        """Return some of the bytes, uint8, shape (size,); they must not be written to."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            return torch.frombuffer(self._bytes, dtype=torch.uint8, count=size, offset=start)

    def check(self) -> None:
        """Raise ModelNotFound if the file has been written to since it was mapped."""
        if self._now() != self._state:
            raise ModelNotFound(
                f"{self.path} has changed since it was opened, so its weights may be of two models; open it again"
            )

    def _now(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def __deepcopy__(self, memo: dict[int, Any]) -> MappedFile:
        return self
