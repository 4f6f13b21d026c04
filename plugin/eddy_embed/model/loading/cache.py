"""The folder in which Eddy keeps what it fetched or fitted."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "EDDY_CACHE"
"""The variable that names the folder."""


def cache_folder() -> Path:
    """Where fetched models and calibrations are kept: EDDY_CACHE, else `eddy` in the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "eddy"
