"""One engine for each configuration in a process, shared by every embeddings object that asks for it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from eddy_embed import Embedder

ENGINE_SETTINGS = (
    *("method", "max_length", "overflow", "query_instruction", "text_instruction", "normalize", "batch_size"),
    *("batch_tokens", "device", "dtype", "language", "revision", "cache_folder", "trust_remote_code"),
    *("local_files_only", "model_kwargs"),
)
"""Fields that are arguments of `eddy_embed.Embedder`, beside the model."""

# Weak, so that the weights go as soon as the last embeddings object that uses them does.
_engines: weakref.WeakValueDictionary[str, Embedder] = weakref.WeakValueDictionary()
_lock = threading.Lock()
# By event loop: a process that was forked off has a loop of its own, and none of its parent's threads.
_workers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()
_T = TypeVar("_T")


def settings_key(model_name: str, settings: Mapping[str, Any]) -> str:
    """Text that is equal for two configurations exactly when they ask for the same engine."""
    return json.dumps([model_name, settings], sort_keys=True, default=repr)


def shared_embedder(model_name: str, settings: Mapping[str, Any]) -> Embedder:
    """The engine of this configuration: loaded on the first call, the same object for as long as somebody holds it.

    Args:
        model_name: Bundled name, Hugging Face id or path.
        settings: The other arguments of `eddy_embed.Embedder`.

    Raises:
        EddyError: What the engine raises for a model, method or setting that it cannot run.
    """
    from eddy_embed import Embedder

    key = settings_key(model_name, settings)
    # Held while loading: of two threads that ask at once, the second waits instead of loading the weights again.
    with _lock:
        engine = _engines.get(key)
        if engine is None:
            engine = Embedder(model_name, **settings)
            _engines[key] = engine
        return engine


async def in_worker(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run long work in the event loop's one worker thread, in order of arrival.

    One thread, because a second pass at the same time takes as much memory again and makes neither faster. Not the
    loop's default threads, because the batches of one long job would occupy them all.
    """
    loop = asyncio.get_running_loop()
    if loop not in _workers:
        _workers[loop] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy")
    call = functools.partial(contextvars.copy_context().run, function, *arguments)
    return await loop.run_in_executor(_workers[loop], call)
