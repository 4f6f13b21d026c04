"""Embedders and rerankers that a process shares among the frameworks' objects."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from eddy_embed.encoding.validation import torch_name
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.settings import ENGINE_SETTINGS, PROCESS_SETTINGS, EmbedderSettings
from eddy_embed.utils.arrays import Floats
from eddy_embed.utils.atomic_files import atomic_write
from eddy_embed.utils.progress import Progress
from eddy_embed.utils.settings import contrast

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder
    from eddy_embed.reranker import Reranker


SAVED, SAVED_POST = "eddy_embedder.json", "eddy_post.npz"
"""Files of `EmbedderOwner.save`."""

# Weak, so that the weights go as soon as the last object that uses them does.
_embedders: weakref.WeakValueDictionary[str, Embedder] = weakref.WeakValueDictionary()
_lock = threading.Lock()
# By event loop: a process that was forked off has a loop of its own, and none of its parent's threads.
_workers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = weakref.WeakKeyDictionary()
_T = TypeVar("_T")
_H = TypeVar("_H", bound="EmbedderOwner")


def open_embedder(settings: EmbedderSettings, live: tuple[Any, Any] | None = None) -> Embedder:
    """Return the embedder of these settings: loaded once, the same for as long as somebody holds it.

    Settings that name the embedder's own method in full give the same object.

    `live` is a loaded model and its tokenizer, to be used instead; such an embedder is not kept for others.
    """
    from eddy_embed.embedder import Embedder

    if live is not None:
        return Embedder(live[0], tokenizer=live[1], **settings.arguments())
    version = _version(settings.fitted)
    key = settings.key(fitted=version)
    # Held while loading: of two threads that ask at once, the second waits instead of loading the weights again.
    with _lock:
        embedder = _embedders.get(key)
        if embedder is None:
            embedder = Embedder(settings.model_name, **settings.arguments())
            in_full = settings.key(fitted=version, method=str(embedder.method))
            embedder = _embedders[key] = _embedders.setdefault(in_full, embedder)
        return embedder


def name_of(model: Any) -> str:
    """Name or path that a loaded model was opened with, else its class name."""
    return getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__


class EmbedderOwner(EmbedderSettings):
    """A framework's object that holds settings, which may change, and the embedder of the present ones.

    Copies share the embedder. What travels to another process is the settings alone.
    """

    model_config = ConfigDict(frozen=False)

    _engine: Any = PrivateAttr(default=None)
    _engine_key: str = PrivateAttr(default="")
    _live: Any = PrivateAttr(default=None)

    def _configure(self, values: dict[str, Any]) -> None:
        """Set the attributes, without loading anything."""
        raise NotImplementedError

    @staticmethod
    def _text_of(document: Any) -> str:
        """Return the text of one of the framework's documents."""
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """Return the configuration that is pickled."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @classmethod
    def from_model(cls: type[_H], model: Any, tokenizer: Any, *, method: str | None = None, **settings: Any) -> _H:
        """Embed with a model that is already loaded; its weights are shared, never copied or changed.

        The object cannot be pickled, or rebuilt from its settings: both raise an error that says so.

        Args:
            model: A transformers model; it may go on generating meanwhile.
            tokenizer: Its tokenizer.
            method: How a text becomes a vector; None: as is recommended for the model.
            **settings: The other parameters of the class; `model_name` defaults to the model's own.
        """
        self = cls.__new__(cls)
        self._configure({"model_name": name_of(model), **settings, "method": method})
        self._live = (model, tokenizer)
        _ = self.embedder
        return self

    @classmethod
    def from_embedder(cls: type[_H], embedder: Embedder) -> _H:
        """Embed with an existing embedder, its post-processing included.

        The object cannot be pickled, or rebuilt from its settings: both raise an error that says so.
        """
        self = cls.__new__(cls)
        self._configure({"model_name": embedder.model_name, "method": str(embedder.method)})
        self._live = embedder
        return self

    @property
    def embedder(self) -> Embedder:
        """The engine of the present configuration; loaded again after a change of it.

        Loading it puts the method's full text into the configuration, in place of `recommended`.
        """
        if self._wraps_embedder:
            wrapped: Embedder = self._live
            return wrapped
        if self._engine is None or self._engine_key != self.key():
            self._engine = open_embedder(self, self._live)
            self.method = str(self._engine.method)
            self._engine_key = self.key()
        engine: Embedder = self._engine
        return engine

    def fit(self: _H, library: Iterable[Any], queries: Iterable[str] | None = None) -> _H:
        """Fit the method's post-processing on a library, as `Embedder.fit` does, and embed with it from now on.

        Other objects of the same configuration stay as they are. `save` writes what was learned to a folder, from
        which `load` reopens it; until then the object cannot be pickled.

        Args:
            library: Texts, or documents of the framework; whole ones or pieces.
            queries: Typical questions, for a mean of their own.

        Returns:
            The object itself.

        Raises:
            InvalidParameter: The method has no post-processing, the object wraps an embedder that somebody else made,
                or the texts have fewer than two passages.
        """
        if self._wraps_embedder:
            raise InvalidParameter("the embedder is not this object's own: fit it where it was made")
        fitted = self.embedder.with_instructions()  # a copy: other objects share the embedder itself
        items = [library] if isinstance(library, str) else library
        texts = [item if isinstance(item, str) else self._text_of(item) for item in items]
        fitted.fit(texts, queries, show_progress=self.show_progress)
        self._engine = fitted
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write settings, fingerprint and what was fitted to a folder, such as that of a persisted index.

        Raises:
            EddyError: The object wraps a live model, which no file can bring back.
        """
        self._refuse_live()
        embedder, folder = self.embedder, Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if embedder.is_fitted and embedder.post is not None:
            embedder.post.save(folder / SAVED_POST)
            self.fitted = str(folder / SAVED_POST)
            self._engine_key = self.key()
            with _lock:
                _embedders[self.key(fitted=_version(self.fitted))] = embedder
        more = {"fitted": embedder.is_fitted, "fingerprint": embedder.fingerprint}
        with atomic_write(folder / SAVED) as file:
            file.write(json.dumps({**self.stored(), **more}, indent=2).encode())

    @classmethod
    def load(cls: type[_H], folder: str | os.PathLike[str], **settings: Any) -> _H:
        """Reopen what `save` wrote to a folder, with further parameters of the class, such as `device`.

        Raises:
            InvalidParameter: The folder has no such file.
            FingerprintMismatch: The model behind the name, or a parameter, gives other vectors than were saved.
        """
        path = Path(folder) / SAVED
        try:
            saved = json.loads(path.read_text())
            fingerprint, fitted = saved.pop("fingerprint"), saved.pop("fitted")
            inside = PROCESS_SETTINGS & {*saved, *(saved.get("model_kwargs") or {})}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidParameter(f"{path} holds no embedder: {error!r}; save(folder) writes it") from error
        if unknown := sorted(inside | (set(saved) - {"model_name", *ENGINE_SETTINGS})):
            # Such as trust_remote_code: no file may make foreign code run.
            raise InvalidParameter(f"{path} names {', '.join(unknown)}, which save does not write; give it to load")
        self = cls(**{**saved, **({"fitted": str(path.with_name(SAVED_POST))} if fitted else {}), **settings})
        if self.fingerprint != fingerprint:
            raise FingerprintMismatch(
                f"{path}: {contrast(saved, vars(self))}.\nSaved with fingerprint {fingerprint}, opened with "
                f"{self.fingerprint}. Open it as it was saved, or embed the documents again."
            )
        return self

    @property
    def _wraps_embedder(self) -> bool:
        """Whether `from_embedder` made the object."""
        return self._live is not None and not isinstance(self._live, tuple)

    @property
    def _fitted_here(self) -> bool:
        """Whether post-processing was fitted in this process and not saved."""
        return self.fitted is None and self._engine is not None and self._engine.is_fitted

    def _refuse_live(self) -> None:
        if self._live is not None:
            raise EddyError(live_error(type(self).__name__, self.model_name))

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides a vector: a namespace for caches, for example."""
        return self.embedder.fingerprint

    def __getstate__(self) -> dict[Any, Any]:
        self._refuse_live()
        if self._fitted_here:
            raise EddyError("what fit learned is in this process only: call save(folder), then it can be pickled")
        return self._state()

    def __setstate__(self, state: dict[Any, Any]) -> None:
        self._configure(dict(state))

    def __copy__(self: _H) -> _H:
        return self._twin(self._state())

    def __deepcopy__(self: _H, memo: dict[int, Any] | None = None) -> _H:
        # A deep copy of the weights is never what a copied chain or index wants.
        return self.__copy__()

    def _twin(self: _H, state: dict[str, Any]) -> _H:
        twin = type(self).__new__(type(self))
        twin._configure(state)
        twin._live, twin._engine, twin._engine_key = self._live, self._engine, self._engine_key
        return twin


async def in_worker(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run a function that takes long in the event loop's one worker thread, in order of arrival.

    One thread, because a second pass at the same time takes as much memory again and makes neither faster. Not the
    loop's default threads, because the batches of one long job would occupy them all.
    """
    loop = asyncio.get_running_loop()
    if loop not in _workers:
        _workers[loop] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eddy")
    call = functools.partial(contextvars.copy_context().run, function, *arguments)
    return await loop.run_in_executor(_workers[loop], call)


