"""Checks of a caller's arguments, before anything runs."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from numbers import Integral
from types import NoneType
from typing import Any, get_args

from eddy_embed.encoding.document import Part, PassageUnit
from eddy_embed.encoding.planner import Overflow
from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.text.tokenizer import raise_on_surrogates

PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of a document that have vectors."""
PASSAGES: tuple[Part, ...] = ("passages",)
PASSAGE_SIZE = 256
"""Default of most tokens in a passage."""
CHUNK_CHARACTERS = 4_000_000
"""Characters of text planned at once: enough to sort by length, few enough for memory."""
_FLAG = (bool, "True or False")
_KINDS: dict[str, tuple[Any, str]] = {
    "query_instruction": ((str, NoneType), "a string, or None for none"),
    "text_instruction": ((str, NoneType), "a string, or None for none"),
    "device": ((str, NoneType), "a string such as 'cpu' or 'cuda:0', or None"),
    "dtype": (str, "a string such as 'auto' or 'bfloat16'"),
    "language": (str, "the code of a language, such as 'en'"),
    "revision": ((str, NoneType), "a string, or None"),
    "cache_folder": ((str, os.PathLike, NoneType), "a path, or None"),
    "fitted": ((Fitted, str, os.PathLike, NoneType), "a file that Fitted.save wrote, what fit() returned, or None"),
    "progress": ((Callable, NoneType), "a function of done, total and stage, or None"),
    "model_kwargs": ((Mapping, NoneType), "a dictionary, or None"),
    **dict.fromkeys(("normalize", "trust_remote_code", "local_files_only", "show_progress", "check"), _FLAG),
    "late": ((bool, NoneType), "True or False, or None"),
}
_CHOICES: dict[str, tuple[str, ...]] = {"overflow": get_args(Overflow), "passage_unit": get_args(PassageUnit)}
_COUNTS = {"max_length": True, "batch_size": True, "batch_tokens": True, "passage_size": False}
"""Options that count something, and whether they may be None."""


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse options of another kind with InvalidParameter, instructions with lone surrogates with InvalidText."""
    for name, value in given.items():
        if name in _COUNTS:
            check_count(name, value, optional=_COUNTS[name])
        elif name in _CHOICES and not (isinstance(value, str) and value in _CHOICES[name]):
            raise InvalidParameter(f"{name}={value!r:.80} is unknown; choose one of {', '.join(_CHOICES[name])}")
        elif name in _KINDS:
            kinds, wanted = _KINDS[name]
            check_kind(name, value, kinds, wanted)
            if isinstance(value, str):
                raise_on_surrogates(value, name)


def refuse_unknown(
    owner: str, given: Mapping[str, Any], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse names that a class does not know; `elsewhere` says what to do in place of those of other libraries."""
    names = sorted(known)
    for name, value in given.items():
        if name in names:
            continue
        near = difflib.get_close_matches(name, names, n=1)
        guess = f"did you mean {near[0]}=?" if near else f"known: {', '.join(names)}"
        raise InvalidParameter(
            f"{owner} has no parameter {name!r} (given: {value!r}); {(elsewhere or {}).get(name, guess)}"
        )


def torch_name(value: Any) -> Any:
    """Return the name of a torch device or dtype; everything else as it is."""
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def check_parts(parts: Any) -> None:
    """Refuse what names no part of a document with InvalidParameter."""
    several = isinstance(parts, Collection) and not isinstance(parts, str) and len(parts) > 0
    if not several or any(part not in PARTS for part in parts):
        raise InvalidParameter(
            f"parts={parts!r} must hold one or more of {', '.join(PARTS)}, as in parts=('passages',)"
        )


