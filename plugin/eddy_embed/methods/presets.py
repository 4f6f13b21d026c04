"""Settings published for particular backbones, and the rule for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddy_embed.backbone import Backbone

_KEY = tuple[str, str, int, int]

# (method, architecture, layers, vocabulary). Token Prepending (Fu et al. 2024): released settings. HTP (Ding et al.
# 2025): table 9.
_RANGES: dict[_KEY, tuple[int, int]] = {
    ("tp", "llama", 32, 32000): (1, 7),
    ("tp", "llama", 40, 32000): (1, 7),
    ("tp", "llama", 32, 128256): (1, 3),
    ("tp", "qwen2", 28, 152064): (1, 6),
    ("tp", "gemma2", 42, 256000): (1, 6),
    ("htp", "mistral", 32, 32768): (1, 7),
    ("htp", "gemma2", 42, 256000): (1, 6),
    ("htp", "qwen2", 28, 151936): (1, 7),
}
_EXITS: dict[_KEY, int] = {
    ("tp", "llama", 32, 32000): -6,
    ("htp", "mistral", 32, 32768): -3,
}


def default_range(methods: list[str], backbone: Backbone) -> tuple[int, int]:
    """The rewire range of a method on a backbone: the published one, or [1, min(7, max(2, L/4))]."""
    fallback = (1, min(7, max(2, backbone.layers // 4), backbone.layers))
    return next((_RANGES[key] for key in _keys(methods, backbone) if key in _RANGES), fallback)


def default_exit(methods: list[str], backbone: Backbone) -> int:
    """The exit layer of a method that re-wires, on a backbone: the published one, or -2."""
    return next((_EXITS[key] for key in _keys(methods, backbone) if key in _EXITS), -2)


def _keys(methods: list[str], backbone: Backbone) -> list[_KEY]:
    return [(method, backbone.architecture, backbone.layers, backbone.vocabulary) for method in methods]
