"""Every method by its name, in Python and as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.methods.echo import echo
from eddy_embed.methods.htp import htp
from eddy_embed.methods.kv import kv, reroute
from eddy_embed.methods.method import Method, parse_terms
from eddy_embed.methods.plain import last2avg, plain, readout
from eddy_embed.methods.postprocessing import abtt, centre, post_method, truncate, whiten
from eddy_embed.methods.prompts import cot, knowledge, metaeol, prompteol
from eddy_embed.methods.published import default_exit, default_layers, default_range, published_names
from eddy_embed.methods.reba import reba
from eddy_embed.methods.registry import build_term, describe, names, register
from eddy_embed.methods.tempscale import tempscale
from eddy_embed.methods.tp import tp

if TYPE_CHECKING:
    from eddy_embed.model.backbone import Backbone
    from eddy_embed.parts.attention import ExtraKeyValues
    from eddy_embed.parts.postprocess import Post
    from eddy_embed.parts.readout import Readout

__all__ = [
    "abtt",
    "centre",
    "cot",
    "describe",
    "echo",
    "htp",
    "knowledge",
    "kv",
    "last2avg",
    "metaeol",
    "names",
    "parse",
    "plain",
    "prompteol",
    "readout",
    "reba",
    "register",
    "reroute",
    "resolve",
    "tempscale",
    "tp",
    "truncate",
    "whiten",
    "with_post",
    "without_temperature",
]

_WHOLE: list[Callable[..., Method]] = [plain, prompteol, cot, knowledge, metaeol, echo, tp, htp, kv, reba]
_JOINED: list[Callable[..., Method]] = [reroute, tempscale, readout, last2avg, centre, abtt, whiten, truncate]
for _method in _WHOLE + _JOINED:
    register(_method)


def parse(text: str) -> Method:
    """A method from its text form, such as `htp:range=1-7,exit=-2`.

    Raises:
        UnknownMethod: No method has that name.
        InvalidParameter: A parameter is unknown, or its value is wrong.
        IncompatibleMethods: Two joined methods set the same part.
    """
    if not isinstance(text, str):
        raise InvalidParameter(f"method must be a text such as 'htp' or a Method, not {text!r}")
    built = [build_term(term) for term in parse_terms(text.strip())]
    # The readout that settles the others' conflict comes first, wherever it stands in the text.
    first, *more = sorted(built, key=lambda method: not method.decides)
    method = first
    for other in more:
        method = method | other
    return replace(method, terms=tuple(term for each in built for term in each.terms) if method.terms else ())


def resolve(method: Method, backbone: Backbone) -> Method:
    """The same method with every default that depends on the backbone filled in.

    Raises:
        InvalidParameter: The method names layers that the backbone does not have, or has no effect on it.
        UnsupportedModel: It names no pooling, and the model was trained to be read in a way that is not supported.
    """
    rewire, read = method.rewire, method.readout
    if read is None:
        raise InvalidParameter(f"{method} has no readout; join it with a method that has one, such as plain")
    used = published_names(method.terms)
    if read.exit is None:
        read = replace(read, exit=default_exit(used, backbone))
    exit_layer = read.layer(backbone.layers)
    read = replace(_pooled(read, method, backbone), exit=exit_layer)
    if read.placeholders and not (method.layout and (method.layout.placeholders or method.layout.blocks)):
        raise InvalidParameter(f"{method}: there are no placeholders to be averaged; leave placeholders=true out")
    if method.average is not None:
        method.average.layers(exit_layer)
    if rewire is not None:
        start, end = rewire.span or default_range(used, backbone)
        if end > backbone.layers:
            raise InvalidParameter(f"range={start}-{end} ends above the model's {backbone.layers} layers")
        rewire = replace(rewire, span=(start, end))
        pools_copies = read.placeholders and exit_layer >= start
        if start < end and not rewire.inputs(exit_layer) and not pools_copies:
            raise InvalidParameter(
                f"{method}: the pass ends at layer {exit_layer}, below layer {start + 1} where the copies begin, so "
                "they would have no effect; choose a later exit or an earlier range"
            )
    if method.watch is not None and exit_layer == 0:
        raise InvalidParameter(
            f"{method}: exit=0 is below the first layer, where there is no attention yet; choose a later exit"
        )
    reroute = _rerouted(method, backbone, exit_layer)
    return replace(method, layout=method.layout or plain().layout, rewire=rewire, reroute=reroute, readout=read)


def _pooled(read: Readout, method: Method, backbone: Backbone) -> Readout:
    """The readout with its pooling filled in: what the model was trained with, or the mean.

    An embedding model's mean covers all that its sequence holds beside placeholders. Under a wording of a method's own
    it covers what the method's mean covers.
    """
    own = backbone.pooling
    if read.pool is not None:
        return read
    if own is None:
        return replace(read, pool="mean")
    if own.pool is None:
        raise UnsupportedModel(
            f"the model was trained to be read by {own.named}, which is not supported; name another pooling, as in "
            "plain:pool=mean"
        )
    worded = method.layout is not None and "template" in method.layout.chosen
    if worded or own.pool not in ("mean", "weighted"):
        return replace(read, pool=own.pool)
    return replace(read, pool=own.pool, prompt=read.prompt or own.prompt, specials=True)


def _rerouted(method: Method, backbone: Backbone, exit_layer: int) -> ExtraKeyValues | None:
    if method.reroute is None:
        return None
    layers = default_layers(backbone) if method.reroute.layers is None else method.reroute.layers
    if layers and layers[-1] > backbone.layers:
        raise InvalidParameter(f"kv: layer {layers[-1]} is above the model's {backbone.layers} layers")
    if layers and layers[0] > exit_layer:
        raise InvalidParameter(
            f"{method}: the pass ends at layer {exit_layer}, below the first re-routed layer {layers[0]}, so the "
            "entries would have no effect; choose a later exit or earlier layers"
        )
    return replace(method.reroute, layers=layers)


def without_temperature(method: Method) -> Method:
    """The same method with attention as sharp as the model has it."""
    terms = tuple(term for term in method.terms if build_term(term).temperature is None)
    return replace(method, temperature=None, terms=terms)


def with_post(method: Method, post: Post | None) -> Method:
    """The same method with other post-processing, or with none."""
    terms = tuple(term for term in method.terms if build_term(term).post is None)
    if post is not None and method.terms:
        terms += post_method(post).terms
    return replace(method, post=post, terms=terms)
