"""One loaded eddy-tiny, and one SmolLM2, for all tests of packages that use the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eddy_embed import reranker
from eddy_embed.encoding import build
from eddy_embed.encoding.build import LoadedModel, host_for
from eddy_embed.model.backbone import Backbone
from eddy_embed.model.host import ModelView
from eddy_embed.model.loading.names import locate
from eddy_embed.model.loading.pretrained import load
from eddy_embed.model.packed import weights_digest
from eddy_embed.text.tokenizer import Tokenizer

NAMES = ("eddy-tiny", "smollm2")
_backbones: dict[Any, Backbone] = {}
_read: dict[Any, tuple[Any, Any]] = {}
"""Model and tokenizer for each exit layer, with or without its head, and way to open them."""
_hosts: dict[tuple[int, int], ModelView] = {}
_digests: dict[int, tuple[Any, str]] = {}
"""What the weights of each view hash to, which every fingerprint asks for."""
_tokenizers: dict[int, Tokenizer] = {}


@contextmanager
def shared() -> Iterator[None]:
    """Make embedders and rerankers that name these models share its weights and views: they only read them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load", _load)
        patch.setattr(build, "host_for", _host_for)
        patch.setattr(reranker, "host_for", _host_for)
        patch.setattr(build, "weights_digest", _weights_digest)
        patch.setattr(build, "Tokenizer", _tokenizer)
        yield


def _load(name: Any, **asked: Any) -> tuple[Any, Any, Backbone]:
    exit_of, show, *others = (asked[key] for key in ("exit_of", "show_progress", "tokenizer", "model_kwargs"))
    if name not in NAMES or show or any(others):
        return load(name, **asked)
    path = Path(locate(name))
    stat = (path / "model.safetensors" if path.is_dir() else path).stat()
    files = (path, stat.st_mtime_ns, stat.st_size)
    settings = [asked["device"], asked["dtype"], sorted(asked["options"].items())]
    variables = [os.environ.get(variable) for variable in ("EDDY_DTYPE", "EDDY_PREPACK")]
    fresh = None
    if files not in _backbones:
        model, tokenizer, _backbones[files] = load(name, **asked)
        fresh = model, tokenizer
    exit_layer = "head" if asked["head"] else exit_of(_backbones[files])
    key = (files, exit_layer, repr(settings), repr(variables))
    if key not in _read:
        _read[key] = fresh or load(name, **asked)[:2]
    return (*_read[key], _backbones[files])


def _host_for(opened: LoadedModel) -> ModelView:
    if not _is_shared(opened.model):
        return host_for(opened)
    key = (id(opened.model), opened.method.exit_layer)
    if key not in _hosts:
        view = _hosts[key] = host_for(opened)
        weights = list(view.weights())
        _digests[id(weights)] = weights, weights_digest(weights)
        view.weights = lambda: weights  # type: ignore[method-assign]
    return _hosts[key]


def _weights_digest(weights: Any) -> str:
    shared, digest = _digests.get(id(weights), (None, ""))
    return digest if shared is weights else weights_digest(weights)


def _tokenizer(tokenizer: Any, private: bool = False) -> Tokenizer:
    # One that a caller handed over is copied, also where it is the one that is read here.
    if not private or not _is_shared(tokenizer):
        return Tokenizer(tokenizer, private=private)
    if id(tokenizer) not in _tokenizers:
        _tokenizers[id(tokenizer)] = Tokenizer(tokenizer, private=True)
    return _tokenizers[id(tokenizer)]


def _is_shared(part: Any) -> bool:
    return any(part is each for pair in _read.values() for each in pair)
