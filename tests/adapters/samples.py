"""Texts for tests of the adapters, and where the bundled model is."""

from __future__ import annotations

from pathlib import Path

import eddy_embed

TINY = Path(eddy_embed.__path__[0]) / "model" / "tiny"
TEXTS = [
    "The ferry to the island leaves at nine in the morning.",
    "Bread rises because yeast turns sugar into gas.\nBakers wait for it.",
    "Granite cools slowly, deep under the ground.",
]
STORY = (
    "The harbour lay still that morning. Only the ferry moved, slow and white, towards the island. "
    "Mr. Hale watched it from the pier; he had paid $3.50 for coffee. “Too much,” he said.\n\n"
    "At noon the wind came. It tore the flags, and the ferry turned back. Nobody in town was surprised. "
) * 3
REPEATS = "Yes. He said it twice: yes. Yes.\n\nYes. No. Yes. He said it twice: yes. " * 4
"""An offset found by searching would be the first one's."""
