"""One reranker for each configuration in a process, and the base of the frameworks' classes that hold one."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, Field, PrivateAttr

from eddy_embed.encoding.validation import torch_name
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.integrations.shared_embedders import live_error
from eddy_embed.utils.arrays import Floats

if TYPE_CHECKING:
    from eddy_embed.reranker import Reranker

# Weak, so that the weights go as soon as the last object that uses them does.
_rerankers: weakref.WeakValueDictionary[str, Reranker] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_O = TypeVar("_O", bound="RerankerOwner")


def open_reranker(model: Any, **settings: Any) -> Reranker:
    """A reranker as it is, or that of a model and these arguments of `Reranker`.

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
    with _lock:
        found = _rerankers.get(key)
        if found is None:
            found = _rerankers[key] = Reranker(model, **settings)
        return found


def scores_with_blank(reranker: Reranker, query: str, texts: Sequence[str], **options: Any) -> Floats:
    """Scores of texts as `Reranker.scores` gives them, shape (texts,); of a blank one, which answers nothing, -inf."""
    at = [index for index, text in enumerate(texts) if text.strip()]
    scores = np.full(len(texts), -np.inf, np.float32)
    scores[at] = reranker.scores(query, [texts[index] for index in at], **options)
    return scores


class RerankerOwner(BaseModel):
    """A framework's object that holds a reranker. Copies share it; what travels to another process is the settings."""

    model: str = Field(description="A folder, a .gguf file, a Hugging Face id, or another name for `Reranker`.")
    top_n: int = Field(gt=0, description="Most texts that are kept.")
    seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Judge the first texts for so long; None: all of them."
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
        """Judge with a model that is already loaded, with its head; its weights are shared, never copied or changed.

        The object cannot be pickled, or rebuilt from its settings: both raise an error that says so.
        """
        return cls(model, tokenizer=tokenizer, **settings)

    @property
    def reranker(self) -> Reranker:
        """The reranker, loaded where a copy came from another process."""
        if self._reranker is None:
            self._reranker = open_reranker(self.model, **self.settings)
        found: Reranker = self._reranker
        return found

    def _judged(self, query: str, texts: Sequence[str]) -> tuple[list[int], Floats]:
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
