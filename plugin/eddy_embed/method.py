"""Method: the parts of a training-free embedding method, and how two of them join."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from eddy_embed.attention import Reroute, Temperature, Watch
from eddy_embed.errors import IncompatibleMethods
from eddy_embed.layout import Layout
from eddy_embed.postprocess import Post
from eddy_embed.readout import Readout
from eddy_embed.rewire import CopyEdges
from eddy_embed.text import Term, print_terms


@dataclass(frozen=True)
class Method:
    """What one forward pass does at the moments that a method may touch. A part that is None is left as it is.

    Attributes:
        layout: The tokens laid out.
        rewire: A layer's input.
        temperature: Inside attention: what divides its logits.
        reroute: Inside attention: its further entries.
        watch: Beside attention: what later tokens paid to earlier ones, for the readout.
        readout: Hidden states to vectors.
        post: What is done to vectors, fitted on a library.
        terms: The registered names and parameters it was made from; empty for a method put together by hand.
    """

    layout: Layout | None = None
    rewire: CopyEdges | None = None
    temperature: Temperature | None = None
    reroute: Reroute | None = None
    watch: Watch | None = None
    readout: Readout | None = None
    post: Post | None = None
    terms: tuple[Term, ...] = ()

    def __or__(self, other: Method) -> Method:
        """Join two methods that set different parts.

        Raises:
            IncompatibleMethods: Both set the same part.
        """
        parts = [field.name for field in fields(self) if field.name != "terms"]
        twice = [part for part in parts if getattr(self, part) is not None and getattr(other, part) is not None]
        if twice:
            raise IncompatibleMethods(
                f"{self} and {other} both set {', '.join(twice)}; a method sets each part at most once"
            )
        chosen = {part: getattr(self, part) or getattr(other, part) for part in parts}
        return Method(**chosen, terms=self.terms + other.terms if self.terms and other.terms else ())

    def __str__(self) -> str:
        """The text form, `name:key=value+name`, which `eddy_embed.methods.parse` reads back."""
        return print_terms(self.terms) if self.terms else repr(self)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a vector, as plain values; registered names do not.

        A part of a class that is not Eddy's brings the name of the class.
        """
        names = [field.name for field in fields(self) if field.name != "terms"]
        parts = {name: getattr(self, name) for name in names}
        return {name: {**asdict(part), **_class_of(part)} for name, part in parts.items() if part is not None}


def _class_of(part: object) -> dict[str, str]:
    kind = type(part)
    return {} if kind.__module__.startswith("eddy_embed.") else {"class": f"{kind.__module__}.{kind.__qualname__}"}
