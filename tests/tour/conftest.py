"""One fleet for all tests of the tour; each leaves it as it was, so that any of them can be run alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.tour.running import TourFleet, running_fleet


@pytest.fixture(scope="package")
def fleet() -> Iterator[TourFleet]:
    with TemporaryDirectory(prefix="tour-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # as root, the embedded Postgres runs as another user
        with running_fleet(folder) as running:
            yield running
