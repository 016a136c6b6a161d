"""What replicas by load would have cost and kept in the measured time, hour by hour, with what was known then.

Pure: from an estate, its bill and what was measured, the same hours. The estate is that of now, and its past loads run
through it; whatever is not decided stays as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from clusters.backtesting.decisions import (
    NOT_ANNOTATED,
    DecidedReplicas,
    count_start_steps,
    find_bounds,
    find_promise_then,
    first_decision,
    leave_unserved,
    replay_decisions,
)
from clusters.backtesting.judging import JudgedRequests, judge_steps
from clusters.backtesting.node_use import NodeUse, ReplicaTarget
from clusters.bill import Bill
from clusters.decided_bounds import AnnotatedBounds, leave_to_decisions
from clusters.estate import Estate, UnknownFigure, WorkloadName
from clusters.measured import LatencyPromise, MeasuredLoads
from clusters.savings import find_needs
from clusters.savings.floors import ReplicaRules, draw_rules
from clusters.savings.kinds import draw_kinds
from clusters.savings.limit import bound_nano_per_hour
from clusters.savings.needs import LoadNeed, find_needed_by_step

HOUR_SECONDS = 3600
WHOLE_SHARE = 0.995  # of the steps: beyond it, gaps are not worth a sentence
NOTHING_JUDGED = JudgedRequests()


@dataclass(frozen=True, slots=True)
class BacktestHour:
    """One hour of the past. Money is an hour's, in billionths."""

    start: float  # Unix seconds
    seconds: int  # of it that were measured
    paid_nano: int
    planned_nano: int
    least_nano: int  # no plan that serves the load goes below
    judged: JudgedRequests
    judged_then: JudgedRequests  # the same requests, by what stood there
    changes: int  # of a workload's number, by decisions
    changes_then: int  # by whatever scaled it

    @property
    def limit_nano(self) -> int:
        """Returns the most that any plan saves of this hour."""
        return max(0, self.paid_nano - self.least_nano)


@dataclass(frozen=True, slots=True)
class BacktestWorkload:
    """One workload in all hours: what stood there, what was decided; or why nothing was."""

    name: WorkloadName
    why_not: str = ""
    mean_then: float = 0.0
    mean_decided: float = 0.0
    most_decided: int = 0
    changes: int = 0
    judged: JudgedRequests = NOTHING_JUDGED
    judged_then: JudgedRequests = NOTHING_JUDGED
    last_reason: str = ""


@dataclass(frozen=True, slots=True)
class Backtest:
    """All hours from the first decision on, and what was decided for each workload that is scaled."""

    hours: tuple[BacktestHour, ...]
    workloads: tuple[BacktestWorkload, ...]
    moves: int  # pods that move so that nodes come free
    gone_nodes: int  # that stood in these hours, and nobody knows what was paid for them
    added_nodes: int  # that are paid at once, beyond those that stand now
    start_seconds: int  # until an added replica serves: whole steps
    unknown: tuple[UnknownFigure, ...]


