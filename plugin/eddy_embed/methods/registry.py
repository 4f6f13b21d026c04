"""The registry: functions that make methods, by their names; those of other packages too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from importlib.metadata import EntryPoint, entry_points
from operator import or_
from typing import Any, TypeVar

from eddy_embed.errors import InvalidParameter, UnknownMethod
from eddy_embed.methods.method import Method, MethodTerm, parse_terms

_F = TypeVar("_F", bound=Callable[..., Method])


GROUP = "eddy_embed.methods"
"""The entry points by which an installed package offers methods."""

_REGISTRY: dict[str, Callable[..., Method]] = {}
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("int", "int | None"), (int, "a whole number")),
    **dict.fromkeys(("float", "float | None"), ((float, int), "a number")),
    "bool": (bool, "true or false"),
    "int | str | None": ((int, str), "a whole number, or a name"),
    "str": (str, "a name"),
    "str | None": (str, "a text in quotation marks"),
    **dict.fromkeys(("Pool", "Pool | None"), (str, "a name")),
    "tuple[int, int] | None": (tuple, "a range such as 1-7"),
    "tuple[int, int] | int | str | None": ((tuple, str, int), "a range such as 13-22 or a quoted list"),
}


def register(function: _F) -> _F:
    """Register a method under the name of the function that makes it, also for text; usable as a decorator.

    Args:
        function: Returns what `eddy_embed.methods.registry.build` makes. Every parameter has a default and a type that
            the text form can hold: int, float, bool, str, one of these or None, or `tuple[int, int] | None`.

    Returns:
        The function.

    Raises:
        InvalidParameter: The name is taken, or is none; or a parameter has no default, or another type.
    """
    name = function.__name__
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InvalidParameter(f"a method needs a function with a name, not {name!r}; use def")
    taken = _REGISTRY.get(name)
    # The same function again, as when a cell of a notebook is run twice, replaces the first.
    if taken is not None and (taken.__module__, taken.__qualname__) != (function.__module__, function.__qualname__):
        raise InvalidParameter(f"method {name!r} is registered already, by {taken.__module__}; choose another name")
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty:
            raise InvalidParameter(f"{name}: {key} has no default; every parameter of a method needs one")
        if _annotation(parameter) not in _KINDS:
            raise InvalidParameter(
                f"{name}: {key} is annotated {_annotation(parameter)!r}, which the text form cannot hold; use one of "
                f"{', '.join(_KINDS)}"
            )
    _REGISTRY[name] = function
    return function


def names() -> list[str]:
    """Return names of the methods: registered ones, then those that installed packages offer."""
    return [*_REGISTRY, *(name for name in _offered() if name not in _REGISTRY)]


def describe(name: str) -> tuple[str, dict[str, Any]]:
    """Return the first line of a method's description, and its parameters with their defaults."""
    function = _lookup(name)
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    return summary, {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}


def build_term(term: MethodTerm) -> Method:
    """Return the method that a term names; UnknownMethod or InvalidParameter if it is wrong."""
    function = _lookup(term.name)
    signature = inspect.signature(function).parameters
    values = dict(term.parameters)
    for key, value in values.items():
        if key not in signature:
            raise InvalidParameter(f"{term.name} has no parameter {key!r}; it takes {', '.join(signature)}")
        annotation = _annotation(signature[key])
        kind, wanted = _KINDS[annotation]
        if value is None and annotation.endswith("| None"):
            continue
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise InvalidParameter(f"{term.name}: {key}={value!r} must be {wanted}")
    return function(**values)


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _lookup(name: str) -> Callable[..., Method]:
    if name not in _REGISTRY:
        offered = _offered()
        if name not in offered:
            raise UnknownMethod(
                f"unknown method {name!r}; choose one of {', '.join([*_REGISTRY, *offered])}, or install or import the "
                "package that registers it"
            )
        _load(offered[name])
    return _REGISTRY[name]


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> None:
    try:
        function = point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownMethod(
            f"method {point.name!r} is offered as {point.value!r}, which cannot be loaded: {error}; repair or remove "
            "the package"
        ) from error
    if getattr(function, "__name__", None) != point.name:
        raise UnknownMethod(
            f"method {point.name!r} is offered as {point.value!r}, which has the name "
            f"{getattr(function, '__name__', None)!r}; the package must offer it under that name"
        )
    register(function)


def build(function: Callable[..., Method], parameters: dict[str, Any], **parts: Any) -> Method:
    """Return a method with the term that makes it again: its function's name and what differs from the defaults."""
    defaults = inspect.signature(function).parameters
    changed = tuple((key, parameters[key]) for key in defaults if parameters[key] != defaults[key].default)
    return Method(**parts, terms=(MethodTerm(function.__name__, changed),))


def layer_numbers(name: str, layers: tuple[int, int] | int | str | None) -> tuple[int, ...]:
    """Return the layers that a method's parameter lists, in rising order, of text such as "11,12,27-32".

    Raises:
        InvalidParameter: Of the method of this name: it is no such list.
    """
    listed = "" if layers is None else f"{layers[0]}-{layers[1]}" if isinstance(layers, tuple) else str(layers)
    numbers: set[int] = set()
    for part in listed.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if part and not (first.isdigit() and (last or first).isdigit() and int(first) <= int(last or first)):
            raise InvalidParameter(f"{name}: layers={listed!r} must be numbers and rising ranges, such as 11,12,27-32")
        numbers.update(range(int(first), int(last or first) + 1) if part else ())
    return tuple(sorted(numbers))


def parse(text: str) -> Method:
    """Return a method from its text form, such as `htp:range=1-7,exit=-2`.

    Raises:
        UnknownMethod: No method has that name.
        InvalidParameter: A parameter is unknown, or its value is wrong.
        IncompatibleMethods: Two joined methods set the same part.
    """
    built = [build_term(term) for term in parse_terms(text.strip())]
    # The readout that settles the others' conflict is joined first, wherever it is in the text.
    method = reduce(or_, sorted(built, key=lambda method: not method.decides))
    return replace(method, terms=tuple(term for part in built for term in part.terms) if method.terms else ())
