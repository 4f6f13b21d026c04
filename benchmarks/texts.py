"""Texts of any length for measurements of time and memory, where what they say does not matter."""

from __future__ import annotations

import random

_NOUNS = "ferry keeper lamp harbour bridge letter miller storm island clock oven chapel river stone pendulum".split()
_VERBS = "left carried turned found asked lit crossed forgot mended watched followed counted".split()
_ENDS = "before noon,in the fog,without a word,near the old pier,for the third time,as everyone knew".split(",")
_ADJECTIVES = "old white slow narrow heavy quiet broken bright distant".split()


def story(words: int, seed: int = 0) -> str:
    """English sentences in paragraphs and chapters, of about so many words."""
    draw = random.Random(seed)
    parts: list[str] = []
    written = chapter = 0
    while written < words:
        if written >= chapter * 2500:
            chapter += 1
            parts.append(f"Chapter {chapter}")
        sentences = []
        for _ in range(draw.randint(3, 8)):
            clauses = [
                f"the {draw.choice(_ADJECTIVES)} {draw.choice(_NOUNS)} {draw.choice(_VERBS)} "
                f"the {draw.choice(_NOUNS)} {draw.choice(_ENDS)}"
                for _ in range(draw.randint(1, 3))
            ]
            sentences.append(f"{', and '.join(clauses).capitalize()}.")
        parts.append(" ".join(sentences))
        written += len(parts[-1].split())
    return "\n\n".join(parts)
