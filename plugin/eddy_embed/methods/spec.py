"""The text form of methods: `tp:prompt=prompteol,range=1-7`, joined with `+`. Parsing and printing are inverse."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from eddy_embed.errors import InvalidParameter

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_BARE = re.compile(r"[^\s,+:=\"]+")
_RANGE = re.compile(r"(\d+)-(\d+)")
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Term:
    """A registered name with the parameters that differ from its defaults, in the order of its signature."""

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()


def print_terms(terms: tuple[Term, ...]) -> str:
    """Terms as text."""
    return "+".join(_print_term(term) for term in terms)


def parse_terms(text: str) -> list[Term]:
    """Text as terms, values as None, bool, int, float, (int, int) or str.

    Raises:
        InvalidParameter: The text is malformed; the message gives the place.
    """
    terms: list[Term] = []
    at = 0
    while True:
        name, at = _expect(_NAME, text, at, "a method's name")
        parameters: list[tuple[str, Any]] = []
        separator = ":"
        while text[at : at + 1] == separator:
            key, at = _expect(_NAME, text, at + 1, "a parameter's name")
            _, at = _expect(re.compile("="), text, at, "'=' and a value")
            value, at = _value(text, at)
            if key in dict(parameters):
                raise InvalidParameter(f"{key!r} is given twice in {text!r}")
            parameters.append((key, value))
            separator = ","
        terms.append(Term(name, tuple(parameters)))
        if at == len(text):
            return terms
        _, at = _expect(re.compile(r"\+"), text, at, "',' or '+'")


def _expect(pattern: re.Pattern[str], text: str, at: int, what: str) -> tuple[str, int]:
    match = pattern.match(text, at)
    if match is None:
        raise InvalidParameter(f"method {text!r}: expected {what} at character {at}, as in 'htp:range=1-7,exit=-2'")
    return match.group(), match.end()


def _value(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] == '"':
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidParameter(f"method {text!r}: unfinished quotation at character {at}") from error
        return value, end
    bare, end = _expect(_BARE, text, at, "a value")
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


def _print_term(term: Term) -> str:
    parameters = ",".join(f"{key}={_print(value)}" for key, value in term.parameters)
    return f"{term.name}:{parameters}" if parameters else term.name


def _print(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return next(word for word, meant in _WORDS.items() if meant is value)
    if isinstance(value, tuple):
        return f"{value[0]}-{value[1]}"
    if isinstance(value, str) and (not _BARE.fullmatch(value) or _read(value) != value):
        return json.dumps(value)
    # Without the plus sign of 1e+16, which joins terms.
    return repr(value).replace("+", "") if isinstance(value, float) else str(value)
