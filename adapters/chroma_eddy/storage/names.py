"""Names of an index's collections, of Chroma's database, and of what stands beside it in its folder."""

from __future__ import annotations

import re
from typing import Any

from eddy_embed.errors import InvalidParameter

MAIN, DOCUMENTS = "", "-documents"
"""Suffixes of the names of an index's collections; the main one has the name of the index."""
EARLIER = ("-sentences", "-transform", "-raw")
"""Suffixes of further collections that earlier versions made."""
NEXT, OLD = "-next", "-old"
"""Suffixes of the name of an index that is built to replace another, and of the one that was replaced."""
DATABASE = "chroma.sqlite3"
"""Chroma's database in its folder."""
LOCK = "eddy.lock"
"""Lock file of the writing process; the operating system releases it when that process ends."""
WRITER = "eddy.writer"
"""File that names the writing process, for error messages of others."""
ROW_LOCK = "eddy.rows"
"""Lock file, held while a process changes rows, or reads a collection's vectors for the first time."""
VECTORS, WORDS = "eddy.vectors", "eddy.words"
"""Folders with the vectors and the words of each index, in a folder of its id."""


def check_collection_name(name: Any) -> None:
    """Refuse a name that Chroma takes for no collection, as "p2", which is too short."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]", name):
        raise InvalidParameter(
            f"name={name!r:.80} is no collection's name: it must have 3 to 512 characters, of a-z, A-Z, 0-9 and . _ -, "
            "and begin and end with a letter or digit"
        )


def check_index_name(name: Any) -> None:
    """Refuse a name that no collection can have, or that ends like a collection of another index."""
    check_collection_name(name)
    for suffix in (DOCUMENTS, *EARLIER, NEXT, OLD):
        if name.endswith(suffix):
            raise InvalidParameter(
                f"name={name!r:.80} ends with {suffix!r}, which is the name of a collection of another index"
            )
