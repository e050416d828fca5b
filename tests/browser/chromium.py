"""Start the headless Chromium that the tests and the pictures share."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--font-render-hinting=none", "--force-color-profile=srgb",
]  # fmt: skip


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """Start Chromium, and close it at the end of the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield chromium
        chromium.close()
