"""Asks one source of metrics for an estate. What it does not answer is a sentence; once it is gone, nobody asks it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from threading import Lock

from clusters.estate import UnknownFigure
from clusters.measured import MeasuredSeries
from clusters.metrics.prometheus import MetricSample, MetricsSource, PrometheusFailed

SUBJECT = "Prometheus"
MOST_VALUE = 1e12  # of a rate, a count or a latency
LATER = "ask for a shorter time with --from, or later"


class MetricsReader:
    """Reads moments and steps of one range, for several threads at once."""

    def __init__(self, source: MetricsSource, ends: Sequence[float], now: float, seconds: float) -> None:
        self._source, self.ends, self._now = source, ends, now
        self.span, self._seconds = f"{seconds:.0f}s", seconds
        self._lock = Lock()
        self._failures: dict[UnknownFigure, None] = {}
        self._labels: dict[tuple[str, str], set[str] | None] = {}
        self.end: PrometheusFailed | None = None  # why the source is gone

    @property
    def failures(self) -> tuple[UnknownFigure, ...]:
        """Returns a sentence for each query without an answer; in the order of names, as threads come in any order."""
        return tuple(sorted(self._failures))

    def read_samples(self, query: str) -> list[MetricSample]:
        """Returns each series now; PrometheusFailed if there is no answer."""
        self._check()
        try:
            return self._source.at(query, self._now)
        except PrometheusFailed as failed:
            raise self._note(failed) from None

    def find_samples(self, query: str) -> list[MetricSample] | None:
        """Returns each series now; if there is no answer, a sentence is added and None comes back."""
        try:
            return self.read_samples(query)
        except PrometheusFailed as failed:
            self.tell(f"query of {name_query(query)}", failed)
            return None

    def read_steps(self, query: str) -> MeasuredSeries:
        """Returns the values of all steps, nothing where there are none; PrometheusFailed if there is no answer."""
        by_moment = self.read_by_label(query, "").get("", {})
        return tuple(by_moment.get(round(end)) for end in self.ends) if by_moment else ()

    def read_by_label(self, query: str, label: str) -> dict[str, dict[int, float]]:
        """Returns values by moment; PrometheusFailed too for one that no rate, count or latency has."""
        self._check()
        try:
            found = self._source.over(query, self.ends, label)
        except PrometheusFailed as failed:
            raise self._note(failed) from None
        numbers = [value for values in found.values() for value in values.values()]
        lowest, highest = min(numbers, default=0.0), max(numbers, default=0.0)
        if lowest < 0:
            raise PrometheusFailed(f"it says {lowest:g} of {name_query(query)}, which cannot be below 0")
        if highest > MOST_VALUE:
            raise PrometheusFailed(f"it says {highest:g} of {name_query(query)}, which is above {MOST_VALUE:g}")
        return {name: {round(moment): value for moment, value in values.items()} for name, values in found.items()}

    def read_label(self, label: str, selector: str, now: Collection[str]) -> Collection[str]:
        """Returns what a label says in the series of the whole time; PrometheusFailed if there is no answer.

        `now` is what it says at this moment. Where no series of that name says anything else, that is all of it.
        """
        if self._find_label(label, selector.partition("{")[0]) == set(now):
            return now
        found = self._find_label(label, selector)
        if found is not None and found.issuperset(now):  # a proxy may answer with none
            return found
        query = f"count by ({label}) (last_over_time({selector}[{self.span}]))"
        return [each.labels[label] for each in self.read_samples(query) if label in each.labels]

    def _find_label(self, label: str, selector: str) -> set[str] | None:
        """Returns what the index has, which is asked once.

        None where a proxy does not pass that question on, as prom-label-proxy by default.
        """
        self._check()
        if (label, selector) not in self._labels:
            try:
                found = set(self._source.label_values(label, selector, self._now - self._seconds, self._now))
                self._labels[label, selector] = found
            except PrometheusFailed as failed:
                if failed.is_last:
                    raise self._note(failed) from None
                self._labels[label, selector] = None
        return self._labels[label, selector]

    def tell(self, subject: str, failed: PrometheusFailed) -> None:
        """Adds a sentence on what is missing; of all that a source misses once it is gone, there is one."""
        figure = UnknownFigure(subject, str(failed), failed.remedy or LATER)
        if failed.is_last:
            reason = f"{failed}; what had not been read by then is missing"
            figure = UnknownFigure(SUBJECT, reason, "run it again when it can be reached")
        with self._lock:
            self._failures[figure] = None

    def _check(self) -> None:
        if self.end:
            raise self.end

    def _note(self, failed: PrometheusFailed) -> PrometheusFailed:
        with self._lock:
            if failed.is_last and self.end is None:
                self.end = failed
        return self.end or failed


def name_query(query: str) -> str:
    """Returns the first metric that a query names."""
    return next(iter(re.findall(r"[a-zA-Z_:]+(?=[{\[])", query)), query[:40])
