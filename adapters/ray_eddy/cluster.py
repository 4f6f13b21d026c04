"""Connect to a Ray cluster, size pools of actors, and translate Ray's errors."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import ray
import ray.data
import ray.exceptions

from eddy_embed import errors
from eddy_embed.errors import EddyError, InvalidParameter

_TIMEOUT = 10.0
_MAX_CAUSES = 20
# An actor's error comes out of a dataset as text alone, in a traceback.
_ERROR_LINE = re.compile(
    r"^(?:eddy_embed|chroma_eddy)\.errors\.(\w+): (.*?)(?=\n\nThe above exception|\nTo change retry|\Z)",
    re.DOTALL | re.M,
)


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Connect to a cluster for the block, without Ray's messages; a local cluster sends no usage statistics.

    "auto" is the cluster of this machine, "local" starts one that ends with the block, others are "host:port". A
    program that is already connected stays with its cluster.
    """
    with unwrap_errors(translate=True):
        if ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        _check_listening(address)
        options = {"include_dashboard": False} if address == "local" else {}
        try:
            with _keep_sigterm_handler():
                ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, _last_line(error)) from error
        try:
            ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
            yield
        finally:
            ray.shutdown()


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore the SIGTERM handler after the block: Ray's own would end the process without a message."""
    previous = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous)


def actor_pool(size: int | tuple[int, int]) -> ray.data.ActorPoolStrategy:
    """Describe a pool of so many actors, or of (minimum, maximum), to Ray Data."""
    least, most = (size, size) if isinstance(size, int) else size
    return ray.data.ActorPoolStrategy(min_size=least, max_size=most)


def max_actors(num_cpus: float | None = None, num_gpus: float | None = None) -> int:
    """Number of embedders that fit on the cluster: on all its GPUs, or on all CPUs but one, which reads documents."""
    resources = ray.cluster_resources()
    if num_gpus:
        return max(int(resources.get("GPU", 0) / num_gpus), 1)
    return max(int((resources.get("CPU", 1) - 1) / (num_cpus or 1)), 1)


@contextmanager
def unwrap_errors(translate: bool = False) -> Iterator[None]:
    """Raise the `EddyError` inside an error of Ray; without one, make one if `translate`."""
    try:
        yield
    except ray.exceptions.RayError as error:
        found = unwrapped_error(error)
        if found is None and translate:
            raise EddyError(f"the cluster failed: {_last_line(error)}") from error
        raise found or error from None


def unwrapped_error(error: BaseException | None) -> EddyError | None:
    """The `EddyError` that caused an error of Ray; None if another error did."""
    texts: list[str] = []
    while error is not None and len(texts) < _MAX_CAUSES:
        # Ray's error derives from the class of its cause if it can, but has a traceback for a message.
        if isinstance(error, EddyError) and not isinstance(error, ray.exceptions.RayError):
            return error
        texts.append(str(error))
        error = getattr(error, "cause", None) or error.__cause__
    matches = [match for text in texts for match in _ERROR_LINE.finditer(text)]
    return cast("EddyError", getattr(errors, matches[-1][1], EddyError)(matches[-1][2].strip())) if matches else None


def _check_listening(address: str) -> None:
    """Refuse an address where nothing listens; Ray would wait there for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
    except OSError as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, reason: str) -> InvalidParameter:
    return InvalidParameter(
        f"no Ray cluster at {address!r} ({reason}); start one with `ray start --head`, or give "
        "another address, or 'local' for one on this machine"
    )


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else error!r}"[:300]
