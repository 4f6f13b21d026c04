"""The same texts under several methods: one matrix of cosines for each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from eddy_embed import methods as registry
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.build import LoadedModel, open_model
from eddy_embed.encoding.finalize import unit
from eddy_embed.encoding.validation import check_options, checked_role, checked_text_list, torch_name
from eddy_embed.errors import (
    IncompatibleMethods,
    InvalidParameter,
    NotFinite,
    NotFitted,
    TextTooLong,
    UnsupportedModel,
    ZeroVector,
)
from eddy_embed.methods.method import Method
from eddy_embed.parts.layout import TextRole
from eddy_embed.utils.arrays import Doubles

_REFUSALS = (IncompatibleMethods, InvalidParameter, NotFinite, NotFitted, TextTooLong, UnsupportedModel, ZeroVector)
_LOADING: dict[str, Any] = {
    "device": None,
    "dtype": "auto",
    "revision": None,
    "cache_folder": None,
    "trust_remote_code": False,
    "local_files_only": False,
    "model_kwargs": None,
    "show_progress": False,
}


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """Texts under one method.

    Attributes:
        method: The method in text form.
        cosines: Of every two texts, shape (texts, texts); None where the method cannot be run.
        reason: Why it cannot, None where it can.
    """

    method: str
    cosines: Doubles | None
    reason: str | None


def default_methods() -> list[str]:
    """Every registered method with its defaults, joined to `plain` where it reads nothing out by itself.

    Post-processing is left out, which has nothing to show before it was fitted on a library, and so is what only
    says how another method is read, and `recommended`, which is one of the others.
    """
    found = []
    for name in registry.names():
        method = registry.parse(name)
        if method.readout is None and method.post is None and method.recommended is None:
            found.append(f"plain+{name}")
        elif method.readout is not None and method.layout is not None:
            found.append(name)
    return found


def compare(
    texts: Iterable[str],
    model: str | os.PathLike[str] | torch.nn.Module,
    methods: Iterable[str | Method] | None = None,
    *,
    role: TextRole = "document",
    tokenizer: Any | None = None,
    **options: Any,
) -> list[ComparisonResult]:
    """Cosines of texts under several methods, with one and the same model, which is loaded once.

    Args:
        texts: Two or more.
        model: Name, path or Hugging Face id as for `Embedder`, or a loaded model.
        methods: Text forms or Methods; None: `default_methods`.
        role: Whether the texts are documents or queries.
        tokenizer: The tokenizer of a loaded model (a fast one).
        **options: Further arguments of `Embedder`.

    Returns:
        In the order of the methods. A method that cannot be run on this model or with these texts has the reason in
        place of its matrix.

    Raises:
        InvalidText: A text is blank, no string, or not valid Unicode.
        InvalidParameter: There is one text only, or an argument is outside its range.
        UnknownMethod: No method of that name.
        ModelNotFound: No usable model there.
        UnsupportedModel: What the configuration describes is no causal language model.
    """
    given = checked_text_list(texts)
    if len(given) < 2:
        raise InvalidParameter(f"compare needs two texts or more, not {len(given)}; add one")
    checked_role(role)
    named = default_methods() if methods is None else methods
    asked = [method if isinstance(method, Method) else registry.parse(method) for method in named]
    loading = {name: options.pop(name, default) for name, default in _LOADING.items()}
    loading.update({name: torch_name(loading[name]) for name in ("device", "dtype")})
    check_options({**options, **loading})
    loading["model_kwargs"] = dict(loading["model_kwargs"] or {})
    opened = open_model(model, registry.plain(), tokenizer, **loading)
    options["dtype"] = opened.dtype
    # What plain refuses is wrong with the arguments, what another method refuses is a reason of its own.
    first = {**options, "fitted": None, "check": False}
    Embedder(opened.model, tokenizer=opened.tokenizer, method="plain", **first).close()
    return [_compared(given, method, opened, role, options) for method in asked]


def _compared(
    texts: list[str], method: Method, opened: LoadedModel, role: TextRole, options: dict[str, Any]
) -> ComparisonResult:
    try:
        with Embedder(opened.model, tokenizer=opened.tokenizer, method=method, **options) as embedder:
            method = embedder.method
            vectors = embedder.encode_query(texts) if role == "query" else embedder.encode_document(texts)
    except _REFUSALS as error:
        return ComparisonResult(str(method), None, str(error))
    units = unit(vectors.astype(np.float64))
    return ComparisonResult(str(method), units @ units.T, None)
