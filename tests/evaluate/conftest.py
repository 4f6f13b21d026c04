"""What calibrates methods in the tests of evaluation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eddy_embed.encoding import calibration
from eddy_embed.text.general import general_text


@pytest.fixture(scope="module", autouse=True)
def few_general_texts() -> Iterator[None]:
    """Calibrate on every eighth of the general texts: scores here need no good calibration, only the same one."""
    few = general_text()
    few = few._replace(passages=few.passages[::8], questions=few.questions[::8], name="an eighth")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "general_text", lambda: few)
        yield
