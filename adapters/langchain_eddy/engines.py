"""One engine for each configuration in a process, shared by every embeddings object that asks for it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from eddy_embed.errors import NotFitted

if TYPE_CHECKING:
    from eddy_embed import Embedder

ENGINE_SETTINGS = (
    *("method", "max_length", "overflow", "query_instruction", "text_instruction", "normalize", "post", "batch_size"),
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


def open_embedder(model_name: str, settings: Mapping[str, Any], live: tuple[Any, Any] | None = None) -> Embedder:
    """The engine of this configuration: loaded on the first call, the same object for as long as somebody holds it.

    Args:
        model_name: Bundled name, Hugging Face id or path.
        settings: The other arguments of `eddy_embed.Embedder`.
        live: A loaded model and its tokenizer, to be used instead; such an engine is not shared.

    Raises:
        NotFitted: The method has post-processing, and no file says what it learned.
        EddyError: What the engine raises for a model, method or setting that it cannot run.
    """
    from eddy_embed import Embedder

    if live is not None:
        return _fitted(Embedder(live[0], tokenizer=live[1], **settings), settings)
    key = settings_key(model_name, {**settings, "post": _version(settings.get("post"))})
    # Held while loading: of two threads that ask at once, the second waits instead of loading the weights again.
    with _lock:
        engine = _engines.get(key)
        if engine is None:
            engine = _fitted(Embedder(model_name, **settings), settings)
            _engines[key] = engine
        return engine


def _fitted(engine: Embedder, settings: Mapping[str, Any]) -> Embedder:
    # Fitting in place would change the vectors of every object that shares the engine.
    if engine.method.post is not None and "post" not in settings:
        raise NotFitted(
            f"Method {settings['method']!r} has post-processing, which learns from a library: give post=, the file "
            "that Embedder(...).fit(texts).save(path) wrote."
        )
    return engine


def _version(path: str | None) -> list[Any]:
    """A file's name and state: fitted again under the same name, it makes another engine."""
    if path is None or not os.path.exists(path):
        return [path]
    state = os.stat(path)
    return [path, state.st_mtime_ns, state.st_size]


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
