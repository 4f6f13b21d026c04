"""Method: the parts of a training-free embedding method, how two of them join, and their text form.

The text form is `tp:prompt=prompteol,range=1-7`, joined with `+`. Parsing and printing are inverse.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Any

from eddy_embed.errors import IncompatibleMethods, InvalidParameter
from eddy_embed.parts.attention import BackwardAttention, ExtraKeyValues, Temperature
from eddy_embed.parts.copy_edges import CopyEdges
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.postprocess import Post
from eddy_embed.parts.readout import EmbedFilter, LayerMean, Readout, TokenWeights
from eddy_embed.utils.settings import part_settings

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_BARE = re.compile(r"[^\s,+:=\"]+")
_RANGE = re.compile(r"(\d+)-(\d+)")
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class MethodTerm:
    """A registered name with the parameters that differ from its defaults, in the order of its signature."""

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Recommended:
    """Stands for the method recommended for a model, until the method is resolved for one.

    Attributes:
        use: What the vectors are for: "retrieval", "fast" (retrieval without a layer) or "similarity".
    """

    use: str = "retrieval"


@dataclass(frozen=True)
class Method:
    """What a method changes in a forward pass; it leaves the parts that are None as they are.

    Attributes:
        layout: How a text becomes tokens.
        rewire: Copies of states on the inputs of layers.
        temperature: What divides attention's logits.
        reroute: Extra keys and values in attention.
        watch: How attention that later tokens pay to earlier ones refines the states that are read.
        readout: Which hidden states become vectors.
        average: The layers whose states are averaged before the readout.
        weights: How much each token weighs in a mean.
        filter: Which directions of the token embeddings are taken out of vectors.
        post: What is done to vectors, fitted on a library.
        recommended: Stands for the parts of the method recommended for the model, which `resolve` puts in its place.
        decides: Whether the readout replaces that of a method joined to it.
        terms: The registered names and parameters it was made from; empty for a method composed by hand.
    """

    layout: Layout | None = None
    rewire: CopyEdges | None = None
    temperature: Temperature | None = None
    reroute: ExtraKeyValues | None = None
    watch: BackwardAttention | None = None
    readout: Readout | None = None
    average: LayerMean | None = None
    weights: TokenWeights | None = None
    filter: EmbedFilter | None = None
    post: Post | None = None
    recommended: Recommended | None = None
    decides: bool = False
    terms: tuple[MethodTerm, ...] = ()

    def __or__(self, other: Method) -> Method:
        """Join two methods that set different parts; truncation may follow other post-processing.

        Two layouts join if one has the wording and the other the placeholders. A readout that `decides` replaces the
        other's.

        Raises:
            IncompatibleMethods: Both set the same part, or the parts do not go together.
        """
        chosen = {part: getattr(self, part) or getattr(other, part) for part in _PARTS}
        twice = [part for part in _PARTS if getattr(self, part) is not None and getattr(other, part) is not None]
        if self.layout is not None and other.layout is not None:
            chosen["layout"], twice[:1] = self._laid_out(self.layout, other.layout, other)
        if "readout" in twice and self.decides != other.decides:
            twice.remove("readout")
            chosen["readout"] = self.readout if self.decides else other.readout
        both = None if self.post is None or other.post is None else self.post.joined(other.post)
        if both is not None:
            twice.remove("post")
            chosen["post"] = both
        if twice:
            settled = twice == ["readout"] and not self.decides and chosen["watch"] is None
            remedy = f"; name the readout to use, as in {self}+{other}+readout:pool=mean" if settled else ""
            raise IncompatibleMethods(
                f"{self} and {other} both set {', '.join(twice)}; a method sets each part at most once{remedy}"
            )
        decides = self.decides or other.decides
        if decides and chosen["watch"] is not None:
            raise IncompatibleMethods(
                f"{self} and {other}: only what is read is refined by attention, so reba comes with a readout of its "
                "own; choose by its pool= and exit="
            )
        return Method(**chosen, decides=decides, terms=self.terms + other.terms if self.terms and other.terms else ())

    def _laid_out(self, first: Layout, second: Layout, other: Method) -> tuple[Layout, list[str]]:
        """Return both layouts in one, and the parts that both choose."""
        if type(first) is not Layout or type(second) is not Layout:
            return first, ["layout"]
        if both := [part for part in first.chosen if part in second.chosen]:
            return first, both
        try:
            return first.joined(second), []
        except InvalidParameter as error:
            raise IncompatibleMethods(f"{self} and {other} do not go together: {error}") from error

    def __str__(self) -> str:
        """Return the text form, `name:key=value+name`, which `eddy_embed.methods.parse` reads back."""
        return print_terms(self.terms) if self.terms else repr(self)

    @property
    def exit_layer(self) -> int:
        """The layer that is read; InvalidParameter if it depends on a model that the method is not resolved for."""
        if self.readout is None or self.readout.exit is None or self.readout.exit < 0:
            raise InvalidParameter(f"{self}: its exit layer depends on the model; resolve the method for one first")
        return self.readout.exit

    @property
    def measures_model(self) -> bool:
        """Whether the layers that it re-routes are still to be found, by measuring the model."""
        return self.reroute is not None and self.reroute.layers == "auto"

    @property
    def can_embed_spans(self) -> bool:
        """Whether parts of a text can be read out of a pass over the whole, since positions are averaged."""
        return self.readout is not None and self.readout.spans

    @property
    def can_embed_words(self) -> bool:
        """Whether words have vectors, since positions are averaged, or states weighed for each token."""
        return self.can_embed_spans or self.watch is not None

    def copied(self, layers: int) -> range:
        """Return the layers whose states, if read, are copied again to placeholders (HTP, section 4.4)."""
        pools = self.readout is not None and self.readout.placeholders
        return self.rewire.inputs(layers) if self.rewire is not None and pools else range(0)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a vector, as plain values: no registered names, but names of classes not Eddy's."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return {name: part_settings(part) | _class_of(part) for name, part in parts.items() if part is not None}


_PARTS = [field.name for field in fields(Method) if field.name not in ("decides", "terms")]


def _class_of(part: object) -> dict[str, str]:
    kind = type(part)
    return {} if kind.__module__.startswith("eddy_embed.") else {"class": f"{kind.__module__}.{kind.__qualname__}"}


def print_terms(terms: tuple[MethodTerm, ...]) -> str:
    """Return terms as text."""
    printed = []
    for term in terms:
        parameters = ",".join(f"{key}={_print(value)}" for key, value in term.parameters)
        printed.append(f"{term.name}:{parameters}" if parameters else term.name)
    return "+".join(printed)


def parse_terms(text: str) -> list[MethodTerm]:
    """Return text as terms, with values None, bool, int, float, (int, int) or str."""
    terms: list[MethodTerm] = []
    offset = 0
    while True:
        name, offset = _expect(_NAME, text, offset, "a method's name")
        parameters: dict[str, Any] = {}
        separator = ":"
        while text[offset : offset + 1] == separator:
            key, offset = _expect(_NAME, text, offset + 1, "a parameter's name")
            _, offset = _expect(re.compile("="), text, offset, "'=' and a value")
            value, offset = _value(text, offset)
            if key in parameters:
                raise InvalidParameter(f"{key!r} is given twice in {text!r}")
            parameters[key] = value
            separator = ","
        terms.append(MethodTerm(name, tuple(parameters.items())))
        if offset == len(text):
            return terms
        _, offset = _expect(re.compile(r"\+"), text, offset, "',' or '+'")


def _expect(pattern: re.Pattern[str], text: str, offset: int, what: str) -> tuple[str, int]:
    match = pattern.match(text, offset)
    if match is None:
        raise InvalidParameter(f"method {text!r}: expected {what} at character {offset}, as in 'htp:range=1-7,exit=-2'")
    return match.group(), match.end()


def _value(text: str, offset: int) -> tuple[Any, int]:
    if text[offset : offset + 1] == '"':
        try:
            return json.JSONDecoder().raw_decode(text, offset)
        except json.JSONDecodeError as error:
            raise InvalidParameter(f"method {text!r}: unfinished quotation at character {offset}") from error
    bare, end = _expect(_BARE, text, offset, "a value")
    return _read(bare), end


def _read(bare: str) -> Any:
    if bare in _WORDS:
        return _WORDS[bare]
    if match := _RANGE.fullmatch(bare):
        return int(match.group(1)), int(match.group(2))
    for kind in (int, float):
        try:
            return kind(bare)
        except ValueError:
            continue
    return bare


def _print(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return next(word for word, meant in _WORDS.items() if meant is value)
    if isinstance(value, tuple):
        return f"{value[0]}-{value[1]}"
    if isinstance(value, str) and (not _BARE.fullmatch(value) or _read(value) != value):
        return json.dumps(value)
    # Without the plus sign of 1e+16, since plus signs join terms.
    return repr(value).replace("+", "") if isinstance(value, float) else str(value)
