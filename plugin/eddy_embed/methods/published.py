"""Defaults of a method that depend on the model: settings published for its backbone, and a rule for others."""

from __future__ import annotations

from dataclasses import replace

from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.methods.method import Method, MethodTerm
from eddy_embed.methods.plain import plain
from eddy_embed.methods.recommended import with_recommended
from eddy_embed.model.backbone import Backbone
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout

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
# is eddy-tiny: what `propose` says of the shipped weights on the held-out text of their corpus; on other text it
# proposes more layers besides this one.
_KV_LAYERS: dict[_Shape, tuple[int, ...]] = {
    ("qwen3", 36, 2560, 151936): tuple(range(13, 23)),
    ("mistral", 32, 4096, 32000): tuple(range(14, 21)),
    ("llama", 32, 4096, 128256): (11, 12, 21, *range(27, 33)),
    ("llama", 8, 320, 8192): (5,),
}


_TOKENS = 8_500
"""That are read to measure a model's layers on general text."""
_A_SECOND = 4e11
"""Operations, on two cores of an ordinary processor."""


def default_layers(backbone: Backbone) -> tuple[int, ...]:
    """Return the layers that KV-Embedding re-routes on a backbone; InvalidParameter if none are published for it."""
    shape = (backbone.architecture, backbone.layers, backbone.hidden, backbone.vocabulary)
    if shape not in _KV_LAYERS:
        operations = 24 * backbone.layers * backbone.hidden**2 * _TOKENS
        raise InvalidParameter(
            f"kv: no layers are known for a {backbone.architecture} model of {backbone.layers} layers and width "
            f"{backbone.hidden}. kv:layers=auto takes those where the states of general sentences have the fewest "
            f"dimensions, measured once, in about {max(1, round(operations / _A_SECOND))} s on two cores; "
            "kv:layers=13-22 names them"
        )
    return _KV_LAYERS[shape]


def published_names(terms: tuple[MethodTerm, ...]) -> list[str]:
    """Return names under which a method may have been published, Token Prepending with and without its prompt."""
    prompts = [dict(term.parameters).get("prompt", "plain") for term in terms if term.name == "tp"]
    # A prompt that is joined to Token Prepending is its prompt.
    prompts += [term.name for term in terms if prompts and term.name != "tp"]
    return [*(f"tp:{prompt}" for prompt in prompts), *(term.name for term in terms)]


