"""What a diagnosis found, as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from eddy_embed.encoding.collapse import Sink

Row = list[float]


@dataclass
class CollapseSide:
    """One of the two methods that are compared: with and without TempScale.

    Attributes:
        name: "before" or "after".
        method: In text form.
        cosine: Mean cosine of two texts, by bin of length.
        distance: Mean distance to the centre of all texts, by bin.
        space: Uniformity, alignment, mean cosine, largest shares, effective dimensions and nearest pairs of all texts.
        sigma: sigma_a, the mean over heads and texts, by bin and then by layer from 1 on; empty where attention was
            left out.
        share: High-frequency share of attention, in the same way.
        states: High-frequency share of the states h[0] .., by bin and then by layer.
    """

    name: str
    method: str
    cosine: Row = field(default_factory=list)
    distance: Row = field(default_factory=list)
    space: dict[str, float] = field(default_factory=dict)
    sigma: list[Row] = field(default_factory=list)
    share: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)


@dataclass
class LayerSpectrum:
    """Vectors of all texts at h[layer]: intrinsic dimension, NaN without an estimate, mean cosine and uniformity."""

    layer: int
    dimension: float
    cosine: float
    uniformity: float


@dataclass
class LengthCurve:
    """The mean over texts at each place from beginning to end, and a number for each of the example's tokens."""

    places: Row
    example: Row


@dataclass
class Sensitivity:
    """How much each token moves two readouts: the mean over the text's tokens, and the sequence's last token.

    Gradients are taken along `probes` directions of the readout; the mean of each text's curve is 1. The evenness is
    the share of the tokens that count, see `sensitivity.evenness`. `tokens` are those of the example.
    """

    texts: int
    probes: int
    mean: LengthCurve
    last: LengthCurve
    mean_evenness: float
    last_evenness: float
    tokens: list[str]


@dataclass
class Entries:
    """What tokens pay to the re-routed entries, by layer, counted from 1, the mean over tokens, heads and texts.

    `even` is what it would be if every query paid alike to all that it sees; `curve` is the mean over layers by place.
    `tokens` are those of the example.
    """

    layers: list[int]
    paid: Row
    even: float
    curve: LengthCurve
    tokens: list[str]


@dataclass
class Diagnosis:
    """All that was found, and what was left out with the reason.

    Attributes:
        about: Model, method, fingerprint, texts and settings.
        bins: Lengths in tokens and number of texts, by bin.
        sides: Before and, where it can be run, after TempScale.
        levels: The vectors of the method at each layer.
        even_sigma: By bin, sigma_a of attention that pays alike to every token up to its own; empty for models that
            read in both directions, where it is 0.
        sensitivity: None where it was left out.
        entries: None where it was left out.
        sinks: Tokens whose states dwarf the others' at the exit, those with the largest share of the mean first.
        largest_token: Largest share of one token in the mean, averaged over the texts; None for a method without one.
        left_out: What is not there, and why.
    """

    about: dict[str, Any]
    bins: list[dict[str, Any]]
    sides: list[CollapseSide]
    levels: list[LayerSpectrum] = field(default_factory=list)
    even_sigma: Row = field(default_factory=list)
    sensitivity: Sensitivity | None = None
    entries: Entries | None = None
    sinks: list[Sink] = field(default_factory=list)
    largest_token: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """All of it as plain values for JSON; None in place of NaN."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