def live_error(owner: str, model_name: str, parameter: str = "model_name") -> str:
    """Return the message for a live model where only a configuration will do."""
    return (
        f"{model_name!r} is a live model: it cannot be copied to another process or rebuilt from a configuration. Name "
        f"the model instead, {owner}({parameter}=...), or call {owner}.from_model in the other process"
        f"{'; call save(folder) if it was fitted' * (parameter == 'model_name')}."
    )


def _version(path: str | None) -> list[Any] | None:
    """Return a file's name and state: fitted again under the same name, it makes another embedder."""
    if path is None or not os.path.exists(path):
        return None if path is None else [path]
    state = os.stat(path)
    return [path, state.st_mtime_ns, state.st_size]


# Weak, so that the weights go as soon as the last object that uses them does.
_rerankers: weakref.WeakValueDictionary[str, Reranker] = weakref.WeakValueDictionary()
_rerankers_lock = threading.Lock()
_O = TypeVar("_O", bound="RerankerOwner")


def open_reranker(model: Any, **settings: Any) -> Reranker:
    """Return a reranker as it is, or that of a model and these arguments of `Reranker`.

    Of a named model, it is the same object as long as somebody holds it.

    Raises:
        InvalidParameter: There are arguments to a reranker that is made already.
    """
    from eddy_embed.reranker import Reranker

    if isinstance(model, Reranker):
        if settings:
            raise InvalidParameter(
                f"{', '.join(settings)}: the reranker is made already; leave this out, or name a model"
            )
        return model
    if not isinstance(model, str | os.PathLike):
        return Reranker(model, **settings)
    key = json.dumps([os.fspath(model), settings], sort_keys=True, default=repr)
    # Held while loading: of two threads that ask at once, the second waits instead of loading the weights again.
    with _rerankers_lock:
        reranker = _rerankers.get(key)
        if reranker is None:
            reranker = _rerankers[key] = Reranker(model, **settings)
        return reranker


