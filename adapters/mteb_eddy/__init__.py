"""Eddy in MTEB: an encoder, and the tasks that the methods' papers report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily

if TYPE_CHECKING:
    from mteb_eddy.encoder import EddyEncoder
    from mteb_eddy.tasks import instructions, suite

__all__ = ["EddyEncoder", "instructions", "suite"]
_MODULES = {"EddyEncoder": "encoder", "instructions": "tasks", "suite": "tasks"}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "mteb")
