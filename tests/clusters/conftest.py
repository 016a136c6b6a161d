"""One Prometheus for the tests of what it is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusters.estate import Estate
from clusters.metrics.measuring import STEP_SECONDS, PrometheusReading, measure
from clusters.metrics.prometheus import PrometheusServer
from clusters.objects import objects_of
from clusters.reading import read_estate
from tests.clusters.history import prometheus_with
from tests.clusters.measured_estate import HOUR, items, no_pause, past


@pytest.fixture(scope="package")
def estate() -> Estate:
    return read_estate(objects_of(items()))


@pytest.fixture(scope="package")
def measured(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusReading, str]]:
    now = time.time()
    start = (now - 4 * HOUR) // STEP_SECONDS * STEP_SECONDS
    stop = now + HOUR  # who asks later has new samples, too
    with prometheus_with(past(estate, start), tmp_path_factory.mktemp("prometheus"), start, stop) as url:
        yield measure(estate, PrometheusServer(url, "", no_pause), 3 * HOUR, time.time(), {}), url
