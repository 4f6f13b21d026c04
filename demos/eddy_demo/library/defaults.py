"""The model, the method and the size of passages of new libraries, where the user names none."""

from __future__ import annotations

from typing import Literal

from eddy_embed.model.loading.catalog import CATALOG

BUNDLED_MODEL = "eddy-tiny"
PREFERRED_MODEL = "smollm2"
DEFAULT_PASSAGE_SIZE = 128
"""Most tokens in a passage."""


def default_model() -> str:
    """Return the preferred model if it is on this machine, else the bundled one."""
    return PREFERRED_MODEL if any(CATALOG[PREFERRED_MODEL].places()) else BUNDLED_MODEL


def default_method(model: str, which: Literal["best", "fast"] = "best") -> str:
    """Return what is recommended for retrieval with a model: with its layers where they find more, or without."""
    return method_in_full(model, which)


def method_in_full(model: str, method: str) -> str:
    """Return a method's text form, with what is recommended for the model in place of a name that stands for it."""
    from eddy_embed import methods  # imports torch
    from eddy_embed.model.loading.pretrained import read_backbone

    asked = methods.parse(method)
    return str(asked if asked.recommended is None else methods.resolve(asked, read_backbone(model)))
