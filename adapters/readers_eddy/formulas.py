"""Formulas in linear form, as `(a+b)/2` or `∑_(i=1)ⁿ x_i`: MathML, and the math of Word and PowerPoint."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bs4.element import Tag

from readers_eddy.scripts import lowered, raised

_END = "\0"
"""Stands at the ends of fractions and behind scripts, where a space keeps what follows apart."""
_APART = re.compile(rf"(?<=[\w)\]]){_END}+(?=[\w(√∛∜∑∫])")
_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064\u200b")  # operators without a sign
_OPERAND = re.compile(r"[\d.,]+|[^\W\d_][\u0300-\u036f⁰-₟²³¹]*|[^\W\d_]{3,}|[′″*†∞]")
_PRODUCT = re.compile(r"[\w.,\u0300-\u036f]+")
_LETTERS = r"[^\W\d_ª²³¹º\u02b0-\u02ff\u1d2c-\u1dbf⁰-₟]{2,}"
_NAME = re.compile(_LETTERS)
_ACCENTS = dict(
    zip("¯‾―^ˆ~˜→⃗˙.¨ˇ", "\u0304\u0304\u0304\u0302\u0302\u0303\u0303\u20d7\u20d7\u0307\u0307\u0308\u030c", strict=True)
)
_ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}


def mathml_text(math: Tag) -> str:
    """Return a formula in MathML as text."""
    return _closed(_mathml(math))


def omml_text(math: Any) -> str:
    """Return a formula of Word's or PowerPoint's as text; its element is lxml's."""
    return _closed(_omml(math))


def _closed(text: str) -> str:
    return _APART.sub(" ", text).replace(_END, "").strip()


def _joined(parts: Iterable[str]) -> str:
    """Join parts, with a space between two numbers and beside names of several letters."""
    text = ""
    for part in parts:
        apart = _NAME.match(part) or _NAME.match(text[-2:]) or (part[:1].isdecimal() and text[-1:].isdecimal())
        text += " " + part if apart and text[-1:].isalnum() and part[:1].isalnum() else part
    return text


def _bracketed(text: str, plain: re.Pattern[str] = _OPERAND) -> str:
    """Return text in brackets, unless it is one operand or stands in brackets."""
    text = _closed(text)
    return text if not text or plain.fullmatch(text) or _is_enclosed(text) else f"({text})"


def _is_enclosed(text: str) -> bool:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if not depth:
            return 0 < at == len(text) - 1
    return False


def _fraction(above: str, below: str, bar: bool = True) -> str:
    return f"{_END}{_bracketed(above, _PRODUCT)}{'/' if bar else '¦'}{_bracketed(below)}{_END}"


def _scripts(base: str, sub: str = "", sup: str = "") -> str:
    bare = base.replace(_END, "")
    if len(bare) > 1 and not _PRODUCT.fullmatch(bare):
        base = _bracketed(base)
    low, high = lowered(sub), raised(sup)
    low = f"_{_bracketed(sub)}" if low == sub and sub else low
    high = f"^{_bracketed(sup)}" if high == sup and sup.strip("′″‴'") else high
    ends = "_" in low or "^" in high or not (bare[-1:].isalnum() or bare[-1:] in tuple(")]}|"))
    return f"{base}{low}{high}{_END if ends else ''}"


def _root(of: str, degree: str = "") -> str:
    degree = degree.replace(_END, "")
    return f"{_ROOTS.get(degree) or raised(_bracketed(degree)) + '√'}{_bracketed(of)}"


def _over(base: str, sign: str) -> str:
    """Return a letter with an accent, or with what stands above it."""
    mark = _ACCENTS.get(sign, sign)
    if not unicodedata.combining(mark[:1] or "x"):
        return base if sign in ("⏞", "⏟") else _scripts(base, "", sign)
    return unicodedata.normalize("NFC", (base if len(base) == 1 else f"({base})") + mark)


def _fenced(parts: Sequence[str], tag: Tag) -> str:
    between = str(tag.get("separators", ",")).strip()[:1]
    return f"{tag.get('open', '(')}{between.join(parts)}{tag.get('close', ')')}"


