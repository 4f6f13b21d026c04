"""Chroma's HNSW files of a collection: whether they are as they were recorded, since Chroma loads damaged ones.

Chroma trusts these files: it crashes on some damage and computes with other. So their sizes, times and checksums are
recorded beside them after each save. A file of the recorded size and time is not read again, unless `thorough`.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from eddy_embed.integrations import atomic_write

RECORD = "eddy.checksums"
"""File in a segment's folder with size, time and checksum of each of its files."""
LOST = "eddy.lost"
"""Marker file in a segment's folder whose vectors were discarded, so that nobody takes later ones for all of them."""
_FILES = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", "index_metadata.pickle")
_HEADER = struct.Struct("<i6Qi")
"""Version, offset of level 0, capacity, number of elements, bytes per element, offsets of label and vector, levels."""
_CHUNK = 2**20


def record(folder: Path, row: int) -> None:
    """Record the files that Chroma has saved up to a row of its log."""
    files = {name: [*_size_and_time(folder / name), _checksum(folder / name)] for name in _FILES}
    with atomic_write(folder / RECORD) as file:
        file.write(json.dumps({"row": row, "files": files}).encode())


def is_recorded(folder: Path, row: int) -> bool:
    """Whether there is a record of the files up to a row of the log."""
    return _read_record(folder).get("row") == row


def damage(folder: Path, row: int, *, thorough: bool = False) -> str:
    """Say what is wrong with the files up to a row of the log; "" if nothing is.

    Files that Chroma has saved without this package have no record: then only their sizes are compared with what
    their header says.
    """
    if (folder / LOST).exists():
        return "it was discarded as damaged"
    if missing := [name for name in _FILES if not (folder / name).is_file()]:
        return f"{missing[0]} is missing"
    recorded = _read_record(folder)
    if recorded.get("row") != row:
        return _damage_without_record(folder)
    for name, (size, time, checksum) in recorded["files"].items():
        path = folder / name
        now_size, now_time = _size_and_time(path)
        if now_size != size:
            return f"{name} has {now_size} bytes, not {size}"
        if thorough or now_time != time:
            if _checksum(path) != checksum:
                return f"{name} has other bytes than were written"
            with suppress(OSError):  # else a copied folder would be read at each opening
                os.utime(path, ns=(time, time))
    return ""


def clear_unsaved(folder: Path) -> None:
    """Overwrite the vectors in files that Chroma has made and not saved to yet.

    They are memory that hnswlib has not initialised, in which texts may be left. Chroma does not read them.
    """
    for path in (folder / "data_level0.bin", folder / "length.bin"):
        if path.exists() and path.read_bytes().strip(b"\0"):
            path.write_bytes(bytes(path.stat().st_size))  # in place: Chroma has the files open


def _damage_without_record(folder: Path) -> str:
    with (folder / "header.bin").open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return "header.bin is cut short"
    _, _, _, elements, element_bytes, *_ = _HEADER.unpack(header)
    for name, least in (("data_level0.bin", elements * element_bytes), ("length.bin", elements * 4)):
        if (size := (folder / name).stat().st_size) < least:
            return f"{name} has {size} bytes, not the {least} that header.bin asks for"
    return ""


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / RECORD).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _size_and_time(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
