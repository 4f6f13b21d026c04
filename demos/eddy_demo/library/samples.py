"""The file of sample questions in a library's folder: those of a version of a document, by its key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from eddy_demo.library.recipe import SAMPLES_FILE
from eddy_embed.utils.atomic_files import atomic_write

Samples = dict[str, list[str]]
"""Questions of documents, those made last at the end; the first word of a key is the document's id."""


def read_samples(folder: Path) -> Samples:
    """Read the questions; none if the file is missing or damaged, since they can be made again."""
    with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError):
        stored = json.loads((folder / SAMPLES_FILE).read_text(encoding="utf-8"))
        return {key: [str(question) for question in questions] for key, questions in stored.items()}
    return {}


def write_samples(folder: Path, samples: Samples) -> None:
    """Write the questions."""
    with atomic_write(folder / SAMPLES_FILE) as file:
        file.write(json.dumps(samples, ensure_ascii=False).encode())


def forget_samples(folder: Path, documents: Iterable[str]) -> None:
    """Forget the questions of documents."""
    forgotten, samples = set(documents), read_samples(folder)
    kept = {key: questions for key, questions in samples.items() if key.split(" ")[0] not in forgotten}
    if len(kept) < len(samples):
        write_samples(folder, kept)
