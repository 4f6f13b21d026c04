"""The best measured method of a model, from the file that `benchmarks/choose.py` writes into the model's folder."""

from __future__ import annotations

import json
from pathlib import Path

from eddy_demo.errors import DemoError
from eddy_embed import methods
from eddy_embed.model.loading.names import locate

DEFAULT_METHOD = "htp"
"""Method for models without measurements."""
DEFAULTS_FILE = "defaults.json"


def best_method(model: str) -> str | None:
    """Return the method that measured best in retrieval; None without measurements, as for a model on the hub."""
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
