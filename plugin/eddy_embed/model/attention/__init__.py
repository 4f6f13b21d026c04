"""Inside attention: temperature, sinks, re-routed entries, a watch, and kernels; none builds an n x n matrix.

Whole sequences go through torch's fused attention. `blocked` walks over blocks of queries, for layers whose
logits are capped, which no fused kernel does, or whose window hides distant keys; scores in float32 (float64 for
float64 queries). The kernels of a layer are chosen when the model is loaded (`choice`), and never changed.
"""

from __future__ import annotations

from eddy_embed.model.attention.blocked import SCORES
from eddy_embed.model.attention.extra_entries import Angles, entry_keys
from eddy_embed.model.attention.groups import Group, group
from eddy_embed.model.attention.kernels import BLOCKED, OWN, DeviceInfo, Kernel, KernelChoice, attend, choose
from eddy_embed.model.attention.row_scores import Rows
from eddy_embed.model.attention.traits import AttentionSpec
from eddy_embed.model.attention.watcher import AttentionRecorder, AttentionWatcher

__all__ = [
    "BLOCKED",
    "OWN",
    "SCORES",
    "Angles",
    "AttentionRecorder",
    "AttentionSpec",
    "AttentionWatcher",
    "DeviceInfo",
    "Group",
    "Kernel",
    "KernelChoice",
    "Rows",
    "attend",
    "choose",
    "entry_keys",
    "group",
]
