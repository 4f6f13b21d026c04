"""The model and the method of new libraries, where the user names none."""

from __future__ import annotations

import json
from pathlib import Path

from eddy_demo.errors import DemoError
from eddy_embed import methods
from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.model.loading.names import locate

BUNDLED_MODEL = "eddy-tiny"
PREFERRED_MODEL = "smollm2"
DEFAULT_METHOD = "plain:exit=0+sif"
"""Method for models without measurements of their own: it runs no layer and fits nothing, and on Cranfield and CISI,
with SmolLM2 and Gemma 3 270M, it found more than whitened token embeddings."""
DEFAULTS_FILE = "defaults.json"


def default_model() -> str:
    """Return the preferred model if it is on this machine, else the bundled one."""
    return PREFERRED_MODEL if any(CATALOG[PREFERRED_MODEL].places()) else BUNDLED_MODEL


def best_method(model: str) -> str | None:
    """Return the method that measured best in retrieval; None without measurements, as for a model on the hub.

    `benchmarks/choose.py` writes them into the model's folder.
    """
    file = Path(locate(model)) / DEFAULTS_FILE
    if not file.is_file():
        return None
    try:
        method = json.loads(file.read_text(encoding="utf-8"))["retrieval"]["method"]
        if not isinstance(method, str):
            raise TypeError(f"{method!r:.60} is no text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DemoError(
            f"{file} names no method for retrieval ({type(error).__name__}: {error}); name one with --method, "
            "or write the file anew"
        ) from None
    return str(methods.parse(method))
