"""Ray clusters of this machine alone, which leave nothing behind."""

from __future__ import annotations

import logging
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chroma_eddy import Document

ADDRESS = "127.0.0.2"
"""Loopback, under the one of its names that Ray does not replace by the machine's address in the network."""
TOKEN = secrets.token_hex(32)
"""Else Ray leaves one in the user's folder. A process keeps its first."""
SMALL = 80 * 2**20
"""Bytes of an object store: about the least that Ray takes."""


@contextmanager
def quiet() -> Iterator[Path]:
    """A folder for a cluster's files, whose sockets need a short name; and an environment in which it keeps silent."""
    folder = Path(tempfile.mkdtemp(prefix="eddy", dir="/tmp"))
    before = signal.getsignal(signal.SIGTERM)  # Ray has it end the process
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_worker_niceness", "0")  # else other tests that run beside leave them nothing
        try:
            yield folder
        finally:
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def one_node(cpus: int = 2) -> Iterator[None]:
    """A cluster of one node, to which this process is connected."""
    import ray
    import ray.data

    with quiet() as folder:
        ray.init(
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=SMALL,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address=ADDRESS,
            _temp_dir=str(folder),
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        try:
            yield
        finally:
            ray.shutdown()


def dataset(given: list[Document]) -> Any:
    """Documents as rows, their metadata as columns."""
    import ray.data

    return ray.data.from_items(
        [{"id": each.id, "text": each.text, "page_starts": list(each.page_starts), **each.metadata} for each in given]
    )
