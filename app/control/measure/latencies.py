"""Latencies of services as Prometheus histograms. Each bucket names the plan in force at its last answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.samples import Exemplar

from agents.contract.fields import LATENCY_EDGES_MS
from app.store.fleet.loads import LoadBucket

STEPS = 2  # of the buckets that reports count in, for each one here: a thousand services are 32,000 series, not 62,000
_EDGES_S = [round(edge_ms / 1000, 7) for edge_ms in LATENCY_EDGES_MS]
_LABELS = [*(f"{edge:.7g}" for edge in _EDGES_S[STEPS - 1 :: STEPS]), "+Inf"]
_MIDDLES_S = [(low + high) / 2 for low, high in zip([0.0, *_EDGES_S], [*_EDGES_S, _EDGES_S[-1]], strict=True)]


@dataclass(slots=True)
class _ServiceLatencies:
    counts: list[int] = field(default_factory=lambda: [0] * len(_LABELS))
    seconds: float = 0.0
    exemplars: list[Exemplar | None] = field(default_factory=lambda: [None] * len(_LABELS))

    def add(self, counts: Sequence[int], at: float, generation: int) -> None:
        for step, count in enumerate(counts):
            if not count:
                continue
            self.counts[step // STEPS] += count
            self.seconds += count * _MIDDLES_S[step]
            labels = {"generation": str(generation)}
            self.exemplars[step // STEPS] = Exemplar(labels, _MIDDLES_S[step], at) if generation else None

    def buckets(self) -> Iterator[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Yields the cumulative counts."""
        below = 0.0
        for label, count, exemplar in zip(_LABELS, self.counts, self.exemplars, strict=True):
            below += count
            yield (label, below, exemplar) if exemplar else (label, below)


class LatencyHistograms:
    """All answers of each service since this planner began to lead."""

    def __init__(self) -> None:
        self._services: dict[str, _ServiceLatencies] = {}

    def add(self, buckets: Iterable[LoadBucket], generation: int) -> None:
        """Adds answers that came while the plan of this generation was in force."""
        for bucket in buckets:
            known = self._services.setdefault(f"{bucket.tenant}/{bucket.service}", _ServiceLatencies())
            known.add(bucket.latency_counts, bucket.at.timestamp(), generation)

    def keep_only(self, services: Collection[str]) -> None:
        """Drops services that are gone."""
        self._services = {name: known for name, known in self._services.items() if name in services}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yields the family; its sum takes each answer for one in the middle of the bucket that it was reported in."""
        family = HistogramMetricFamily(
            "gpuwright_service_latency_seconds",
            "Latency as the SLO counts it: of a language model to the first token. The sum is within a tenth.",
            labels=["tenant", "service"],
        )
        for name, known in list(self._services.items()):
            family.add_metric(name.split("/", 1), list(known.buckets()), known.seconds)
        yield family
