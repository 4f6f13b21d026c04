"""Variants of the placeholder methods, where a reference does not show them: long texts, tokens by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import embedder

from eddy_embed.placeholders import Blocks

LONG = "One. Two three four five six seven. Eight nine ten. " * 12


@pytest.mark.parametrize("method", ["htp:every=auto", "htp:every=3", "htp:every=1", "htp:every=5,local_only=true"])
def test_blocks_of_tokens_are_as_long_in_every_window_as_in_the_document(method: str) -> None:
    whole = embedder("llama", method)._pipeline.planner.plan([LONG], "document", sentences=True)[0]
    e = embedder("llama", method, max_length=64)
    assert whole.spans is not None and e.method.layout is not None and isinstance(e.method.layout.blocks, Blocks)
    every = e.method.layout.blocks.every
    length = whole.tokens // len(whole.spans) if every == "auto" else every
    jobs = e._pipeline.planner.plan([LONG], "document")[0].jobs
    assert len(jobs) > 5 and max(len(job.sequence) for job in jobs) <= 64
    kinds = 1 if "local" in method else 2
    for job in jobs:
        assert len(job.sequence.edges) == kinds * -(-len(job.sequence.text) // length)
        between = np.diff(job.sequence.edges[-(len(job.sequence.edges) // kinds) :, 0])
        assert (between == length + 1).all()
