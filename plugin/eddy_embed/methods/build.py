"""How a method's function notes what it was called with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from eddy_embed.methods.method import Method
from eddy_embed.methods.spec import Term

if TYPE_CHECKING:
    from collections.abc import Callable


def build(function: Callable[..., Method], given: dict[str, Any], **parts: Any) -> Method:
    """A method with the term that makes it again: its function's name and what differs from the defaults."""
    defaults = inspect.signature(function).parameters
    changed = tuple((key, given[key]) for key in defaults if given[key] != defaults[key].default)
    return Method(**parts, terms=(Term(function.__name__, changed),))
