"""Which layers `kv` may re-route in a model: by the intrinsic dimension of its states on sentences of your own."""

from eddy_embed.analysis.layers.intrinsic_dimension import intrinsic_dimension
from eddy_embed.analysis.layers.measure import FEWEST, SENTENCES, LayerMeasurement, different_states, draw, measure
from eddy_embed.analysis.layers.proposal import Proposal, clear_minima, propose
from eddy_embed.analysis.layers.sentences import read_sentences

__all__ = [
    "FEWEST",
    "SENTENCES",
    "LayerMeasurement",
    "Proposal",
    "clear_minima",
    "different_states",
    "draw",
    "intrinsic_dimension",
    "measure",
    "propose",
    "read_sentences",
]
