"""Sweeps: one method under several values of its parameters, chosen from on a development set and on nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from eddy_embed import methods
from eddy_embed.analysis.evaluate.tasks import digest
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Term, parse_terms, print_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddy_embed.analysis.evaluate.results import TaskResult
    from eddy_embed.analysis.evaluate.tasks import Task
    from eddy_embed.model.backbone import Backbone

_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,"]+')
_SPEC = re.compile(rf"\s*([\w.-]+)\s*=\s*((?:{_VALUE.pattern})(?:\s*,\s*(?:{_VALUE.pattern}))*)\s*")

Varied = dict[str, tuple[str, ...]]
"""By parameter, such as "exit" or "htp.k", its values as they stand in the text form."""


@dataclass(frozen=True)
class GridPoint:
    """One combination of values.

    Attributes:
        method: In text form.
        values: By parameter, in the order in which they are varied.
    """

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
    """What is varied, from texts such as `exit=-1,-2` and `kv.layers=3-5,"3,5"`.

    Raises:
        InvalidParameter: A text is malformed, or a parameter is varied twice, or has a value twice.
    """
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
    """Every combination of the values, the last parameter changing first.

    Args:
        method: Text form; what it sets itself is replaced.
        varied: Parameters of its terms; `name.parameter` where several have one of that name.

    Raises:
        UnknownMethod: No method has that name.
        InvalidParameter: No term has such a parameter, or several have; or a value is wrong.
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
    places = [
        at for at, term in enumerate(terms) if wanted in ("", term.name) and parameter in methods.describe(term.name)[1]
    ]
    written = print_terms(tuple(terms))
    if not places:
        offered = sorted({f"{term.name}.{key}" for term in terms for key in methods.describe(term.name)[1]})
        raise InvalidParameter(f"{written} has no parameter {name!r}; it has {', '.join(offered)}")
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


def check_dev(dev: Task, reported: Iterable[Task]) -> None:
    """Refuse to choose on what is also reported: a score on the set that one chose on says too much.

    Raises:
        InvalidParameter: The development set is one of those reported, under this or another name.
    """
    for task in reported:
        if task.name == dev.name or digest(replace(task, name="")) == digest(replace(dev, name="")):
            same = "" if task.name == dev.name else f", which holds the same data as {task.name},"
            raise InvalidParameter(
                f"{dev.name}{same} is to be reported, so nothing may be chosen on it; name another set with --dev"
            )


def choose(outcomes: Sequence[TaskResult]) -> tuple[TaskResult, list[TaskResult]]:
    """The best on the development set, and those that may be as good, the cheapest first.

    Args:
        outcomes: Of the combinations, one task. Of equal scores the first wins.

    Raises:
        InvalidParameter: There are none.
    """
    if not outcomes:
        raise InvalidParameter("none of the combinations can be run on this model and task; vary others")
    best = max(outcomes, key=lambda outcome: outcome.score())
    ties = [outcome for outcome in outcomes if outcome is not best and best.difference(outcome).tie]
    return best, sorted(ties, key=lambda outcome: outcome.cost.work)


def chosen_by(best: TaskResult, reference: TaskResult | None) -> dict[str, Any]:
    """What was chosen and by what, as plain values."""
    found: dict[str, Any] = {
        "method": best.system.text,
        "task": best.task,
        "metric": best.metric,
        "score": best.interval().rounded,
    }
    if reference is not None:
        found |= {"reference": reference.system.text, "difference": best.difference(reference).rounded}
    return found


def curves(
    found: Mapping[str, TaskResult], combinations: Iterable[GridPoint]
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """By curve, the score with its interval at each value of the parameter that is varied first.

    Args:
        found: Outcomes by method.
        combinations: In their order; those without an outcome are left out.
    """
    drawn: dict[str, dict[str, tuple[float, float, float]]] = {}
    for point in combinations:
        if point.method in found:
            interval = found[point.method].interval()
            drawn.setdefault(point.others, {})[point.first] = (interval.value, interval.low, interval.high)
    return drawn
