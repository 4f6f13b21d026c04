"""Settings published for particular backbones, and the rule for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    from eddy_embed.methods.method import Term
    from eddy_embed.model.backbone import Backbone

_KEY = tuple[str, str, int, int]
_Shape = tuple[str, int, int, int]

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
    ("tp:prompteol", "llama", 32, 32000): -6,
    ("tp:metaeol", "llama", 32, 32000): -6,
    ("tp:cot", "llama", 32, 32000): -6,
    ("htp", "mistral", 32, 32768): -3,
}


# (architecture, layers, hidden, vocabulary) to layers counted from 1. KV-Embedding: those of its experiments. The last
# is eddy-tiny: what `eddy layers` prints for the shipped weights on the held-out text of their corpus; on other text it
# proposes more layers beside this one.
_KV_LAYERS: dict[_Shape, tuple[int, ...]] = {
    ("qwen3", 36, 2560, 151936): tuple(range(13, 23)),
    ("mistral", 32, 4096, 32000): tuple(range(14, 21)),
    ("llama", 32, 4096, 128256): (11, 12, 21, *range(27, 33)),
    ("llama", 8, 320, 8192): (5,),
}


def default_layers(backbone: Backbone) -> tuple[int, ...]:
    """The layers that KV-Embedding re-routes on a backbone.

    Raises:
        InvalidParameter: None are published for it.
    """
    shape = (backbone.architecture, backbone.layers, backbone.hidden, backbone.vocabulary)
    if shape not in _KV_LAYERS:
        raise InvalidParameter(
            f"kv: no layers are known for a {backbone.architecture} model of {backbone.layers} layers and width "
            f"{backbone.hidden}; `eddy layers MODEL --sample FILE` finds them on sentences of yours and prints the "
            "method to use, such as kv:layers=13-22"
        )
    return _KV_LAYERS[shape]


def published_names(terms: tuple[Term, ...]) -> list[str]:
    """Names under which a method's settings may have been published, Token Prepending's with and without its prompt."""
    prompts = [dict(term.parameters).get("prompt", "plain") for term in terms if term.name == "tp"]
    # A prompt that is joined is the one that Token Prepending stands on.
    prompts += [term.name for term in terms if prompts and term.name != "tp"]
    return [*(f"tp:{prompt}" for prompt in prompts), *(term.name for term in terms)]


def default_range(methods: list[str], backbone: Backbone) -> tuple[int, int]:
    """The rewire range of a method on a backbone: the published one, or [1, min(7, max(2, L/4))].

    An embedding model is rewired on [1, min(7, L)], and read at its last layer.
    """
    if backbone.pooling is not None:
        return 1, min(7, backbone.layers)
    fallback = (1, min(7, max(2, backbone.layers // 4), backbone.layers))
    # HTP without an entry of its own takes Token Prepending's.
    keys = _keys([*methods, "tp"] if "htp" in methods else methods, backbone)
    return next((_RANGES[key] for key in keys if key in _RANGES), fallback)


def default_exit(methods: list[str], backbone: Backbone) -> int:
    """The exit layer of a method that re-wires, on a backbone: the published one, or -2; the last of an embedder's."""
    if backbone.pooling is not None:
        return -1
    return next((_EXITS[key] for key in _keys(methods, backbone) if key in _EXITS), -2)


def _keys(methods: list[str], backbone: Backbone) -> list[_KEY]:
    return [(method, backbone.architecture, backbone.layers, backbone.vocabulary) for method in methods]