def scores_with_blank(reranker: Reranker, query: str, texts: Sequence[str], **options: Any) -> Floats:
    """Return scores as `Reranker.scores` does, shape (texts,), and -inf for a blank text."""
    at = [index for index, text in enumerate(texts) if text.strip()]
    scores = np.full(len(texts), -np.inf, np.float32)
    scores[at] = reranker.scores(query, [texts[index] for index in at], **options)
    return scores


class RerankerOwner(BaseModel):
    """A framework's object that holds a reranker. Copies share it; what travels to another process is the settings."""

    model: str = Field(description="A folder, a .gguf file, a Hugging Face id, or another name for `Reranker`.")
    top_n: int = Field(gt=0, description="Most texts that are kept.")
    seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Rerank the first texts for so long; None: all of them."
    )
    settings: dict[str, Any] = Field({}, description="Further arguments of `Reranker`, such as device and dtype.")

    _reranker: Any = PrivateAttr(default=None)
    _live: bool = PrivateAttr(default=False)

    def __init__(self, model: Any, **given: Any) -> None:
        fields = {name: value for name, value in given.items() if name in type(self).model_fields}
        more = {name: value for name, value in given.items() if name not in fields}
        settings = {name: torch_name(value) for name, value in {**fields.pop("settings", {}), **more}.items()}
        reranker = open_reranker(model, **settings)
        settings.pop("tokenizer", None)
        super().__init__(model=reranker.model_name, settings=settings, **fields)
        self._reranker, self._live = reranker, not isinstance(model, str | os.PathLike)

    @classmethod
    def from_model(cls: type[_O], model: Any, tokenizer: Any, **settings: Any) -> _O:
        """Rerank with a model that is already loaded, with its head; its weights are shared, never copied.

        The object cannot be pickled, or rebuilt from its settings: both raise an error that says so.
        """
        return cls(model, tokenizer=tokenizer, **settings)

    @property
    def reranker(self) -> Reranker:
        """The reranker, loaded where a copy came from another process."""
        if self._reranker is None:
            self._reranker = open_reranker(self.model, **self.settings)
        reranker: Reranker = self._reranker
        return reranker

    def _ranked(self, query: str, texts: Sequence[str]) -> tuple[list[int], Floats]:
        """Return positions of the best, and all scores, 0 to 1, shape (texts,); unread and blank texts come last."""
        scores = scores_with_blank(self.reranker, query, texts, seconds=self.seconds, show_progress=False)
        order = np.lexsort((-scores, np.isneginf(scores)))  # NaN, of an unread text, sorts behind every number
        return order[: self.top_n].tolist(), self.reranker.rerank_scores(scores)

    def __getstate__(self) -> dict[Any, Any]:
        if self._live:
            raise EddyError(live_error(type(self).__name__, self.model, "model"))
        # Callbacks belong to this process.
        return {name: getattr(self, name) for name, field in type(self).model_fields.items() if not field.exclude}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__init__(**state)

    def __deepcopy__(self: _O, memo: dict[int, Any] | None = None) -> _O:
        return self.__copy__()


def unrelated_cosines(embedder: Embedder) -> tuple[float, float]:
    """Return mean and deviation of the cosines of general questions with passages about other things; then cached."""
    from eddy_embed.encoding.calibration import unrelated

    with Progress(sys.stderr.isatty(), stage="calibrate") as bar:
        return unrelated(embedder._calibrated, embedder.settings, embedder.dtype, bar)
