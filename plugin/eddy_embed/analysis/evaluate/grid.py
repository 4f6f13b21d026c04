"""One method under several values of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from eddy_embed import methods
from eddy_embed.analysis.evaluate.metrics import Interval
from eddy_embed.analysis.evaluate.results import TaskResult
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Term, parse_terms, print_terms
from eddy_embed.model.backbone import Backbone

_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,"]+')
_SPEC = re.compile(rf"\s*([\w.-]+)\s*=\s*((?:{_VALUE.pattern})(?:\s*,\s*(?:{_VALUE.pattern}))*)\s*")

Varied = dict[str, tuple[str, ...]]
"""By parameter, such as "exit" or "htp.k", its values as they stand in the text form."""


@dataclass(frozen=True)
class GridPoint:
    """One combination of values, in the order in which the parameters are varied, and its method in text form."""

    method: str
    values: tuple[tuple[str, str], ...]

    @property
    def first(self) -> str:
        """The value of the parameter that a curve goes over."""
        return self.values[0][1]

    @property
    def others(self) -> str:
        """The values that name the curve; "" where one parameter is varied."""
        return ", ".join(f"{name}={value}" for name, value in self.values[1:])


def parse_varied(specs: Iterable[str]) -> Varied:
    """What is varied, from texts such as `exit=-1,-2` and `kv.layers=3-5,"3,5"`."""
    found: Varied = {}
    for spec in specs:
        match = _SPEC.fullmatch(spec)
        if match is None:
            raise InvalidParameter(f"{spec!r} must be a parameter and its values, as in exit=-1,-2,-4")
        values = tuple(_VALUE.findall(match[2]))
        if match[1] in found or len(set(values)) < len(values):
            raise InvalidParameter(f"{spec!r}: {match[1]}, or one of its values, is given twice; name each once")
        found[match[1]] = values
    return found


def points(method: str, varied: Varied) -> list[GridPoint]:
    """Every combination of the values in place of those in a method's text form, the last parameter changing first.

    `varied` names parameters of the method's terms; `name.parameter` where several have one of that name.
    """
    terms = parse_terms(method.strip())
    places = {name: _place(terms, name) for name in varied}
    found = []
    for combination in product(*varied.values()):
        chosen = tuple(zip(varied, combination, strict=True))
        changed = list(terms)
        for name, value in chosen:
            at, parameter = places[name]
            ((_, read),) = parse_terms(f"{terms[at].name}:{parameter}={value}")[0].parameters
            given = {**dict(changed[at].parameters), parameter: read}
            changed[at] = Term(terms[at].name, tuple(given.items()))
        found.append(GridPoint(str(methods.parse(print_terms(tuple(changed)))), chosen))
    return found


def _place(terms: Sequence[Term], name: str) -> tuple[int, str]:
    """The term that a parameter belongs to, and the parameter's own name."""
    wanted, _, parameter = name.rpartition(".")
    offered = [(at, term.name, key) for at, term in enumerate(terms) for key in methods.describe(term.name)[1]]
    places = [at for at, term, key in offered if wanted in ("", term) and parameter == key]
    written = print_terms(tuple(terms))
    if not places:
        known = ", ".join(sorted({f"{term}.{key}" for _, term, key in offered}))
        raise InvalidParameter(f"{written} has no parameter {name!r}; it has {known}")
    if len(places) > 1:
        choices = " or ".join(f"{terms[at].name}.{parameter}" for at in places)
        raise InvalidParameter(f"{name!r} is a parameter of several parts of {written}; write {choices}")
    return places[0], parameter


def runnable(texts: Iterable[str], backbone: Backbone) -> tuple[list[str], dict[str, str]]:
    """Methods that a model can run, and the reasons of those that it cannot, such as an exit below the copies."""
    there: list[str] = []
    reasons: dict[str, str] = {}
    for text in texts:
        try:
            methods.resolve(methods.parse(text), backbone)
        except InvalidParameter as error:
            reasons[text] = str(error)
        else:
            there.append(text)
    return there, reasons


def curves(found: Mapping[str, TaskResult], combinations: Iterable[GridPoint]) -> dict[str, dict[str, Interval]]:
    """By curve, the score with its interval at each value of the parameter that is varied first.

    Combinations whose method is not among those found are left out.
    """
    drawn: dict[str, dict[str, Interval]] = {}
    for point in combinations:
        if point.method in found:
            drawn.setdefault(point.others, {})[point.first] = found[point.method].interval()
    return drawn
