"""Whether an English question cannot stand alone and follows up the one before it."""

from __future__ import annotations

import re

from spacy.lang.en.stop_words import STOP_WORDS

from eddy_demo.web.answers.answering import checked_question

_CONTRACTIONS = (("won't", "will"), ("can't", "can"), ("n't", ""), (r"'(?:s|re|ll|d|ve|m)", " is"))
"""Patterns of contracted words, and what is read in their place; which auxiliary it is does not matter."""
_WORD = re.compile(r"\w+")
_CLAUSE_END = re.compile(r"[,;:.?!](?:\s|$)")
_OPENING = re.compile(r"(?:and|but|or|so|then|also|because|(?:what|how) about|(?:what|who|how) else|which ones?)\b")
"""What only a question that goes on begins with."""
_EXPLETIVE = re.compile(
    r"\b(?:is|was|be) it \w+(?: \w+)? (?:to|that)\b|\bit (?:is \w+|takes?|costs?|helps?) (?:to|that)\b"
    r"|\b(?:is|are|was|were|be|been|do|does|did) there\b(?!\W*$)|\bthere (?:is|are|was|were|exists?|any)\b"
)
"""An "it" or "there" that refers to nothing: "is it possible to", "are there any"."""
_PRONOUNS = frozenset("he him his she her hers it its they them their theirs this that these those".split())
_AUXILIARIES = frozenset(
    "am is are was were do does did can could will would shall should may might must has have had".split()
)
_QUESTION_WORDS = frozenset("what which who whom whose where when why how".split())
_DEMONSTRATIVES = frozenset(("this", "these", "those"))
_DEICTIC = frozenset("document file text page story book paper library".split())
"""Nouns that "this" points to without an earlier question."""
_HAPPENS = frozenset(("happens", "happened"))
_IS = frozenset(("is", "are", "was", "were"))


def with_context(question: str, after: str, max_characters: int) -> str:
    """Return the question, with the one `after` which it was asked before it if it cannot stand alone."""
    if not (after.strip() and is_follow_up(question)):
        return question
    return checked_question(f"{after.strip()} {question}", max_characters, "the question with the one before it")


def is_follow_up(question: str) -> bool:
    """Whether a question needs the one before it.

    It does if it begins as a continuation ("and", "what about"), if all its words are stop words, or if its first
    clause ends with "then" or "there", or has a pronoun of the third person or a demonstrative without a possible
    antecedent. Possible antecedents are words before it that are no stop words, except in a phrase that is asked for
    ("which files does it read"). Later clauses may refer to the first.
    """
    text = question.strip().casefold().replace("’", "'")
    for contraction, read in _CONTRACTIONS:
        text = re.sub(rf"{contraction}\b", read, text)
    words = _WORD.findall(_EXPLETIVE.sub(" ", _CLAUSE_END.split(text)[0]))
    if not words:
        return False
    if _OPENING.match(text) or words[-1] in ("then", "there") or STOP_WORDS.issuperset(_WORD.findall(text)):
        return True
    return _asks_about_pronoun(words) or any(_lacks_antecedent(words, at) for at in range(len(words)))


def _asks_about_pronoun(words: list[str]) -> bool:
    """Whether a clause begins as "which files does it": an auxiliary, the first one, stands before a pronoun.

    Not "who wrote the manual and when did he", where it belongs to another question.
    """
    first = next((at for at, word in enumerate(words[:-1]) if word in _AUXILIARIES), -1)
    if first < 0 or _QUESTION_WORDS.intersection(words[1:first]):
        return False
    return words[0] in _QUESTION_WORDS and words[first + 1] in _PRONOUNS - _DEMONSTRATIVES


def _lacks_antecedent(words: list[str], at: int) -> bool:
    before = [word for word in words[:at] if word not in STOP_WORDS | _HAPPENS]
    if words[0] == "who" and words[1:2] and words[1] not in _IS:
        before = before[1:]  # the verb, as in "who can reach it"
    if words[at] in _DEMONSTRATIVES and at + 1 < len(words) and words[at + 1] not in STOP_WORDS:
        return words[at + 1] not in _DEICTIC and words[at + 1] not in before
    return words[at] in _PRONOUNS and not before
