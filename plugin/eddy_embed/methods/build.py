"""How a method's function notes what it was called with."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from eddy_embed.method import Method
from eddy_embed.text import Term


def build(name: str, given: dict[str, Any], **parts: Any) -> Method:
    """A method with the term that makes it again: its name and the parameters that differ from their defaults."""
    function = getattr(sys.modules[f"eddy_embed.methods.{name}"], name)
    defaults = inspect.signature(function).parameters
    changed = tuple((key, given[key]) for key in defaults if given[key] != defaults[key].default)
    return Method(**parts, terms=(Term(name, changed),))
