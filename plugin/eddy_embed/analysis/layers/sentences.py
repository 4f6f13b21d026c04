"""Sentences of files and folders."""

from __future__ import annotations

from pathlib import Path

from eddy_embed.analysis.text_files import read_text_files
from eddy_embed.text.sentences import Segmenter


def read_sentences(path: Path, *, lines: bool = False, language: str = "en") -> list[str]:
    """Sentences of a file, of all files of a folder and those below it, or of standard input.

    Args:
        path: A .txt or .md file in UTF-8, a folder with such files, or - for standard input. A folder's other files
            are left alone.
        lines: Every line that is not blank is a sentence. False: they are found as in documents.
        language: Language code for sentences.

    Raises:
        InvalidParameter: Nothing that can be read is there.
        InvalidText: A file is not UTF-8.
        OSError: The file cannot be opened.
    """
    segmenter = Segmenter(language)
    found: list[str] = []
    for _, text in read_text_files(path):
        if lines:
            found += [line.strip() for line in text.split("\n") if line.strip()]
        else:
            found += [sentence.text for sentence in segmenter.sentences(text)]
    return found
