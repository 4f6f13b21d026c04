"""OpenAI's API for embeddings: `eddy serve`, or `create_app` for a server of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily

if TYPE_CHECKING:
    from openai_eddy.app import create_app
    from openai_eddy.request import Limits

__all__ = ["Limits", "create_app"]


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, {"create_app": "app", "Limits": "request"}, name, "serve")