def check_count(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what is no whole number of at least 1 with InvalidParameter."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidParameter(f"{name}={value!r:.80} must be a whole number of at least 1{', or None' * optional}")


def check_seconds(name: str, value: Any) -> None:
    """Refuse what is no positive number of seconds, nor None, with InvalidParameter."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if value is not None and not number:
        raise InvalidParameter(f"{name}={value!r:.80} must be a positive number of seconds, or None for no limit")


def check_kind(name: str, value: Any, kinds: Any, wanted: str) -> None:
    """Refuse a value of another kind with InvalidParameter."""
    if not isinstance(value, kinds):
        raise InvalidParameter(f"{name}={value!r:.80} must be {wanted}")


def checked_role(role: TextRole) -> TextRole:
    """Return the role of a text, or InvalidParameter with the choices."""
    if role not in get_args(TextRole):
        raise InvalidParameter(f"role={role!r} is unknown; choose one of {', '.join(get_args(TextRole))}")
    return role


def check_one(text: Any) -> None:
    """Refuse what is not one string with InvalidText."""
    if not isinstance(text, str):
        raise InvalidText(f"expected one string, not a {type(text).__name__}: {text!r:.60}")


def checked_texts(texts: str | Iterable[str], *, blank: bool = False) -> list[str]:
    """One or several texts as a list; InvalidText gives the index of one that is no string, blank, or not Unicode."""
    # A mapping would give its keys, a set no order, a table its columns, and a nested array its rows.
    others = isinstance(texts, bytes | bytearray | Mapping | Set) or getattr(texts, "ndim", 1) != 1
    if others or not isinstance(texts, Iterable):
        raise InvalidText(
            f"expected a string or a list of strings, not a {type(texts).__name__}: {texts!r:.60}; hand over the texts "
            "alone, in their order"
        )
    given = [texts] if isinstance(texts, str) else list(texts)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidText(f"text {index} is a {type(text).__name__}, not a string: {text!r:.60}")
        if not blank and not text.strip():
            raise InvalidText(f"text {index} is {'blank' if text else 'empty'} ({text!r:.40}); drop it first")
        if not text.isascii():
            raise_on_surrogates(text, f"text {index}")
    return given


def checked_spans(text: str, spans: Any) -> list[tuple[int, int]]:
    """Spans of a text's characters; InvalidParameter gives the index of one that is no pair, outside or blank."""
    if isinstance(spans, str | bytes) or not isinstance(spans, Iterable):
        raise InvalidParameter(f"spans={spans!r:.60} must be a list of pairs (start, end) of characters")
    checked = []
    for index, span in enumerate(spans):
        pair = tuple(span) if isinstance(span, Iterable) and not isinstance(span, str | bytes) else ()
        if len(pair) != 2 or any(isinstance(side, bool) or not isinstance(side, Integral) for side in pair):
            raise InvalidParameter(f"span {index} is {span!r:.60}; give a pair (start, end) of characters")
        start, end = int(pair[0]), int(pair[1])
        if not 0 <= start < end <= len(text):
            raise InvalidParameter(
                f"span {index} is ({start}, {end}) in a text of {len(text)} characters; it needs 0 <= start < end, and "
                "an end within the text"
            )
        if not text[start:end].strip():
            raise InvalidParameter(f"span {index}, ({start}, {end}), holds only white space; choose one with a word")
        checked.append((start, end))
    return checked


def checked_span_lists(texts: list[str], spans: Any) -> list[list[tuple[int, int]]]:
    """`checked_spans` of each text."""
    given = list(spans)
    if len(given) != len(texts):
        raise InvalidParameter(f"there are {len(texts)} texts and {len(given)} lists of spans; give one for each")
    return [checked_spans(text, own) for text, own in zip(texts, given, strict=True)]


def checked_text_list(texts: Iterable[str], *, blank: bool = False) -> list[str]:
    """As `checked_texts`, but refuse one string, which would be taken for a list of its characters."""
    if isinstance(texts, str):
        raise InvalidText(f"expected a list of strings, not one string: {texts!r:.60}; put it in a list")
    return checked_texts(texts, blank=blank)


def chunks(texts: list[str], characters: int = CHUNK_CHARACTERS) -> Iterator[tuple[int, list[str]]]:
    """Runs of texts of at most so many characters together, at least one text, each with the index of its first."""
    first, size = 0, 0
    for index, text in enumerate(texts):
        if index > first and size + len(text) > characters:
            yield first, texts[first:index]
            first, size = index, 0
        size += len(text)
    if texts:
        yield first, texts[first:]
