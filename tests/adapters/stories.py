"""Texts for passages: one with hard ends of sentences, one of sentences that come again and again."""

from __future__ import annotations

STORY = (
    "The harbour lay still that morning. Only the ferry moved, slow and white, towards the island. "
    "Mr. Hale watched it from the pier; he had paid $3.50 for coffee. “Too much,” he said.\n\n"
    "At noon the wind came. It tore the flags, and the ferry turned back. Nobody in town was surprised. "
) * 3
REPEATS = "Yes. He said it twice: yes. Yes.\n\nYes. No. Yes. He said it twice: yes. " * 4
"""An offset found by searching would be the first one's."""
