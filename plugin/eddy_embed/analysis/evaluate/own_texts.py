"""A retrieval task of a user's own texts and questions."""

from __future__ import annotations

import json
from pathlib import Path

from eddy_embed.analysis.evaluate.tasks import Retrieval
from eddy_embed.analysis.text_files import decoded, read_text_files
from eddy_embed.errors import InvalidParameter

LEAST = 2
"""Least number of questions; intervals need more than one."""


def read_own_texts(folder: Path, questions: Path) -> Retrieval:
    """Files as documents, named by their path below the folder, and the questions that they answer.

    Args:
        folder: With .txt and .md files; a folder's other files are left alone.
        questions: JSON lines, each {"question": text, "documents": [names of the files that answer it]}.

    Raises:
        InvalidParameter: There are no texts, too few questions, or a line is of another form or names no such file.
        InvalidText: A file is not UTF-8.
    """
    texts = dict(read_text_files(folder))
    found = {name: text for name, text in texts.items() if text.strip()}
    queries, grades = [], []
    for number, line in enumerate(decoded(str(questions), questions.read_bytes()).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            query, names = row["question"], row["documents"]
            if not (isinstance(names, list) and all(isinstance(each, str) for each in (query, *names))):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidParameter(
                f'{questions}, line {number}: {line!r:.80} must be {{"question": text, "documents": [names]}}'
            ) from None
        unknown = [name for name in names if name not in found]
        if unknown or not names or not query.strip():
            about = (
                f"{unknown[0]!r:.80} is no text in {folder}" if unknown else "the question or its documents are empty"
            )
            raise InvalidParameter(f"{questions}, line {number}: {about}; name files as {next(iter(texts))!r:.80}")
        queries.append(query)
        grades.append(dict.fromkeys(names, 1.0))
    if len(queries) < LEAST:
        raise InvalidParameter(f"{questions} has {len(queries)} questions, and methods are compared on {LEAST} or more")
    return Retrieval(folder.name, list(found), list(found.values()), queries, grades, blank=len(texts) - len(found))
