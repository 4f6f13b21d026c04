"""Inside attention: temperature, sinks, re-routed entries, a watch, and kernels; none builds an n x n matrix.

Whole sequences go through torch's fused attention. `blocked` walks over blocks of queries, for layers whose
logits are capped, which no fused kernel does, or whose window hides distant keys; scores in float32 (float64 for
float64 queries). The kernels of a layer are chosen when the model is loaded (`choice`), and never changed.
"""

from __future__ import annotations

from eddy_embed.attention.blocked import SCORES
from eddy_embed.attention.choice import BLOCKED, OWN, Kernel, Kernels, Place, choose
from eddy_embed.attention.dispatch import attend
from eddy_embed.attention.entries import Angles, entry_keys
from eddy_embed.attention.groups import Group, group
from eddy_embed.attention.rows import Rows
from eddy_embed.attention.settings import Reroute, Temperature, Traits
from eddy_embed.attention.watch import Watch, Watcher, Watching

__all__ = [
    "BLOCKED",
    "OWN",
    "SCORES",
    "Angles",
    "Group",
    "Kernel",
    "Kernels",
    "Place",
    "Reroute",
    "Rows",
    "Temperature",
    "Traits",
    "Watch",
    "Watcher",
    "Watching",
    "attend",
    "choose",
    "entry_keys",
    "group",
]
