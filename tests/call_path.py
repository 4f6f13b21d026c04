"""The files of ours that one call runs through, in the order in which they are entered."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def steps(call: Callable[[], object]) -> list[str]:
    """The file of each function that runs, as `plugin/eddy_embed/...`; code that runs at import does not count."""
    files: list[str] = []
    ours = tuple(f"{ROOT / folder}/" for folder in ("plugin", "adapters"))

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(ours):
            files.append(str(Path(code.co_filename).relative_to(ROOT)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def moves(files: list[str]) -> int:
    """How often the next function is in another file than the one before."""
    return sum(file != other for file, other in pairwise(files))
