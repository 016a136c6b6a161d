"""What `clusters.deciding` would have decided for one workload at each step of the past, by what was known then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from clusters.deciding import START_SECONDS, ReplicaDecision, StandingReplicas, decide_replicas, recent_load
from clusters.measured import LatencyPromise, WorkloadSeries
from clusters.savings.floors import ReplicaBounds
from clusters.savings.needs import LEAST_HOURS
from clusters.savings.shown import ShownSoFar, find_kept_steps


@dataclass(frozen=True, slots=True)
class DecidedReplicas:
    """The replicas of one workload, step by step: as decided at its beginning, and as many as serve all through it.

    Before the first decision they are those that stood there.
    """

    decided: tuple[int, ...]
    serving: tuple[int, ...]  # what is added serves once it has started
    most_per_node: tuple[int, ...]
    held: tuple[int, ...]  # what goes is paid for as long as a replica takes to start
    decisions: tuple[ReplicaDecision, ...]  # from the first that was one


def first_decision(step_seconds: int) -> int:
    """Returns the step at whose beginning enough was measured to decide."""
    return ceil(LEAST_HOURS * 3600 / step_seconds)


def count_start_steps(step_seconds: int) -> int:
    """Returns the steps, all of them whole, until an added replica serves."""
    return ceil(START_SECONDS / step_seconds)


def replay_decisions(
    series: WorkloadSeries, promise: LatencyPromise, bounds: ReplicaBounds, now: int, step_seconds: int, first: int
) -> DecidedReplicas:
    """Returns what would have been decided from the step `first` on, and what stood there before.

    `now` is what stands where the series does not say what stood.
    """
    kept = find_kept_steps(series, promise)
    shown = ShownSoFar(series, kept, step_seconds)
    counts: list[int] = []
    together: list[int] = []
    decisions: list[ReplicaDecision] = []
    changed = most_ready = 0
    for step, ready in enumerate(series.ready_replicas):
        before = counts[-1] if counts else now
        if step < first:
            counts.append(before if ready is None else max(1, int(ready)))
            together.append(bounds.together)
        else:
            load = recent_load(series, step, step_seconds, shown.sound(), most_ready, kept[step - 1])
            load = replace(load, reporting=None)  # what was decided is not what stood there
            standing = StandingReplicas(before, before, (step - changed) * step_seconds)
            decisions.append(decide_replicas(load, bounds, standing))
            counts.append(decisions[-1].replicas)
            together.append(decisions[-1].most_per_node)
        if counts[-1] != before:
            changed = step
        shown.add(step)
        most_ready = max(most_ready, int(ready or 0))
    delay = count_start_steps(step_seconds)
    spans = [counts[max(0, step - delay) : step + 1] for step in range(len(counts))]
    return DecidedReplicas(
        tuple(counts), tuple(map(min, spans)), tuple(together), tuple(map(max, spans)), tuple(decisions)
    )
