"""Quantiles from few buckets are those from all of them, whatever latencies and bounds were before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from clusters.metrics.asking import MetricsReader
from clusters.metrics.latency_steps import read_quantile
from clusters.metrics.measuring import STEP_SECONDS, WINDOW
from clusters.metrics.prometheus import PrometheusServer
from clusters.metrics.server_metrics import SERVERS, MetricsOfWorkload
from tests.clusters.history import SCRAPE_SECONDS, PastSeries, prometheus_with
from tests.clusters.measured_estate import HOUR, no_pause

pytestmark = pytest.mark.slow

HOURS = 4
NAME = "vllm:time_to_first_token_seconds"
BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
CASES: dict[str, tuple[Callable[[float], float], Sequence[float], float]] = {  # mean latency, bounds, percentile
    "steady": (lambda _: 0.1, BOUNDS, 99.0),
    "was-slower": (lambda hour: 4.0 if hour < 2 else 0.05, BOUNDS, 99.0),
    "was-faster": (lambda hour: 0.003 if hour < 2 else 2.0, BOUNDS, 50.0),
    "above-all": (lambda hour: 90.0 if 1 < hour < 2 else 0.2, BOUNDS, 90.0),
    "own-bounds": (lambda hour: 0.1 + hour, BOUNDS[::2], 99.0),
    "idle": (lambda hour: 0.1 if hour < 3 else math.nan, BOUNDS, 99.0),
}


class RememberingServer(PrometheusServer):
    """A real Prometheus that remembers which steps it was asked for."""

    asked: ClassVar[list[str]] = []

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        self.asked.append(query)
        return PrometheusServer.over(self, query, ends, label)


def _histogram(case: str, start: float) -> Iterator[PastSeries]:
    """Counts 137 requests a minute, whose latencies are exponential. After two hours another pod does, from 0."""
    mean, bounds, _ = CASES[case]
    for bound in (*bounds, math.inf):
        for pod, hours in enumerate(((0, 2), (2, HOURS))):
            total, counted = 0.0, {}
            for minute in range(hours[0] * 60, hours[1] * 60 + 1):
                usual = mean(minute / 60)
                total += 0.0 if math.isnan(usual) else round(137 * (1 - math.exp(-bound / usual)))
                counted[start + minute * SCRAPE_SECONDS] = total
            labels = {"namespace": "chat", "pod": f"{case}-{pod}", "le": "+Inf" if bound == math.inf else f"{bound:g}"}
            yield PastSeries(f"{NAME}_bucket", labels, counted.get)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RememberingServer, float]]:
    stop = time.time() // STEP_SECONDS * STEP_SECONDS
    start = stop - HOURS * HOUR
    folder: Path = tmp_path_factory.mktemp("prometheus")
    past = [series for case in CASES for series in _histogram(case, start)]
    with prometheus_with(past, folder, start, stop) as url:
        yield RememberingServer(url, "", no_pause), stop


@pytest.mark.parametrize("case", CASES)
def test_a_quantile_of_few_buckets_is_that_of_all(server: tuple[RememberingServer, float], case: str) -> None:
    source, stop = server
    _, bounds, percentile = CASES[case]
    ends = [stop - STEP_SECONDS * back for back in reversed(range((HOURS - 1) * 4))]
    reader = MetricsReader(source, ends, stop, (HOURS - 1) * HOUR)
    series = MetricsOfWorkload(SERVERS[0], f'{{namespace="chat",pod=~"{case}-[0-9]+"}}', "pod")
    source.asked.clear()
    found = read_quantile(reader, series, percentile, (NAME,), WINDOW)
    asked = list(source.asked)
    whole = reader.read_steps(series.quantile(percentile, NAME, WINDOW))
    ends_of_buckets = [*bounds, math.inf]
    assert found == tuple(
        None if value is None
        else 1000 * (math.inf if value == bounds[-1] else min(bound for bound in ends_of_buckets if bound >= value))
        for value in whole
    )  # fmt: skip
    assert 'le=~"' in asked[0]  # few buckets are tried first,
    assert len(asked) == (2 if case in ("was-slower", "was-faster", "above-all") else 1)  # and all where those miss it
