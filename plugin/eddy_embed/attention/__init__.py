"""Inside attention: temperature, re-routed entries, a watch, and two kernels; neither builds an n x n matrix.

`fused` hands whole sequences to torch's fused causal attention. `blocked` walks over blocks of queries, for layers
whose logits are capped, which no fused kernel does, or whose window hides distant keys; scores in float32 (float64 for
float64 queries). The kernel of a layer is chosen when the model is loaded, and never changed.
"""

from __future__ import annotations

from eddy_embed.attention.dispatch import attend
from eddy_embed.attention.groups import Group, group
from eddy_embed.attention.settings import Kernel, Reroute, Temperature, Traits
from eddy_embed.attention.watch import Watch, Watching

__all__ = ["Group", "Kernel", "Reroute", "Temperature", "Traits", "Watch", "Watching", "attend", "group"]
