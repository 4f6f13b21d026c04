"""Raised and lowered characters as Unicode's own signs where it has them, and numbers of lists, for all formats."""

from __future__ import annotations

import re
import unicodedata

_RAISED = dict(zip("0123456789+-−=()", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾", strict=True))
_LOWERED = dict(zip("0123456789+-−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎", strict=True))
_LETTERS = dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True))
_WORDS = {"TM": "™", "SM": "℠"}
_KEPT = "*†‡§¶®©™℠ªº"
_SEPARATORS = ",;–-"
_ROMAN = tuple(
    zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), "m cm d cd c xc l xl x ix v iv i".split(), strict=True)
)


def raised(text: str) -> str:
    """Return raised text: digits, signs and single letters as Unicode has them, several marks with their commas.

    Where there is no such sign, and for words, as "st" in "1st", the text stands as it is.
    """
    bare = unicodedata.normalize("NFKC", text.strip()) if text.strip() not in _KEPT else text.strip()
    return _WORDS.get(bare) or _signs(text, bare, _RAISED if re.search("[a-z]{2}", bare) else _RAISED | _LETTERS)


def lowered(text: str) -> str:
    """Return lowered text: digits and signs as Unicode has them; other text stands as it is."""
    return _signs(text, text.strip(), _LOWERED)


def _signs(text: str, bare: str, signs: dict[str, str]) -> str:
    known = all(letter in signs or letter in _SEPARATORS or letter.isspace() for letter in bare)
    if not known or not any(letter in signs for letter in bare):
        return text
    return "".join(signs.get(letter, letter) for letter in bare)


def numeral(number: int, style: str) -> str:
    """Return a list's number in letters or Roman digits where its style, as HTML or Word names it, says so."""
    text = str(number)
    if "Letter" in style and 0 < number <= 780:  # Word's: …, z, aa, bb
        text = chr(ord("a") + (number - 1) % 26) * ((number + 25) // 26)
    elif re.search("alpha|latin", style) and 0 < number <= 702:  # of pages: …, z, aa, ab
        before, last = divmod(number - 1, 26)
        text = (chr(ord("a") + before - 1) if before else "") + chr(ord("a") + last)
    elif "roman" in style.lower() and 0 < number < 4000:
        text = ""
        for value, sign in _ROMAN:
            text += sign * (number // value)
            number %= value
    return text.upper() if "upper" in style else text
