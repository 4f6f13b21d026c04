"""What a layer does inside its attention."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class AttentionSpec:
    """What a layer does inside its attention, as the layer itself declared it on a first pass.

    Attributes:
        scale: Factor on the logits.
        cap: Soft cap c of c * tanh(logit / c), None for none.
        window: Sliding window: keys that a query sees, itself included, None for all.
        sinks: Whether each head has a sink, a further logit that takes a share of every row and gives nothing.
        causal: Whether a query sees no later keys. If it does, a sliding window of w hides keys w or more tokens before
            or after it.
        bias: Whether a bias by the distance of query and key is added to the logits, before any temperature.
    """

    scale: float
    cap: float | None
    window: int | None
    sinks: bool = False
    causal: bool = True
    bias: bool = False

    @property
    def stated(self) -> dict[str, object]:
        """As plain values; `bias`, which few layers have, for those alone."""
        values = asdict(self)
        return values if self.bias else {name: value for name, value in values.items() if name != "bias"}
