"""Inside attention: temperature, sinks, extra entries, a watcher, and kernels; none builds an n x n matrix.

Whole sequences go through torch's fused attention, a long one in bfloat16 on a processor through matrix products
(`bfloat16`). `blocked` loops over blocks of queries, for layers with capped logits, which no fused kernel has, or with
a sliding window; scores in float32 (float64 for float64 queries). A layer's kernels are chosen when the model is loaded
(`choose`), and never changed.
"""

from __future__ import annotations

from eddy_embed.model.attention.blocked import SCORES
from eddy_embed.model.attention.extra_entries import Angles, entry_keys
from eddy_embed.model.attention.groups import Group, group
from eddy_embed.model.attention.kernels import (
    BLOCKED,
    OWN,
    DeviceInfo,
    Kernel,
    KernelChoice,
    attend,
    choose,
    group_for,
)
from eddy_embed.model.attention.spec import AttentionSpec
from eddy_embed.model.attention.watcher import AttentionRecorder

__all__ = [
    "BLOCKED",
    "OWN",
    "SCORES",
    "Angles",
    "AttentionRecorder",
    "AttentionSpec",
    "DeviceInfo",
    "Group",
    "Kernel",
    "KernelChoice",
    "attend",
    "choose",
    "entry_keys",
    "group",
    "group_for",
]
