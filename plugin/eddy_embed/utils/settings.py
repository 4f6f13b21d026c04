"""Settings as plain values: their hash, and in what two embedders' settings differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any


def contrast(made: Mapping[str, Any], opened: Mapping[str, Any]) -> str:
    """Say in what the settings of two embedders differ: "made with `htp`, opened with `plain`".

    Of both it reads `method` and `model_name`.
    """
    names = [name for name in ("method", "model_name") if made.get(name) != opened.get(name)]
    if not names:
        return f"made with other weights, settings or versions of `{opened.get('method')}`"
    one, other = (" on ".join(f"`{settings.get(name)}`" for name in names) for settings in (made, opened))
    return f"made with {one}, opened with {other}"


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every plain value of nested dictionaries, by the names that lead to it, joined by points."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return names of the plain values in which two nested dictionaries differ, with both values; None: absent."""
    one, other = dict(leaves(there)), dict(leaves(here))
    return [(name, one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)]


def digest(settings: dict[str, Any]) -> str:
    """Return the hash of plain values, the same in every process."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:32]


_LEFT_OUT = {"specials": False, "init": "scaled", "last_layer_only": False, "power": 1.0, "below": ()}
"""Fields that count only where they differ from these values."""


def part_settings(part: Any) -> dict[str, Any]:
    """Return the fields of a method's part that enter its fingerprint; a start token enters by its ids, elsewhere."""
    fields = asdict(part).items()
    return {name: value for name, value in fields if name != "start" and _LEFT_OUT.get(name, ...) != value}
