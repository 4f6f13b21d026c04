"""Names of an index's collections."""

from __future__ import annotations

import uuid
from typing import Any

from eddy_embed.errors import InvalidParameter

MAIN, SENTENCES, DOCUMENTS, TRANSFORM, RAW = "", "-sentences", "-documents", "-transform", "-raw"
PARTS = (SENTENCES, DOCUMENTS, TRANSFORM, RAW, MAIN)
"""Ends of the collections' names. The main one last: it is made last, and the others belong to it."""
NEXT, OLD = "-next", "-old"
"""Ends of the name of an index that is being made to take another one's place, and of the one that has lost it."""


def check_index_name(name: Any) -> str:
    """Refuse a name that Chroma or an index of another name cannot bear.

    Raises:
        InvalidParameter: It does not go.
    """
    if not isinstance(name, str) or not name:
        raise InvalidParameter(f"name={name!r:.80} must be a collection's name")
    for end in (*filter(None, PARTS), NEXT, OLD):
        if name.endswith(end):
            raise InvalidParameter(f"name={name!r:.80} ends with {end!r}, which is the name of a part of another index")
    return name


def new_token() -> str:
    """What no one has said before."""
    return uuid.uuid4().hex
