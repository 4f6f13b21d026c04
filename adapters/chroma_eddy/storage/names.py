"""Names of an index's collections, of Chroma's database, and of the folder of an index's words."""

from __future__ import annotations

from typing import Any

from eddy_embed.errors import InvalidParameter

MAIN, SENTENCES, DOCUMENTS, TRANSFORM, RAW = "", "-sentences", "-documents", "-transform", "-raw"
PARTS = (SENTENCES, DOCUMENTS, TRANSFORM, RAW, MAIN)
"""Suffixes of the collections' names. The main collection is last: the others belong to it, so it is created last."""
NEXT, OLD = "-next", "-old"
"""Suffixes of the name of an index that is built to replace another, and of the one that was replaced."""
DATABASE = "chroma.sqlite3"
"""Chroma's database in its folder."""
WORDS = "eddy.words"
"""Folder in the database's folder, with a folder of words for each main collection, named by its id."""


def check_index_name(name: Any) -> None:
    """Refuse a name that is empty or ends like a part of another index."""
    if not isinstance(name, str) or not name:
        raise InvalidParameter(f"name={name!r:.80} must be a collection's name")
    for suffix in (*filter(None, PARTS), NEXT, OLD):
        if name.endswith(suffix):
            raise InvalidParameter(
                f"name={name!r:.80} ends with {suffix!r}, which is the name of a part of another index"
            )
