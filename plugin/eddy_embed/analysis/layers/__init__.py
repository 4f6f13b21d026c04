"""Which layers `kv` may re-route in a model: by the intrinsic dimension of its states on sentences of your own."""

from eddy_embed.analysis.layers.measure import LayerMeasurement, draw, measure, read_sentences
from eddy_embed.methods.kv import Proposal, clear_minima, propose
from eddy_embed.utils.intrinsic_dimension import intrinsic_dimension

__all__ = [
    "LayerMeasurement",
    "Proposal",
    "clear_minima",
    "draw",
    "intrinsic_dimension",
    "measure",
    "propose",
    "read_sentences",
]
