"""Every method by its name, in Python and as text."""

from __future__ import annotations

from collections.abc import Callable

from eddy_embed.methods.htp import htp
from eddy_embed.methods.kv import kv, reroute
from eddy_embed.methods.method import Method
from eddy_embed.methods.plain import last2avg, plain, readout, sif, start
from eddy_embed.methods.postprocessing import abtt, centre, filter, truncate, whiten, with_post
from eddy_embed.methods.prompts import cot, echo, knowledge, metaeol, prompteol
from eddy_embed.methods.published import resolve
from eddy_embed.methods.reba import reba
from eddy_embed.methods.recommended import entry_for, recommended
from eddy_embed.methods.registry import describe, names, parse, register
from eddy_embed.methods.tempscale import tempscale, without_temperature
from eddy_embed.methods.tp import tp

__all__ = [
    "abtt",
    "centre",
    "cot",
    "describe",
    "echo",
    "entry_for",
    "filter",
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
    "recommended",
    "register",
    "reroute",
    "resolve",
    "sif",
    "start",
    "tempscale",
    "tp",
    "truncate",
    "whiten",
    "with_post",
    "without_temperature",
]

_WHOLE: list[Callable[..., Method]] = [plain, prompteol, cot, knowledge, metaeol, echo, tp, htp, kv, reba]
_JOINED: list[Callable[..., Method]] = [
    reroute,
    tempscale,
    start,
    sif,
    readout,
    last2avg,
    filter,
    centre,
    abtt,
    whiten,
    truncate,
]
for _method in [recommended, *_WHOLE, *_JOINED]:
    register(_method)
