"""Rules that turn an English sentence or heading into the question that it answers."""

from __future__ import annotations

import re

from spacy.lang.en.stop_words import STOP_WORDS

from eddy_demo.web.answers.follow_up import AUXILIARIES, QUESTION_WORDS, is_follow_up

_MAX_CHARACTERS = 80
_MIN_WORDS = 3
_MARKUP = re.compile(r"[*`]+|^#+ +|\[([^\]]*)\]\([^)]*\)")
_LEADING = re.compile(r"^(?:[-+•>]|\d+[.)]) +")
_WORDS = r"[\w’'-]+(?: [\w’'-]+)"
_SUBJECT = rf"(?P<subject>{_WORDS}{{0,4}}?)"
_CLAUSE = rf"{_SUBJECT} (?P<verb>is|are|was|were|can|must|should|will) (?P<said>{_WORDS}{{0,4}}?)"
_HEADING = re.compile(rf"(?P<asked>How|Why|When|Where) {_CLAUSE}")
"""A heading such as "How requests are batched"."""
_DEFINITION = re.compile(rf"{_SUBJECT} is an? \w.*\.")
_REASON = re.compile(
    rf"{_CLAUSE},? (?:only )?(?P<link>because|since|so that|if|when|unless|after|before|as soon as|until) \w.*\."
)
_WHY = ("because", "since", "so that")
_DETERMINERS = frozenset("a an the each every all most some many no two three both".split())
_PREPOSITIONS = frozenset(("of", "for", "with", "in"))
_IN_PREDICATE = (
    _DETERMINERS | _PREPOSITIONS | frozenset("not at by from into on onto to up down off out full empty whole".split())
)


def question_of(sentence: str, text: str) -> str:
    """Return the question that a sentence or a heading of a text answers, "" for none: what something is, when, why."""
    plain = without_markup(sentence)
    found = _HEADING.fullmatch(plain)
    if sentence.startswith("#"):
        question = plain if plain.endswith("?") else _inverted(found["asked"], found, text) if found else ""
    elif found := _REASON.fullmatch(plain):
        question = _inverted(_question_word(found), found, text)
    else:
        found = _DEFINITION.fullmatch(plain)
        question = _definition(found["subject"], text) if found else ""
    return question if _is_askable(question) else ""


def without_markup(sentence: str) -> str:
    """Return a sentence or a heading without marks of Markdown, on one line."""
    return _LEADING.sub("", " ".join(_MARKUP.sub(r"\1", sentence.strip()).split()))


def _is_askable(question: str) -> bool:
    words = question.lower().split()
    if len(words) < _MIN_WORDS or len(question) > _MAX_CHARACTERS:
        return False
    return words[0] in QUESTION_WORDS | AUXILIARIES and not is_follow_up(question)


def _question_word(found: re.Match[str]) -> str:
    if found["link"] in _WHY:
        return "Why"
    # Stories tell when something was, and nobody asks.
    past = found["verb"] in ("was", "were")
    return "" if past else "How long" if found["link"] == "until" else "When"


def _inverted(asked: str, found: re.Match[str], text: str) -> str:
    """Return a question about a clause, "" unless its subject and its predicate can stand alone."""
    subject, said = _subject(found["subject"], text), found["said"].lower().split()
    if not (asked and subject) or said[-1] in _DETERMINERS or (STOP_WORDS - _IN_PREDICATE).intersection(said):
        return ""
    return f"{asked} {found['verb']} {subject} {found['said']}?"


def _definition(noun: str, text: str) -> str:
    """Return the question what a term ("a batch") or a name is; "the last line" is neither."""
    subject = _subject(noun, text)
    is_name = subject != subject.lower()
    return f"What is {subject}?" if is_name or subject.startswith(("a ", "an ")) else ""


def _subject(noun: str, text: str) -> str:
    """Return a subject as it is within a sentence, "" if it may not mean anything alone."""
    words = noun.lower().split()
    allowed = _DETERMINERS | _PREPOSITIONS
    if words[0] in _PREPOSITIONS or words[-1] in STOP_WORDS or (STOP_WORDS - allowed).intersection(words):
        return ""
    # A name has a capital letter also where no sentence begins.
    first = noun.split()[0]
    is_name = first[1:] != words[0][1:] or re.search(rf"[a-z,] {re.escape(first)}\b", text)
    return noun if is_name and words[0] not in _DETERMINERS else noun[0].lower() + noun[1:]
