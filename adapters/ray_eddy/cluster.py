"""A cluster to work on: one that is there, or one on this machine for as long as the work takes."""

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


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """Be connected to a cluster, quietly; one that is started here reports nothing to anyone.

    Args:
        address: "auto" for the one that this machine belongs to, "host:port", or "local" for one on this machine alone
            that ends with the work. Of a program that is connected already, the cluster that it is connected to.

    Raises:
        InvalidParameter: There is none.
        EddyError: Something failed on the cluster; the message is the one from there.
    """
    with _told(), own_errors():
        if ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        _check_answers(address)
        own = {"include_dashboard": False} if address == "local" else {}
        try:
            with _own_signals():
                ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, _line(error)) from error
        try:
            ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
            yield
        finally:
            ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Leave SIGTERM to whom it was: Ray would have it end the process, and nobody tell what was left undone."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def pool(size: int | tuple[int, int]) -> ray.data.ActorPoolStrategy:
    """Actors as Ray's datasets take them.

    Args:
        size: How many; (least, most) for a pool that grows.
    """
    least, most = (size, size) if isinstance(size, int) else size
    return ray.data.ActorPoolStrategy(min_size=least, max_size=most)


def room(num_cpus: float | None = None, num_gpus: float | None = None) -> int:
    """How many embedders the cluster has room for: on all its cards, or on all its processors but one, which reads.

    Args:
        num_cpus: Processors for each.
        num_gpus: Graphics cards for each.
    """
    there = ray.cluster_resources()
    if num_gpus:
        return max(int(there.get("GPU", 0) / num_gpus), 1)
    return max(int((there.get("CPU", 1) - 1) / (num_cpus or 1)), 1)


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise an error of ours as itself, where Ray has wrapped it."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise own_error(error) or error from None


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ray.exceptions.RayError as error:
        raise EddyError(f"the cluster failed: {_line(error)}") from error


def own_error(error: BaseException | None) -> EddyError | None:
    """The error of ours that lies behind one of Ray's."""
    texts: list[str] = []
    while error is not None and len(texts) < _DEEPEST:
        # Ray's own error is of our class too, where that could be derived from, but has a traceback for a message.
        if isinstance(error, EddyError) and not isinstance(error, ray.exceptions.RayError):
            return error
        texts.append(str(error))
        error = getattr(error, "cause", None) or error.__cause__
    found = [match for text in texts for match in _OURS.finditer(text)]
    return cast("EddyError", getattr(errors, found[-1][1], EddyError)(found[-1][2].strip())) if found else None


_DEEPEST = 20
# An actor's error comes out of a dataset as text alone, in a traceback.
_OURS = re.compile(
    r"^(?:eddy_embed|chroma_eddy)\.errors\.(\w+): (.*?)(?=\n\nThe above exception|\nTo change retry|\Z)",
    re.DOTALL | re.M,
)


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens, for which Ray would wait for many minutes."""
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


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else error!r}"[:300]
