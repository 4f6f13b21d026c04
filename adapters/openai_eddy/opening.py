"""The embedders that a server is started with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eddy_embed import Embedder, methods
from eddy_embed.encoding.build import open_model
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.shared_embedders import open_embedder

LOADING = ("device", "dtype", "revision", "trust_remote_code", "local_files_only")
"""Options that concern the loading of a model, which several methods share."""


def open_embedders(
    model: str, asked: Sequence[str], *, post: Path | None = None, **options: Any
) -> dict[str, Embedder]:
    """An embedder for each method, by the method's text as it was asked for; the model is loaded once.

    Args:
        model: Bundled name, folder, or Hugging Face id.
        asked: Text forms of methods, at least one.
        post: What post-processing learned, for the methods that have some.
        **options: Further arguments of `Embedder`.

    Raises:
        InvalidParameter: Several methods are asked of a model that brings a pooling of its own.
        NotFitted: A method has post-processing, and there is no `post`.
        EddyError: What else an embedder raises.
    """
    parsed = {text: methods.parse(text) for text in dict.fromkeys(asked)}  # misspelt: before a model loads
    learns = {text for text, method in parsed.items() if method.post is not None and method.post.learns}

    def settings(text: str, own: dict[str, Any]) -> dict[str, Any]:
        return {**own, "method": text, **({"post": str(post)} if post is not None and text in learns else {})}

    if post is not None and not learns:
        raise InvalidParameter(
            f"--post {post}: none of {', '.join(parsed)} has post-processing; join some, as in +whiten"
        )
    if len(parsed) == 1:
        (text,) = parsed
        return {text: open_embedder(model, settings(text, options))}
    loading = {name: options.pop(name) for name in LOADING if name in options}
    usual = {"device": None, "dtype": "auto", "revision": None, "trust_remote_code": False, "local_files_only": False}
    opened = open_model(
        model, methods.plain(), None, cache_folder=None, model_kwargs={}, show_progress=False, **{**usual, **loading}
    )
    if opened.trained is not None:
        raise InvalidParameter(f"{model} brings a pooling of its own, and serves one method; start a server for each")
    live = (opened.model, opened.tokenizer)
    return {text: open_embedder(model, settings(text, options), live) for text in parsed}
