"""Raised and lowered characters, by one rule for all formats: as Unicode's own signs where it has them."""

from __future__ import annotations

import re
import unicodedata

_RAISED = dict(zip("0123456789+-−=()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾", strict=True))
_LOWERED = dict(zip("0123456789+-−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎", strict=True))
_LETTERS = dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True))
_WORDS = {"TM": "™", "SM": "℠"}
_KEPT = "*†‡§¶®©™℠ªº"
_SEPARATORS = ",;–-"


def raised(text: str) -> str:
    """Return raised text: digits, signs and single letters as Unicode has them, several marks with their commas.

    Where there is no such sign, and for words, as "st" in "1st", the text stands as it is.
    """
    bare = unicodedata.normalize("NFKC", text.strip()) if text.strip() not in _KEPT else text.strip()
    if bare in _WORDS:
        return _WORDS[bare]
    return _signs(text, bare, _RAISED if re.search("[a-z]{2}", bare) else _RAISED | _LETTERS)


def lowered(text: str) -> str:
    """Return lowered text: digits and signs as Unicode has them; other text stands as it is."""
    return _signs(text, text.strip(), _LOWERED)


def _signs(text: str, bare: str, signs: dict[str, str]) -> str:
    known = all(letter in signs or letter in _SEPARATORS or letter.isspace() for letter in bare)
    if not known or not any(letter in signs for letter in bare):
        return text
    return "".join(signs.get(letter, letter) for letter in bare)
