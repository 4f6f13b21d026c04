"""OpenAI's interface for embeddings in front of Eddy: `eddy serve`, or `create_app` for a server of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai_eddy.app import create_app
    from openai_eddy.connection import Endpoint
    from openai_eddy.keys import Keys
    from openai_eddy.limits import Limits

__all__ = ["Endpoint", "Keys", "Limits", "create_app"]
_MODULES = {"create_app": "app", "Endpoint": "connection", "Keys": "keys", "Limits": "limits"}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line looks in here at every start."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"openai_eddy.{_MODULES[name]}"), name)