def run_backtest(
    estate: Estate,
    bill: Bill,
    measured: MeasuredLoads,
    promises: Mapping[WorkloadName, LatencyPromise],
    seconds: float,
    adopted: Mapping[WorkloadName, AnnotatedBounds | str],
) -> Backtest:
    """Returns the hours of the last `seconds` but for the first day measured, which is what the first decision knows.

    Before these hours what stood there stands. `adopted` are workloads that annotations adopt, with their bounds or
    why nobody knows these.
    """
    workloads = (leave_to_decisions(each) if each.name in adopted else each for each in estate.workloads)
    estate = replace(estate, workloads=tuple(workloads))
    first = max(first_decision(measured.step_seconds), measured.steps - int(seconds // measured.step_seconds))
    needs = find_needs(estate, measured, promises)
    rules = {
        each.name: draw_rules(each, estate.pods_of(each.name), estate, needs[each.name]) for each in estate.workloads
    }
    whys: dict[WorkloadName, str] = {}
    decided: dict[WorkloadName, DecidedReplicas] = {}
    for each in estate.workloads:
        annotated = adopted.get(each.name, NOT_ANNOTATED)
        found = find_bounds(each, estate, needs[each.name], rules[each.name], annotated)
        if isinstance(found, str):
            whys[each.name] = found
            continue
        need, series = needs[each.name], measured.workloads[each.name]
        assert isinstance(need, LoadNeed) and isinstance(annotated, AnnotatedBounds)
        promise = promises.get(each.name) or find_promise_then(series, need, first)
        if promise is None:
            whys[each.name] = "what latency it keeps was not measured before the first decision"
            continue
        decided[each.name] = replay_decisions(
            series, promise, found, rules[each.name].now, measured.step_seconds, first, annotated
        )
        needs[each.name] = leave_unserved(replace(need, promise=promise), decided[each.name].allowed)
    return _Replay(estate, bill, measured, needs, rules, decided).run(whys, first)


class _Replay:
    """Runs decisions through the nodes, step by step."""

    def __init__(
        self, estate: Estate, bill: Bill, measured: MeasuredLoads, needs: Mapping[WorkloadName, LoadNeed | str],
        rules: Mapping[WorkloadName, ReplicaRules], decided: Mapping[WorkloadName, DecidedReplicas],
    ) -> None:  # fmt: skip
        self._estate, self._bill, self._measured, self._needs, self._rules = estate, bill, measured, needs, rules
        self._decided = decided
        kinds = draw_kinds(estate, bill.nodes, rules, measured.passing_gpus)
        self._uses = [NodeUse(kind, frozenset(decided)) for kind in kinds]
        self._rest = sum(row.nano_per_hour for row in bill.rows if row.kind == "notRunning")
        committed = {node.node for node in bill.nodes if node.is_committed}
        self._stood = {
            node.name: measured.standing_nodes[node.name]
            for node in estate.nodes
            if node.name in measured.standing_nodes and node.name not in committed
        }
        self._needed: dict[WorkloadName, list[int | None]] = {}
        for name in decided:
            need = needs[name]
            assert isinstance(need, LoadNeed)
            self._needed[name] = find_needed_by_step(measured.workloads[name], need.promise, measured.step_seconds)

    def run(self, whys: Mapping[WorkloadName, str], first: int) -> Backtest:
        step_seconds, steps = self._measured.step_seconds, self._measured.steps
        span = max(1, HOUR_SECONDS // step_seconds)
        serving = {name: list(found.serving) for name, found in self._decided.items()}
        planned, moves, added = list[int](), 0, 0
        for step in range(steps):
            moves = sum(use.moves for use in self._uses) if step == first else moves
            planned.append(self._settle(step, serving))
            added = max(added, sum(use.count_added() for use in self._uses) if step >= first else 0)
        judged, judged_then = (self._judge(counts) for counts in (serving, self._then()))
        hours = tuple(
            self._hour(range(start, min(start + span, steps)), planned, judged, judged_then)
            for start in range(first, steps, span)
        )
        gone = self._measured.standing_nodes.keys() - self._estate.by_node.keys()
        return Backtest(
            hours=hours,
            workloads=tuple(
                self._workload(each.name, whys.get(each.name, ""), first, judged, judged_then)
                for each in self._estate.workloads
                if each.is_scalable
            ),
            moves=sum(use.moves for use in self._uses) - moves,
            added_nodes=added,
            gone_nodes=sum(any(self._measured.standing_nodes[name][first:]) for name in gone),
            start_seconds=count_start_steps(step_seconds) * step_seconds,
            unknown=tuple(self._unknown(hours)),
        )

    def _settle(self, step: int, serving: Mapping[WorkloadName, list[int]]) -> int:
        """Lets what was decided stand, and returns what is paid an hour; what finds no room does not serve."""
        targets = {
            name: ReplicaTarget(found.held[step], found.most_per_node[step]) for name, found in self._decided.items()
        }
        for use in self._uses:
            use.settle({name: target for name, target in targets.items() if name in use.workloads})
            for name in use.workloads & serving.keys():
                serving[name][step] = min(serving[name][step], use.count(name))
        absent = frozenset(name for name, stood in self._stood.items() if stood[step] == 0)
        return self._rest + sum(use.nano_per_hour(absent) for use in self._uses)

    def _paid(self, step: int) -> int:
        """Returns what was paid an hour for the nodes of now, as long as each stood, and for what is committed."""
        prices = {node.node: node.nano_per_hour or 0 for node in self._bill.nodes}
        shares = ((name, stood[step]) for name, stood in self._stood.items())
        return self._bill.nano_per_hour - sum(
            round(prices[name] * (1 - share)) for name, share in shares if share is not None
        )

    def _then(self) -> dict[WorkloadName, Sequence[float | None]]:
        return {name: self._measured.workloads[name].ready_replicas for name in self._decided}

    def _judge(self, counts: Mapping[WorkloadName, Sequence[float | None]]) -> dict[WorkloadName, list[JudgedRequests]]:
        return {
            name: judge_steps(
                self._measured.workloads[name].rates_per_second, self._needed[name], found, self._measured.step_seconds
            )
            for name, found in counts.items()
        }

    def _hour(
        self,
        steps: range,
        planned: Sequence[int],
        judged: Mapping[WorkloadName, Sequence[JudgedRequests]],
        judged_then: Mapping[WorkloadName, Sequence[JudgedRequests]],
    ) -> BacktestHour:
        seconds = self._measured.step_seconds
        needs = {
            name: need if isinstance(need, str) else replace(
                need, rates_per_second=need.rates_per_second[steps.start : steps.stop]
            )
            for name, need in self._needs.items()
        }  # fmt: skip
        return BacktestHour(
            start=self._measured.start + steps.start * seconds,
            seconds=len(steps) * seconds,
            paid_nano=sum(self._paid(step) for step in steps) // len(steps),
            planned_nano=sum(planned[step] for step in steps) // len(steps),
            least_nano=bound_nano_per_hour(
                self._stood_through(steps), self._bill, self._rules, needs, len(steps), is_type_kept=True
            ),
            judged=sum((found[step] for found in judged.values() for step in steps), NOTHING_JUDGED),
            judged_then=sum((found[step] for found in judged_then.values() for step in steps), NOTHING_JUDGED),
            changes=sum(count_changes(found.decided, steps) for found in self._decided.values()),
            changes_then=sum(count_changes(found, steps) for found in self._then().values()),
        )  # fmt: skip

    def _stood_through(self, steps: range) -> Estate:
        """Returns the estate without what stays as it is on nodes that did not stand in all of these steps."""
        absent = {name for name, stood in self._stood.items() if any((stood[step] or 0) < 1 for step in steps)}
        if not absent:
            return self._estate
        fixed = {name for name, need in self._needs.items() if isinstance(need, str)}
        fixed |= {each.name for each in self._estate.workloads if not each.is_scalable}
        pods = (pod for pod in self._estate.pods if pod.node not in absent or pod.workload not in fixed)
        return replace(self._estate, pods=tuple(pods))

    def _workload(
        self,
        name: WorkloadName,
        why_not: str,
        first: int,
        judged: Mapping[WorkloadName, Sequence[JudgedRequests]],
        judged_then: Mapping[WorkloadName, Sequence[JudgedRequests]],
    ) -> BacktestWorkload:
        found = self._decided.get(name)
        if found is None or not found.decisions:
            return BacktestWorkload(name, why_not or "a day is what the first decision knows")
        counts = found.decided[first:]
        ready = [count for count in self._then()[name][first:] if count is not None]
        return BacktestWorkload(
            name=name,
            mean_then=sum(ready) / len(ready) if ready else 0.0,
            mean_decided=sum(counts) / len(counts),
            most_decided=max(counts),
            changes=count_changes(found.decided, range(first, self._measured.steps)),
            judged=sum(judged[name][first:], NOTHING_JUDGED),
            judged_then=sum(judged_then[name][first:], NOTHING_JUDGED),
            last_reason=found.decisions[-1].reason,
        )

    def _unknown(self, hours: Sequence[BacktestHour]) -> Iterator[UnknownFigure]:
        subject = "the backtest"
        if not hours:
            reason = "a day or less was measured, and its first day is what it learns from"
            yield UnknownFigure(subject, reason, "ask for more with --backtest")
        elif not self._measured.standing_nodes:
            reason = "when nodes stood was not measured, so those of now count as paid all the time"
            yield UnknownFigure(subject, reason, "let Prometheus scrape kube-state-metrics")
        for name in self._decided:
            known = sum(each is not None for each in self._needed[name])
            if hours and known < WHOLE_SHARE * len(self._needed[name]):
                share = 100 * known / len(self._needed[name])
                reason = f"its load is known for {share:.0f} % of the steps; others count for nothing"
                yield UnknownFigure(f"the backtest of {name}", reason, "let Prometheus scrape its servers all the time")


def count_changes(counts: Sequence[float | None], steps: range) -> int:
    """Returns in how many steps another number stood than in the step before; gaps are no changes."""
    return sum(
        step > 0 and None not in (counts[step - 1], counts[step]) and counts[step - 1] != counts[step]
        for step in steps
    )  # fmt: skip
