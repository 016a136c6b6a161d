"""`gpuwright scaler` between a real API server, a real Prometheus and a real Postgres."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.plans.scale_rows import ScaleState
from tests.clusters.history import prometheus_with
from tests.kubernetes.scaled import ScalingServer, adopted_deployment
from tests.kubernetes.scalers import ScaledPlace, scaled_place
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that has seen nothing."""
    now = time.time()
    with prometheus_with([], tmp_path_factory.mktemp("prometheus"), now - 60, now) as url:
        yield url


@pytest.fixture
def place(scaling_server: ScalingServer, database_url: str, prometheus: str, tmp_path: Path) -> Iterator[ScaledPlace]:
    with scaled_place(scaling_server, database_url, prometheus, tmp_path) as found:
        yield found


def test_advice_is_recorded_and_shown_and_nothing_is_written(place: ScaledPlace) -> None:
    began = place.server.server.audit.mark()
    ranker = adopted_deployment("ranker", 2, mode="advisory", min_replicas="3")
    place.put(ranker)
    scaler = place.start()
    until(lambda: "ranker" in place.rows(), lambda: f"a plan: {scaler.lines()}")
    row = place.rows()["ranker"]
    assert (row.replicas, row.wanted, row.state) == (2, 3, ScaleState.ADVISED), row.hold
    assert row.why, row
    until(lambda: scaler.gauge() == {"ranker": 3.0}, "the gauge shows it")
    assert scaler.end() == 0
    assert place.server.server.audit.writes(place.server.user.name, began) == []
    assert place.replicas("ranker") == 2
