"""Averages of layers: the comparison row that needs no training of BERT-flow (Li et al. 2020)."""

from __future__ import annotations

from eddy_embed.methods.build import build
from eddy_embed.methods.method import Method
from eddy_embed.parts.readout import LayerMean


def last2avg() -> Method:
    """The mean of the exit layer and the one below it, before pooling; join it to a method that has a readout."""
    return build(last2avg, {}, average=LayerMean(2))
