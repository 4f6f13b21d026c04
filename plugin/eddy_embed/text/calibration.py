"""General text that Eddy ships, in several languages, to calibrate models on."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("calibration_text.json")
"""The text."""


class CalibrationText(NamedTuple):
    """General passages and questions, and what names them in fingerprints."""

    passages: list[str]
    questions: list[str]
    name: str


@cache
def calibration_text() -> CalibrationText:
    """Read the general text, once."""
    raw = FILE.read_bytes()
    return CalibrationText(**json.loads(raw), name=f"general:{hashlib.sha256(raw).hexdigest()[:16]}")
