"""Counts what the server has done, and formats it for Prometheus."""

from __future__ import annotations

from bisect import bisect_left

from agents.prometheus.writing import Family, format_families, make_buckets, single

# Equal to contract.LATENCY_EDGES_MS, which this small process does not load; a test compares them.
EDGES_MS = tuple(round(0.5 * 10 ** (step / 12), 4) for step in range(60))
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerCounters:
    """Totals. Each inference request that was answered counts once; one whose client left does not."""

    def __init__(self) -> None:
        self.requests = 0  # answered, successfully or not
        self.errors = 0  # answered with 5xx
        self.rejected = 0  # of the errors: the queue was full, or the server not ready
        self.abandoned = 0  # the client left before the answer
        self.batches = 0
        self.batched = 0  # requests in all batches
        self.busy_seconds = 0.0
        self._latency = [0] * (len(EDGES_MS) + 1)
        self._latency_sum = 0.0
        self._sizes = [0] * (len(SIZES) + 1)

    def answered(self, seconds: float) -> None:
        self.requests += 1
        self._latency[bisect_left(EDGES_MS, seconds * 1000)] += 1
        self._latency_sum += seconds

    def failed(self, rejected: bool = False) -> None:
        self.requests += 1
        self.errors += 1
        self.rejected += rejected

    def batch(self, size: int, seconds: float) -> None:
        self.batches += 1
        self.batched += size
        self.busy_seconds += seconds
        self._sizes[bisect_left(SIZES, size)] += 1

    def text(self, gauges: dict[str, float | None]) -> str:
        """Returns text for Prometheus; a gauge that is None is left out."""
        totals = ("requests", "errors", "rejected", "abandoned", "batches", "batched", "busy_seconds")
        edges = [f"{edge / 1000:.7g}" for edge in EDGES_MS]
        seconds = make_buckets(edges, self._latency, total=self._latency_sum)
        sizes = make_buckets(map(str, SIZES), self._sizes, total=self.batched)
        return format_families(
            (
                *(single(f"gpuwright_serve_{name}_total", "counter", getattr(self, name)) for name in totals),
                *(single(f"gpuwright_serve_{name}", "gauge", gauge) for name, gauge in gauges.items()),
                Family("gpuwright_serve_request_seconds", "histogram", "", seconds),
                Family("gpuwright_serve_batch_size", "histogram", "", sizes),
            )
        )
