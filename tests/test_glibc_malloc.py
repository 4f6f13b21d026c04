"""Freed memory: kept from pass to pass, unless the user's environment says otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from eddy_embed.utils import glibc_malloc

COUNTED = """
import json, os, resource
from eddy_embed import Embedder
from eddy_embed.utils import glibc_malloc

embedder = Embedder("eddy-tiny", method="plain", dtype="float32", device="cpu")
text = "The ferry leaves at noon. " * 80

def faults():
    embedder.encode_document(text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    embedder.encode_document(text)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

told = [glibc_malloc.keep_freed(), faults()]
os.environ.pop("MALLOC_TRIM_THRESHOLD_")
glibc_malloc.keep_freed.cache_clear()
print(json.dumps([*told, glibc_malloc.keep_freed(), faults()]))
"""


@pytest.mark.slow
def test_a_pass_asks_for_no_new_pages() -> None:
    """The environment's setting stands, and with it every layer asks for new ones."""
    if sys.platform != "linux":
        assert not glibc_malloc.keep_freed()
        return
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072"}
    run = subprocess.run([sys.executable, "-c", COUNTED], env=environment, capture_output=True, text=True, check=True)
    left, usual, kept, few = json.loads(run.stdout.splitlines()[-1])
    assert (left, kept) == (False, True)
    assert usual > 1000 and few < usual / 20


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, False), ({"MALLOC_MMAP_THRESHOLD_": "1"}, True), ({"GLIBC_TUNABLES": "glibc.malloc.mmap_max=1"}, True)],
)
def test_settings_of_the_user_are_seen(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*glibc_malloc._VARIABLES, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert glibc_malloc.chosen() is expected
