"""Make the calibrations that come with Eddy: `python benchmarks/calibrations.py`, with paths for further models."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from eddy_embed import Embedder
from eddy_embed.encoding.calibration import SHIPPED, shipped_name, unrelated_name
from eddy_embed.integrations.shared import unrelated_cosines
from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.text.calibration import calibration_text


def write(folder: Path, models: Iterable[str], method: str = "recommended") -> None:
    """Put into a folder, in place of what is there, the calibrations of models by a method, fitted in float32."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    passages, questions, name = calibration_text()
    for model in models:
        embedder = Embedder(model, method, dtype="float32", check=False)
        fitted = embedder.fit(passages, questions)
        replace(fitted, general=name).save(folder / shipped_name(fitted.post, fitted.made_by or {}))
        (folder / unrelated_name(embedder.settings)).write_text(json.dumps(unrelated_cosines(embedder)))


if __name__ == "__main__":
    write(SHIPPED, [*CATALOG, *sys.argv[1:]])
