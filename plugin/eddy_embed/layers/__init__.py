"""Which layers `kv` may re-route in a model: by the intrinsic dimension of its states on sentences of your own."""

from eddy_embed.layers.dimension import intrinsic_dimension
from eddy_embed.layers.proposal import Proposal, clear_minima, propose
from eddy_embed.layers.sample import read_sentences
from eddy_embed.layers.states import FEWEST, SENTENCES, Measured, different_states, draw, measure

__all__ = [
    "FEWEST",
    "SENTENCES",
    "Measured",
    "Proposal",
    "clear_minima",
    "different_states",
    "draw",
    "intrinsic_dimension",
    "measure",
    "propose",
    "read_sentences",
]
