"""The last half hour of a service: samples of its load, and the bucket that is being filled."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from app.control.domain.latencies import add
from app.control.observe.loads.bursts import BurstBelief
from app.control.observe.loads.differences import CounterIncrease, add_tokens
from app.control.observe.loads.lengths import LengthBelief
from app.control.observe.loads.outlook import Outlook
from app.control.observe.loads.recent import AnswerCounts
from app.store.fleet.loads import LoadBucket
from solvers.forecast import Margin, MarginRules, Sample

BUCKET_SECONDS = 10.0
LEAST_SAMPLE_SECONDS = 4.0  # from which the unfinished bucket counts as a sample
MOST_SAMPLES = 180  # half an hour
MOST_ANSWERED = 60
GATEWAY, NODE = "gateway", "node"
ANSWER_SECONDS = {GATEWAY: 5.0, NODE: 12.0}  # gateways report every second, nodes every ten


class LoadWindow:
    """The recent load of a service. Rates hold from report to report; counts are added as they come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rates: dict[str, dict[str, float]] = {GATEWAY: {}, NODE: {}}  # by sender
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.answers: deque[AnswerCounts] = deque()
        self.is_partly_counted = False  # there is a gateway that cannot count
        self.observed_seconds = 0.0
        self.reported_at = 0.0
        self.slo_ms = 0.0
        self.percentile = 0.0
        self.bursts = BurstBelief()
        self.lengths = LengthBelief()
        self.outlook = Outlook()
        self.margin, self.margin_rules = Margin(), MarginRules()
        self.shed_at = 0.0  # when a report last counted rejected requests
        self._answered: deque[tuple[float, float, float]] = deque(maxlen=MOST_ANSWERED)  # time, requests, in time
        self._seconds = 0.0
        self._requests = 0.0
        self._counted = CounterIncrease()

    @property
    def source(self) -> str:
        """The kind of sender that counts: gateways also see requests that reach no instance, and each only once.

        Beside a gateway that cannot count, the others' counts are a part: copies' own are the whole if they are more.
        """
        by_gateways, by_nodes = (sum(self.rates[kind].values()) for kind in (GATEWAY, NODE))
        is_whole = not self.is_partly_counted or by_gateways >= by_nodes
        return GATEWAY if self.rates[GATEWAY] and is_whole else NODE

    @property
    def is_reported(self) -> bool:
        """True if any sender reports the service."""
        return bool(self.rates[GATEWAY] or self.rates[NODE])

    @property
    def rate(self) -> float:
        return sum(self.rates[self.source].values())

    def add(self, source: str, increase: CounterIncrease, now: float) -> None:
        """Adds the counts of a report."""
        if source != self.source:
            return
        if increase.windows:
            self.bursts.add(increase.windows, now)
        if increase.lengths:
            self.lengths.add(increase.lengths)
        self._counted.errors += increase.errors
        self._counted.timed += increase.timed
        self._counted.late += increase.late
        self._counted.tokens = add_tokens(self._counted.tokens, increase.tokens)
        add(self._counted.counts, increase.counts)
        total = float(sum(increase.counts))
        if increase.shed:
            self.shed_at = now
        failed = increase.errors - increase.shed  # rejected requests say nothing about the instances
        if total or failed:
            inside = total - increase.surely_slow(self.slo_ms)
            self.answers.append(AnswerCounts(now, total, failed, inside, increase.counts))

    def passed(self, last: float, now: float) -> LoadBucket | None:
        """Counts the rate as constant from `last` until now, and returns a bucket that is full by then."""
        while self.answers and self.answers[0].at <= now - ANSWER_SECONDS[self.source]:
            self.answers.popleft()
        if not self.is_reported:
            return self._close(last) if self._seconds else None
        self.reported_at = now
        full = None
        if self._seconds and int(last // BUCKET_SECONDS) != int(now // BUCKET_SECONDS) and self._is_long(last, now):
            full = self._close(last)
        self._seconds += now - last
        self._requests += self.rate * (now - last)
        self.observed_seconds += now - last
        return full

    def known(self, now: float) -> Sequence[Sample]:
        """Returns the samples, including the unfinished bucket once it is long enough."""
        if self._seconds >= LEAST_SAMPLE_SECONDS:
            return (*self.samples, Sample(now, self._seconds, self._requests))
        return tuple(self.samples)

    def is_late(self, since: float) -> bool:
        """Returns whether the SLO was missed since then, over the whole time."""
        recent = [(requests, in_time) for at, requests, in_time in self._answered if at > since]
        requests, in_time = sum(entry[0] for entry in recent), sum(entry[1] for entry in recent)
        return self.percentile > 0 and requests > 0 and in_time < requests * self.percentile / 100

    def _is_long(self, last: float, now: float) -> bool:
        """Returns whether the bucket is nearly full without the time up to now."""
        return self._seconds + (now - last) / 2 >= BUCKET_SECONDS - 1e-6 or self._seconds >= BUCKET_SECONDS / 2

    def _close(self, at: float) -> LoadBucket:
        sample = Sample(at, self._seconds, self._requests)
        self.samples.append(sample)
        counts = self._counted.counts
        answers = float(sum(counts))
        tenant, _, service = self.name.partition("/")
        slow = self._counted.slow(self.slo_ms)
        self._answered.append((at, answers + self._counted.errors, answers - slow))
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
            tokens_in=self._counted.tokens.tokens_in,
            tokens_out=self._counted.tokens.tokens_out,
            paced=self._counted.tokens.paced,
            pace_late=self._counted.tokens.pace_late,
        )
        self._seconds = self._requests = 0.0
        self._counted = CounterIncrease()
        return bucket
