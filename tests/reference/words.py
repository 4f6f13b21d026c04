"""A tokenizer to count on fingers."""

from __future__ import annotations

import re
from typing import Any


def words(string: str, **_: Any) -> dict[str, list[Any]]:
    """A token is a word or a run of marks with the blank before it, or one blank; 100 in front, 101 behind."""
    pieces = [(m.start(), m.end()) for m in re.finditer(r" ?\w+| ?[^\w\s]+|\s", string)]
    return {
        "input_ids": [100, *range(1, len(pieces) + 1), 101],
        "offset_mapping": [(0, 0), *pieces, (0, 0)],
        "special_tokens_mask": [1, *[0] * len(pieces), 1],
    }
