"""What a method makes of texts: length collapse, the space of vectors, attention as a filter, gradients."""

from eddy_embed.diagnose.found import Diagnosis
from eddy_embed.diagnose.run import Extent, diagnose

__all__ = ["Diagnosis", "Extent", "diagnose"]
