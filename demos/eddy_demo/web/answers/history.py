"""The questions asked last, kept in the library's folder."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path

from eddy_demo.library.settings import QUESTIONS_FILE
from eddy_embed.utils.atomic_files import atomic_write

_KEPT = 3
"""Number of questions that are kept."""


class QuestionHistory:
    """The last questions to a library, from any thread; a folder that cannot be written to keeps none."""

    def __init__(self, library: Path) -> None:
        self._file = library / QUESTIONS_FILE
        self._lock = threading.Lock()

    def recent(self) -> list[str]:
        """Return the questions, the last one first."""
        with suppress(OSError, ValueError, RecursionError):
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            return [each for each in stored if isinstance(each, str)][:_KEPT] if isinstance(stored, list) else []
        return []

    def add(self, question: str) -> None:
        """Put a question first."""
        with self._lock:
            known = self.recent()
            if known[:1] != [question]:
                self._write([question, *(each for each in known if each != question)][:_KEPT])

    def clear(self) -> None:
        """Forget all questions."""
        with self._lock, suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write(self, questions: list[str]) -> None:
        with suppress(OSError), atomic_write(self._file) as file:
            file.write(json.dumps(questions, ensure_ascii=False).encode())