def _multiscripts(parts: Sequence[str], tag: Tag) -> str:
    names = [child.name for child in tag.find_all(True, recursive=False)]
    at = names.index("mprescripts") if "mprescripts" in names else len(parts)
    before, after = parts[at + 1 :], parts[1:at]
    return _joined(
        [
            _scripts("", "".join(before[::2]), "".join(before[1::2])).strip(_END),
            _scripts(parts[0], "".join(after[::2]), "".join(after[1::2])),
        ]
    )


_MATHML: dict[str, tuple[int, Callable[[Sequence[str], Tag], str]]] = {
    "mfrac": (2, lambda p, tag: _fraction(p[0], p[1], not re.match(r"0(?!\.)", str(tag.get("linethickness", "1"))))),
    "msup": (2, lambda p, _: _scripts(p[0], "", p[1])),
    "msub": (2, lambda p, _: _scripts(p[0], p[1])),
    "msubsup": (3, lambda p, _: _scripts(*p)),
    "munder": (2, lambda p, _: p[0] if p[1] in ("⏞", "⏟") else _scripts(p[0], p[1])),
    "mover": (2, lambda p, _: _over(p[0], p[1])),
    "munderover": (3, lambda p, _: _scripts(*p)),
    "mroot": (2, lambda p, _: _root(p[0], p[1])),
    "msqrt": (1, lambda p, _: _root(_joined(p))),
    "mfenced": (0, _fenced),
    "mmultiscripts": (1, _multiscripts),
    "mtable": (1, lambda p, _: "; ".join(p)),
    **dict.fromkeys(("mtr", "mlabeledtr"), (1, lambda p, _: " ".join(p))),
    **dict.fromkeys(("semantics", "maction"), (1, lambda p, _: p[0])),
    **dict.fromkeys(("annotation", "annotation-xml", "mphantom"), (0, lambda *_: "")),
}
"""For each element the least number of its parts, and what they make."""


def _mathml(tag: Tag) -> str:
    least, build = _MATHML.get(tag.name, (0, None))
    inside = tag.find_all(True, recursive=False)
    if not build and (not inside or tag.name in ("mi", "mn", "mo", "ms", "mtext")):
        return " ".join(tag.get_text().translate(_INVISIBLE).split())
    parts = list(map(_mathml, inside))
    return build(parts, tag) if build and len(parts) >= least else _joined(parts)


_Parts = defaultdict[str, str]
_OMML: dict[str, Callable[[_Parts, dict[str, str], list[str]], str]] = {
    "f": lambda p, s, _: _fraction(p["num"], p["den"], s.get("type") != "noBar"),
    "sSup": lambda p, *_: _scripts(p["e"], "", p["sup"]),
    "sSub": lambda p, *_: _scripts(p["e"], p["sub"]),
    "sSubSup": lambda p, *_: _scripts(p["e"], p["sub"], p["sup"]),
    "sPre": lambda p, *_: _scripts("", p["sub"], p["sup"]).strip(_END) + p["e"],
    "rad": lambda p, *_: _root(p["e"], p["deg"]),
    "nary": lambda p, s, _: _scripts(s.get("chr", "∫"), p["sub"], p["sup"]) + p["e"],
    "acc": lambda p, s, _: _over(p["e"], s.get("chr", "\u0302")),
    "bar": lambda p, s, _: _over(p["e"], "\u0305" if s.get("pos") == "top" else "\u0332"),
    "func": lambda p, *_: _joined([p["fName"], p["e"]]),
    "limLow": lambda p, *_: _scripts(p["e"], p["lim"]),
    "limUpp": lambda p, *_: _scripts(p["e"], "", p["lim"]),
    "d": lambda _, s, all_: f"{s.get('begChr', '(')}{s.get('sepChr', '|').join(all_)}{s.get('endChr', ')')}",
    "mr": lambda *a: " ".join(a[2]),
    **dict.fromkeys(("m", "eqArr"), lambda *a: "; ".join(a[2])),
}


def _omml(element: Any) -> str:
    if (name := _name(element)) == "t":
        return element.text or ""
    parts, settings, inside = _Parts(str), dict[str, str](), list[str]()
    for child in element:
        if _name(child).endswith("Pr"):
            settings |= {_name(item): next(iter(item.attrib.values()), "") for item in child if len(item.attrib) == 1}
        else:
            inside.append(_omml(child))
            parts[_name(child)] += inside[-1]
    build = _OMML.get(name)
    return build(parts, settings, inside) if build else _joined(inside)


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
