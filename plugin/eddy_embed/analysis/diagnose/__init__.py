"""What a method makes of texts: length collapse, the space of vectors, attention as a filter, gradients."""

from eddy_embed.analysis.diagnose.results import Diagnosis
from eddy_embed.analysis.diagnose.runner import Extent, diagnose

__all__ = ["Diagnosis", "Extent", "diagnose"]
