"""The method that measured best for a model, as `benchmarks/choose.py` writes it beside the model's weights."""

from __future__ import annotations

import json
from pathlib import Path

from eddy_demo.errors import InvalidDefaults

METHOD = "htp"
"""Of models for which nothing was measured."""
NAME = "defaults.json"


def measured(model: str) -> str | None:
    """The method that measured best in retrieval, None where no file says so.

    Args:
        model: Bundled name, folder, or hub id; a model on the hub has no such file.

    Raises:
        ModelNotFound: The name looks like a path, and nothing is there.
        InvalidDefaults: The file does not say it.
        UnknownMethod: It names a method that there is not.
        InvalidParameter: A parameter of its method is wrong.
    """
    from eddy_embed import methods
    from eddy_embed.loading import locate

    file = Path(locate(model)) / NAME
    if not file.is_file():
        return None
    try:
        method = json.loads(file.read_text(encoding="utf-8"))["retrieval"]["method"]
        if not isinstance(method, str):
            raise TypeError(f"{method!r:.60} is no text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidDefaults(
            f"{file} names no method for retrieval ({type(error).__name__}: {error}); name one with --method, "
            "or write the file anew"
        ) from None
    return str(methods.parse(method))
