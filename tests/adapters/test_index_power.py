"""What an index has reported as stored survives a power failure, which loses what was not synced to the disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.adapters.indexes import assert_same, documents, rows
from tests.adapters.killing import SAVED_OFTEN

from chroma_eddy import Index, open_index
from chroma_eddy.storage import store
from chroma_eddy.storage.backups import BEGUN, SAVED, HnswBackup
from chroma_eddy.storage.hnsw_files import RECORD
from eddy_embed import Embedder


def opened(place: Path, embedder: Embedder) -> Index:
    return open_index(place, "notes", embedder, passage_size=24)


def lose_power(place: Path, image: Path) -> bool:
    """Copy a folder as it may be after a power failure; return whether vectors are lost that Chroma had saved.

    Chroma syncs its database and not its vectors: those that have no copy yet are empty or of zeros.
    """
    shutil.copytree(place, image)
    lost = False
    for folder in image.glob("*-*"):
        saved = HnswBackup(image)._select("SELECT seq_id FROM max_seq_id WHERE segment_id = ?", folder.name)
        if saved and (image / SAVED / f"{folder.name}.{saved[0][0]}").exists():
            continue
        for number, path in enumerate(sorted(folder.iterdir())):
            if path.name != RECORD:
                path.write_bytes(bytes(path.stat().st_size if number % 2 else 0))
        lost = lost or bool(saved)
    return lost


def test_vectors_that_were_not_synced_are_made_again(embedder: Embedder, tmp_path: Path, monkeypatch) -> None:
    """Between any save and its copy: the first save of a collection, and later ones."""
    monkeypatch.setattr(store, "_COSINE_CONFIG", SAVED_OFTEN)
    end, images, last = HnswBackup.end, list[Path](), tmp_path / "last"

    def lose_power_before(self: HnswBackup, collection: str) -> None:
        image = tmp_path / f"image-{len(images)}"
        if lose_power(tmp_path / "db", image):
            images.append(image)
        else:
            shutil.rmtree(image)
        end(self, collection)

    with opened(tmp_path / "db", embedder) as index:
        index.upsert(documents(1))
        stored = rows(index)
        monkeypatch.setattr(HnswBackup, "end", lose_power_before)
        index.upsert(documents(6))
        index.upsert(documents(8))
        monkeypatch.setattr(HnswBackup, "end", end)
        whole = rows(index)
        assert not lose_power(tmp_path / "db", last)
    assert {0, 3} <= {len(list(image.glob(f"{SAVED}/*"))) for image in images}
    for image in images:
        assert (image / BEGUN).exists()
        with opened(image, embedder) as index:
            found = rows(index)
            assert_same({part: {id_: found[part][id_] for id_ in stored[part]} for part in stored}, stored, atol=0)
            index.upsert(documents(8))
            assert_same(rows(index), whole, atol=0)
            assert index.check(full=True) == {}
    with opened(last, embedder) as index:
        assert_same(rows(index), whole, atol=0)


_WRITE = """
import sys
from tests.adapters.indexes import documents
from tests.adapters.killing import SAVED_OFTEN
from chroma_eddy import open_index
from chroma_eddy.storage import store
from eddy_embed import Embedder
store._COSINE_CONFIG = SAVED_OFTEN
with open_index(sys.argv[1], "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24) as index:
    index.upsert(documents(6))
    index.remove(["papers/1"])
"""
_UNIMPORTANT = re.compile(r"eddy\.(lock|rows|writer|begun)$|\.lock$|/complete$|-journal$|\.chroma\.part")
"""Files that may be lost: locks, marks of what is under way, and what a next writer notices and makes again."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_everything_that_was_written_was_synced(tmp_path: Path) -> None:
    """By a recorded trace of all threads: the content of each file and, after it was made or renamed, its name."""
    place, trace = tmp_path / "db", tmp_path / "trace"
    calls = "openat,write,pwrite64,sendfile,copy_file_range,ftruncate,fsync,fdatasync,rename,unlink"
    traced = ["strace", "-f", "-y", "-s", "300", "-e", f"trace={calls}", "-o", trace]
    command = [*traced, sys.executable, "-c", _WRITE, place]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    contents, names = set[str](), set[str]()
    for line in trace.read_text(errors="replace").splitlines():
        call, _, rest = line.partition(" ")[2].strip().partition("(")
        path = (re.match(r"\d+<([^>]+)>", rest) or ["", ""])[1]
        quoted = [os.path.abspath(found) for found in re.findall(r'"([^"]+)"', rest)]
        if call in ("fsync", "fdatasync"):
            contents.discard(path)
            names = {name for name in names if os.path.dirname(name) != path}
        elif call == "rename":
            names = names - {quoted[0]} | {quoted[1]}
            contents = {quoted[1] if name == quoted[0] else name for name in contents}
        elif call == "unlink":
            contents.discard(quoted[0])
            names.discard(quoted[0])
        elif call == "openat":
            names |= {quoted[0]} if "O_CREAT" in rest and "O_EXCL" in rest else set()
        elif path:
            contents.add(path)
    saved = {path.parent for path in place.glob(f"*/{RECORD}")}
    assert len(saved) == 3
    lost = {
        name
        for name in map(Path, contents | names)
        if place in name.parents and not _UNIMPORTANT.search(str(name)) and name.exists()
    }
    assert {path for path in lost if not (path.name.endswith(".bin") and path.parent not in saved)} == set()
