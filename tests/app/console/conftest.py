"""A planned fleet behind a server, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.needs import need
from tests.support.patience import patience
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def planned(postgres: DatabaseServer) -> Iterator[Planned]:
    """Services shop/a, b, c, and lab/x of another tenant, which nothing serves whole."""
    with planned_fleet(postgres, seconds=30.0) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. As root it has no sandbox of its own; it sees nothing but our pages.

    No longer than a module: while it is open its event loop runs in this thread, and nobody else can run one.
    """
    need(CHROMIUM, "chromium")
    expect.set_options(timeout=1000 * patience())
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
