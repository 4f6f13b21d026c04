"""One embedder for each configuration in a process, shared by every object of every framework that asks for it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from eddy_embed.errors import NotFitted

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder

ENGINE_SETTINGS = (
    *("method", "max_length", "overflow", "query_instruction", "text_instruction", "normalize", "post", "batch_size"),
    *("batch_tokens", "device", "dtype", "language", "revision", "cache_folder", "trust_remote_code"),
    *("local_files_only", "model_kwargs"),
)
"""Arguments of `eddy_embed.Embedder` that are part of a configuration, beside the model."""

# Weak, so that the weights go as soon as the last object that uses them does.
_embedders: weakref.WeakValueDictionary[str, Embedder] = weakref.WeakValueDictionary()
_lock = threading.Lock()
# By event loop: a process that was forked off has a loop of its own, and none of its parent's threads.
_workers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()
_T = TypeVar("_T")


def settings_of(holder: object) -> dict[str, Any]:
    """The configuration that an object of a framework holds in its attributes; absent and None mean the default."""
    return {name: value for name in ENGINE_SETTINGS if (value := getattr(holder, name, None)) is not None}


def settings_key(model_name: str, settings: Mapping[str, Any]) -> str:
    """Text that is equal for two configurations that ask for the same embedder, whether defaults are spelt out or not.

    Args:
        model_name: Bundled name, Hugging Face id or path.
        settings: The other arguments.
    """
    usual = _defaults()
    told = {name: value for name, value in settings.items() if value not in (None, {}) and value != usual.get(name)}
    return json.dumps([model_name, told], sort_keys=True, default=repr)


def open_embedder(model_name: str, settings: Mapping[str, Any], live: tuple[Any, Any] | None = None) -> Embedder:
    """The embedder of this configuration: loaded on the first call, the same object for as long as somebody holds it.

    Args:
        model_name: Bundled name, Hugging Face id or path.
        settings: The other arguments of `eddy_embed.Embedder`.
        live: A loaded model and its tokenizer, to be used instead; such an embedder is not kept for others.

    Raises:
        NotFitted: The method has post-processing, and no file says what it learned.
        EddyError: What the embedder raises for a model, method or setting that it cannot run.
    """
    from eddy_embed.embedder import Embedder

    if live is not None:
        return _fitted(Embedder(live[0], tokenizer=live[1], **settings), settings)
    key = settings_key(model_name, {**settings, "post": _version(settings.get("post"))})
    # Held while loading: of two threads that ask at once, the second waits instead of loading the weights again.
    with _lock:
        embedder = _embedders.get(key)
        if embedder is None:
            embedder = _fitted(Embedder(model_name, **settings), settings)
            _embedders[key] = embedder
        return embedder


async def in_worker(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run long work in the event loop's one worker thread, in order of arrival.

    One thread, because a second pass at the same time takes as much memory again and makes neither faster. Not the
    loop's default threads, because the batches of one long job would occupy them all.

    Args:
        function: What to run.
        *arguments: Its arguments.
    """
    loop = asyncio.get_running_loop()
    if loop not in _workers:
        _workers[loop] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy")
    call = functools.partial(contextvars.copy_context().run, function, *arguments)
    return await loop.run_in_executor(_workers[loop], call)


@functools.cache
def _defaults() -> dict[str, Any]:
    from eddy_embed.embedder import Embedder

    parameters = inspect.signature(Embedder.__init__).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}


def _fitted(embedder: Embedder, settings: Mapping[str, Any]) -> Embedder:
    # Fitting in place would change the vectors of every object that shares the embedder.
    if embedder.method.post is not None and embedder.method.post.learns and "post" not in settings:
        raise NotFitted(
            f"Method {settings['method']!r} has post-processing, which learns from a library: give post=, the file "
            "that Embedder(...).fit(texts).save(path) wrote."
        )
    return embedder


def _version(path: str | None) -> list[Any] | None:
    """A file's name and state: fitted again under the same name, it makes another embedder."""
    if path is None or not os.path.exists(path):
        return None if path is None else [path]
    state = os.stat(path)
    return [path, state.st_mtime_ns, state.st_size]
