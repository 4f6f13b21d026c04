"""OpenAI's API for embeddings: `eddy serve`, or `create_app` for a server of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.integrations import import_lazily

if TYPE_CHECKING:
    from openai_eddy.app import create_app
    from openai_eddy.limits import Limits
    from openai_eddy.middleware import Keys
    from openai_eddy.uvicorn_server import Endpoint

__all__ = ["Endpoint", "Keys", "Limits", "create_app"]
_MODULES = {"create_app": "app", "Endpoint": "uvicorn_server", "Keys": "middleware", "Limits": "limits"}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "serve")
