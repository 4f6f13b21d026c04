"""A real browser. `make test-browser` needs Debian's `chromium`, or another that CHROMIUM names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage"
).split()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser to open pages in; where none is installed the test fails, and says what to install."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.fail(
            "no Chromium found: install it (Debian and Ubuntu: sudo apt-get install chromium), or set CHROMIUM to the "
            "path of one; `make test` runs everything else",
            pytrace=False,
        )
    # As root there is no sandbox to be had.
    flags = [*FLAGS, *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()
