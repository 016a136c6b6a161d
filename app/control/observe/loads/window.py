"""One service's last half hour: samples of what it was asked, and the seconds that are being counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from app.control.observe.loads.differences import CounterIncrease
from app.control.observe.loads.latencies import add
from app.control.observe.loads.recent import AnswerCounts
from app.store.fleet.loads import LoadBucket
from solvers.forecast import Sample

BUCKET_SECONDS = 10.0
LEAST_SAMPLE_SECONDS = 4.0  # what is being counted says something from here on
MOST_SAMPLES = 180  # half an hour
MOST_KEPT = 60
ANSWER_SECONDS = {"gateway": 5.0, "node": 12.0}  # gateways speak every second, nodes every ten
GATEWAY, NODE = "gateway", "node"


class LoadWindow:
    """What is known of one service. Rates are held from word to word; counts are added as they come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rates: dict[str, dict[str, float]] = {GATEWAY: {}, NODE: {}}  # by speaker
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.answers: deque[AnswerCounts] = deque()
        self.observed_seconds = 0.0
        self.heard_at = 0.0
        self.slo_ms = 0.0
        self.percentile = 0.0
        self.shed_at = 0.0  # when it was last heard that its requests were turned away
        self._kept: deque[tuple[float, float, float]] = deque(maxlen=MOST_KEPT)  # when, asked, answered in time
        self._seconds = 0.0
        self._requests = 0.0
        self._counted = CounterIncrease()

    @property
    def source(self) -> str:
        """Who is believed: a gateway sees requests that no instance does, and each of them once."""
        return GATEWAY if self.rates[GATEWAY] else NODE

    @property
    def is_spoken(self) -> bool:
        """Whether anybody speaks of it."""
        return bool(self.rates[GATEWAY] or self.rates[NODE])

    @property
    def rate(self) -> float:
        return sum(self.rates[self.source].values())

    def add(self, source: str, came: CounterIncrease, now: float) -> None:
        """Answers that were heard of now."""
        if source != self.source:
            return
        self._counted.errors += came.errors
        self._counted.timed += came.timed
        self._counted.late += came.late
        add(self._counted.counts, came.counts)
        total = float(sum(came.counts))
        if came.shed:
            self.shed_at = now
        failed = came.errors - came.shed  # who was turned away says nothing of those who answer
        if total or failed:
            inside = total - came.surely_slow(self.slo_ms)
            self.answers.append(AnswerCounts(now, total, failed, inside, came.counts))

    def passed(self, last: float, now: float) -> LoadBucket | None:
        """The rate held from `last` until now; a bucket that is full by then."""
        while self.answers and self.answers[0].at <= now - ANSWER_SECONDS[self.source]:
            self.answers.popleft()
        if not self.is_spoken:
            return self._closed(last) if self._seconds else None
        self.heard_at = now
        full = None
        if self._seconds and int(last // BUCKET_SECONDS) != int(now // BUCKET_SECONDS) and self._is_long(last, now):
            full = self._closed(last)
        self._seconds += now - last
        self._requests += self.rate * (now - last)
        self.observed_seconds += now - last
        return full

    def known(self, now: float) -> Sequence[Sample]:
        """Samples, with the seconds that are being counted once they are enough."""
        if self._seconds >= LEAST_SAMPLE_SECONDS:
            return (*self.samples, Sample(now, self._seconds, self._requests))
        return tuple(self.samples)

    def is_late(self, since: float) -> bool:
        """Whether its promise was missed in that time, as a whole."""
        late = [(asked, kept) for at, asked, kept in self._kept if at > since]
        asked, kept = sum(one for one, _ in late), sum(one for _, one in late)
        return self.percentile > 0 and asked > 0 and kept < asked * self.percentile / 100

    def _is_long(self, last: float, now: float) -> bool:
        """Whether the bucket is nearly full without the time up to now."""
        return self._seconds + (now - last) / 2 >= BUCKET_SECONDS - 1e-6 or self._seconds >= BUCKET_SECONDS / 2

    def _closed(self, at: float) -> LoadBucket:
        sample = Sample(at, self._seconds, self._requests)
        self.samples.append(sample)
        counts = self._counted.counts
        answers = float(sum(counts))
        tenant, _, service = self.name.partition("/")
        slow = self._counted.slow(self.slo_ms)
        self._kept.append((at, answers + self._counted.errors, answers - slow))
        bucket = LoadBucket(
            tenant=tenant,
            service=service,
            at=datetime.fromtimestamp(at, UTC),
            seconds=sample.seconds,
            requests=sample.requests,
            errors=self._counted.errors,
            slow=slow,
            latency_counts=counts,
            answers=answers,
            source=self.source,
        )
        self._seconds = self._requests = 0.0
        self._counted = CounterIncrease()
        return bucket
