"""One Ray for all tests of this folder: to start it takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ray_serve.site import RaySite, running_site
from tests.support.patience import until


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RaySite]:
    with running_site(tmp_path_factory.mktemp("ray")) as site:
        yield site


@pytest.fixture
def site(running: RaySite) -> Iterator[RaySite]:
    """With one replica that is scaled by others, and no scaler."""
    running.deploy(1)
    until(lambda: running.find() is not None, running.find)
    running.scale_by_hand(1)  # deployed again with the same configuration, it keeps the number that it has
    running.await_running(1)
    running.adopt()
    yield running
    running.reset()
