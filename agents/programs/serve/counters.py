"""Counts what the server has done, and formats it for Prometheus."""

from __future__ import annotations

from bisect import bisect_left

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
        lines: list[str] = []
        for name, value in (
            ("requests", self.requests),
            ("errors", self.errors),
            ("rejected", self.rejected),
            ("abandoned", self.abandoned),
            ("batches", self.batches),
            ("batched", self.batched),
            ("busy_seconds", round(self.busy_seconds, 6)),
        ):
            lines += [f"# TYPE gpuwright_serve_{name}_total counter", f"gpuwright_serve_{name}_total {value}"]
        for name, gauge in gauges.items():
            if gauge is not None:
                lines += [f"# TYPE gpuwright_serve_{name} gauge", f"gpuwright_serve_{name} {gauge:.15g}"]
        edges = [f"{edge / 1000:.7g}" for edge in EDGES_MS]
        lines += _histogram("request_seconds", edges, self._latency, self._latency_sum)
        lines += _histogram("batch_size", [str(size) for size in SIZES], self._sizes, self.batched)
        return "\n".join(lines) + "\n"


def _histogram(name: str, edges: list[str], counts: list[int], total: float) -> list[str]:
    lines = [f"# TYPE gpuwright_serve_{name} histogram"]
    below = 0
    for edge, count in zip([*edges, "+Inf"], counts, strict=True):
        below += count
        lines.append(f'gpuwright_serve_{name}_bucket{{le="{edge}"}} {below}')
    return [*lines, f"gpuwright_serve_{name}_sum {round(total, 6)}", f"gpuwright_serve_{name}_count {below}"]
