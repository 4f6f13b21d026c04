"""The fields of a part as plain values, as settings, fingerprints and digests hold them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

_OMITTED_DEFAULTS = {"specials": False, "init": "scaled", "last_layer_only": False, "power": 1.0, "first": False}
"""Fields that are younger than fingerprints, and their defaults."""


def settings_of(part: Any) -> dict[str, Any]:
    """The fields of a part; `_OMITTED_DEFAULTS` ones only if they are set, and no `start`, which fingerprints hold."""
    return {
        name: value
        for name, value in asdict(part).items()
        if name != "start" and _OMITTED_DEFAULTS.get(name, ...) != value
    }
