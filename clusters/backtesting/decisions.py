"""What `clusters.deciding` would have decided for one workload at each step of the past, by what was known then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from clusters.decided_bounds import AnnotatedBounds, draw_annotated_bounds
from clusters.deciding import (
    START_SECONDS,
    ReplicaDecision,
    StandingReplicas,
    bound_by_sight,
    decide_replicas,
    recent_load,
)
from clusters.estate import ClusterWorkload, Estate
from clusters.measured import LatencyPromise, WorkloadSeries
from clusters.savings.floors import ReplicaBounds, ReplicaRules
from clusters.savings.needs import LEAST_HOURS, NOTHING_CAME, LoadNeed
from clusters.savings.shown import ShownSoFar, find_kept_steps, find_promise

NOT_ANNOTATED = AnnotatedBounds()


@dataclass(frozen=True, slots=True)
class DecidedReplicas:
    """The replicas of one workload, step by step: as decided at its beginning, and as many as serve all through it.

    Before the first decision they are those that stood there.
    """

    decided: tuple[int, ...]
    serving: tuple[int, ...]  # what is added serves once it has started
    most_per_node: tuple[int, ...]
    held: tuple[int, ...]  # what goes is paid for as long as a replica takes to start
    allowed: tuple[float, ...]  # the most that each decision may have come to
    decisions: tuple[ReplicaDecision, ...]  # from the first that was one


def first_decision(step_seconds: int) -> int:
    """Returns the step at whose beginning enough was measured to decide."""
    return ceil(LEAST_HOURS * 3600 / step_seconds)


def count_start_steps(step_seconds: int) -> int:
    """Returns the steps, all of them whole, until an added replica serves."""
    return ceil(START_SECONDS / step_seconds)


def replay_decisions(
    series: WorkloadSeries, promise: LatencyPromise, bounds: ReplicaBounds, now: int, step_seconds: int, first: int,
    annotated: AnnotatedBounds,
) -> DecidedReplicas:  # fmt: skip
    """Returns what would have been decided from the step `first` on, and what stood there before.

    `now` is what stands where the series does not say what stood.
    """
    kept = find_kept_steps(series, promise)
    shown = ShownSoFar(series, kept, step_seconds)
    counts: list[int] = []
    together: list[int] = []
    allowed: list[float] = []
    decisions: list[ReplicaDecision] = []
    changed = most_ready = 0
    for step, ready in enumerate(series.ready_replicas):
        before = counts[-1] if counts else now
        if step < first:
            counts.append(before if ready is None else max(1, int(ready)))
            together.append(bounds.together)
            allowed.append(inf)
        else:
            load = recent_load(series, step, step_seconds, shown.sound(), most_ready, kept[step - 1])
            load = replace(load, reporting=None)  # what was decided is not what stood there
            standing = StandingReplicas(before, before, (step - changed) * step_seconds)
            decisions.append(_bound(decide_replicas(load, bounds, standing), annotated))
            counts.append(decisions[-1].replicas)
            most = bound_by_sight(bounds, most_ready, before).most
            allowed.append(inf if most is None else annotated.apply(most))
            together.append(decisions[-1].most_per_node)
        if counts[-1] != before:
            changed = step
        shown.add(step)
        most_ready = max(most_ready, int(ready or 0))
    delay = count_start_steps(step_seconds)
    spans = [counts[max(0, step - delay) : step + 1] for step in range(len(counts))]
    return DecidedReplicas(
        tuple(counts), tuple(map(min, spans)), tuple(together), tuple(map(max, spans)), tuple(allowed), tuple(decisions)
    )


def _bound(decision: ReplicaDecision, annotated: AnnotatedBounds) -> ReplicaDecision:
    """Returns a decision within what annotations say, as a scaler writes it; what is not known stays as it is."""
    count = annotated.apply(decision.replicas)
    if decision.expected_per_second is None or count == decision.replicas:
        return decision
    return replace(decision, replicas=count, reason=f"{decision.reason}; {count} by the annotations' bounds")


def find_promise_then(series: WorkloadSeries, need: LoadNeed, first: int) -> LatencyPromise | None:
    """Returns what the workload kept before the first decision, which knows nothing later."""
    if need.promise.source == NOTHING_CAME:
        return need.promise
    return find_promise(replace(series, rates_per_second=series.rates_per_second[:first]))


def leave_unserved(need: LoadNeed, allowed: Sequence[float]) -> LoadNeed:
    """Returns the need without what the replicas that were allowed cannot serve: no plan is asked for more of them."""
    highest = need.highest_rate_per_second
    rates = (min(rate, most * highest) if highest else rate for rate, most in zip(
        need.rates_per_second, allowed, strict=True
    ))  # fmt: skip
    return replace(need, rates_per_second=tuple(rates))


def find_bounds(
    workload: ClusterWorkload, estate: Estate, need: LoadNeed | str, rules: ReplicaRules,
    annotated: AnnotatedBounds | str,
) -> ReplicaBounds | str:  # fmt: skip
    """Returns between which numbers a workload is decided, or why it stays as it is."""
    bounds = annotated if isinstance(annotated, str) else draw_annotated_bounds(workload, estate, annotated)
    if isinstance(bounds, str):
        return bounds
    if isinstance(need, str):
        return need
    return bounds if rules.now else "it has no replica now, so where one would stand is not known"
