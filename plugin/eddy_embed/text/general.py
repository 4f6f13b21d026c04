"""General text that Eddy ships: passages and questions of its own, in several languages, to calibrate models on."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("general_text.json")
"""The text."""


class GeneralText(NamedTuple):
    """General passages and questions, and what names them in fingerprints."""

    passages: list[str]
    questions: list[str]
    name: str


@cache
def general_text() -> GeneralText:
    """Read the general text, once."""
    raw = FILE.read_bytes()
    return GeneralText(**json.loads(raw), name=f"general:{hashlib.sha256(raw).hexdigest()[:16]}")
