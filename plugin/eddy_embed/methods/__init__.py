"""Every method by its name, in Python and as text; `eddy methods` lists them in the order in which they come here."""

# ruff: isort: skip_file
from __future__ import annotations

from eddy_embed.methods.registry import describe as describe, names as names, parse as parse, register as register
from eddy_embed.methods.recommended import best as best, entry_for as entry_for, fast as fast
from eddy_embed.methods.recommended import recommended as recommended
from eddy_embed.methods.plain import last2avg as last2avg, layeravg as layeravg, plain as plain
from eddy_embed.methods.plain import readout as readout
from eddy_embed.methods.plain import sif as sif, start as start
from eddy_embed.methods.prompts import cot as cot, echo as echo, knowledge as knowledge
from eddy_embed.methods.prompts import metaeol as metaeol, prompteol as prompteol
from eddy_embed.methods.tp import tp as tp
from eddy_embed.methods.htp import htp as htp
from eddy_embed.methods.kv import kv as kv, reroute as reroute
from eddy_embed.methods.reba import reba as reba
from eddy_embed.methods.tempscale import tempscale as tempscale
from eddy_embed.methods.postprocessing import abtt as abtt, centre as centre, filter as filter
from eddy_embed.methods.postprocessing import standardise as standardise, truncate as truncate, whiten as whiten
from eddy_embed.methods.postprocessing import with_post as with_post
from eddy_embed.methods.published import resolve as resolve