def default_range(methods: list[str], backbone: Backbone) -> tuple[int, int]:
    """Return the published rewire range, else [1, min(7, max(2, L/4))]; [1, min(7, L)] for an embedding model."""
    if backbone.pooling is not None:
        return 1, min(7, backbone.layers)
    fallback = (1, min(7, max(2, backbone.layers // 4), backbone.layers))
    # HTP without an entry of its own takes Token Prepending's.
    keys = _keys([*methods, "tp"] if "htp" in methods else methods, backbone)
    return next((_RANGES[key] for key in keys if key in _RANGES), fallback)


def default_exit(methods: list[str], backbone: Backbone) -> int:
    """Return the published exit layer of a method that rewires, else -2; the last of an embedding model."""
    if backbone.pooling is not None:
        return -1
    return next((_EXITS[key] for key in _keys(methods, backbone) if key in _EXITS), -2)


def _keys(methods: list[str], backbone: Backbone) -> list[_KEY]:
    return [(method, backbone.architecture, backbone.layers, backbone.vocabulary) for method in methods]


def resolve(method: Method, backbone: Backbone) -> Method:
    """Return the same method with every default that depends on the backbone filled in.

    Raises:
        InvalidParameter: The method names layers that the backbone does not have, or has no effect on it.
        IncompatibleMethods: The method recommended for the backbone does not go with what it was joined to.
        UnsupportedModel: It names no pooling, and the model was trained with one that is not supported.
    """
    if method.recommended is not None:
        method = with_recommended(method, method.recommended.use, backbone)
    method = read_as_plain(method)
    read = method.readout
    if read is None:
        raise AssertionError("plain has a readout")
    used = published_names(method.terms)
    if read.exit is None:
        read = replace(read, exit=default_exit(used, backbone))
    exit_layer = read.layer(backbone.layers)
    read = replace(_pooled(read, method, backbone), exit=exit_layer)
    if read.placeholders and not (method.layout and (method.layout.placeholders or method.layout.blocks)):
        raise InvalidParameter(f"{method}: there are no placeholders to be averaged; leave placeholders=true out")
    if method.weights is not None and read.pool not in ("mean", "weighted"):
        raise InvalidParameter(
            f"{method}: sif weighs the tokens of a mean, and pool={read.pool} is none; leave sif out, or name pool=mean"
        )
    if method.average is not None:
        method.average.layers(exit_layer)
    rewire = _rewired(method, read, backbone, used)
    if method.watch is not None and exit_layer == 0:
        raise InvalidParameter(
            f"{method}: exit=0 is below the first layer, where there is no attention yet; choose a later exit"
        )
    reroute = _rerouted(method, backbone, exit_layer)
    return replace(method, layout=method.layout or Layout(), rewire=rewire, reroute=reroute, readout=read)


def last_layer(method: Method, backbone: Backbone) -> int:
    """Return the last layer of a model that runs, also to measure it, for a resolved method."""
    return backbone.layers if method.measures_model else method.exit_layer


def read_as_plain(method: Method) -> Method:
    """Join parts that read no vectors, such as a temperature alone, to `plain`, as their papers do."""
    return plain() | method if method.readout is None and method.recommended is None else method


def _pooled(read: Readout, method: Method, backbone: Backbone) -> Readout:
    """Return the readout with its pooling filled in: what the model was trained with, or the mean.

    An embedding model's mean covers its whole sequence except placeholders, but with a wording of the method's own it
    covers what the method's mean covers.
    """
    pooling = backbone.pooling
    if read.pool is not None or pooling is None:
        return replace(read, pool=read.pool or "mean")
    if pooling.pool is None:
        raise UnsupportedModel(
            f"the model was trained to be read by {pooling.named}, which is not supported; name another pooling, as in "
            "plain:pool=mean"
        )
    worded = method.layout is not None and "template" in method.layout.chosen
    if worded or pooling.pool not in ("mean", "weighted"):
        return replace(read, pool=pooling.pool)
    return replace(read, pool=pooling.pool, prompt=read.prompt or pooling.prompt, specials=True)


def _rewired(method: Method, read: Readout, backbone: Backbone, used: list[str]) -> CopyEdges | None:
    if method.rewire is None:
        return None
    start, end = method.rewire.span or default_range(used, backbone)
    if end > backbone.layers:
        raise InvalidParameter(f"range={start}-{end} ends above the model's {backbone.layers} layers")
    rewire, exit_layer = replace(method.rewire, span=(start, end)), read.layer(backbone.layers)
    pools_copies = read.placeholders and exit_layer >= start
    if start < end and not rewire.inputs(exit_layer) and not pools_copies:
        raise InvalidParameter(
            f"{method}: the pass ends at layer {exit_layer}, below layer {start + 1} where the copies begin, so they "
            "would have no effect; choose a later exit or an earlier range"
        )
    return rewire


def _rerouted(method: Method, backbone: Backbone, exit_layer: int) -> ExtraKeyValues | None:
    if method.reroute is None:
        return None
    if method.measures_model:  # they are found once the model is loaded
        return method.reroute
    layers = method.reroute.known if method.reroute.layers is not None else default_layers(backbone)
    if layers and layers[-1] > backbone.layers:
        raise InvalidParameter(f"kv: layer {layers[-1]} is above the model's {backbone.layers} layers")
    if layers and layers[0] > exit_layer:
        raise InvalidParameter(
            f"{method}: the pass ends at layer {exit_layer}, below the first re-routed layer {layers[0]}, so the "
            "entries would have no effect; choose a later exit or earlier layers"
        )
    return replace(method.reroute, layers=layers)
