"""Finds batches that make a running plan cheaper, bounded by work, and applies them to its services."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from solvers.planning.batches.batch import Batch, BatchGroup, GroupRow, MoveLimit
from solvers.planning.batches.groups import displacing, groups
from solvers.planning.batches.trials import BatchTrials
from solvers.planning.plan import Plan, ServicePlan
from solvers.planning.problem import Problem
from solvers.planning.replan.running import repair

MOST_IN_A_ROW = 8  # groups of a batch
CLIMBING_SHARE = 0.5  # of the tries: these start from the plan with the batches found so far


def find_batches(
    problem: Problem,
    plan: Plan,
    known: Sequence[GroupRow] = (),
    *,
    tries: int,
    seed: int = 0,
    limit: MoveLimit | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[Batch, ...]:
    """Returns batches that make this plan cheaper: known ones that still do, and new ones from `tries` groups of GPUs.

    They are single groups, and rows of groups that begin with those that save most for their churn. At most `tries`
    more are groups in which an instance gives way. Once there is no time left no other group is tried. None moves more
    services than the limit allows.
    """
    trials = _trials(problem, plan, limit)
    if not trials.is_right:
        return ()
    climbing = int(tries * CLIMBING_SHARE)
    singles = [row[0] for row in known if len(row) == 1]
    tried = dict.fromkeys([*singles, *islice(displacing(trials), tries), *groups(trials, tries - climbing, seed)])
    found = [batch for group in tried if has_time() and (batch := trials.measure(group))]
    rows = (_row(_trials(problem, plan, limit), row) for row in known if len(row) > 1 and has_time())
    found += [batch for batch in rows if batch]
    best = sorted(found, key=lambda batch: (-batch.gain_per_hour / max(batch.price, 1e-6), batch.groups))
    first = [batch.groups[0] for batch in best if len(batch.groups) == 1]
    found += _climb(trials, [*first, *groups(trials, climbing, seed + 1)], has_time)
    return tuple({batch.groups: batch for batch in found}.values())


def make_batches(problem: Problem, plan: Plan, row: GroupRow) -> ServicePlan | None:
    """Returns the services with the batches of these groups, one after the other; None if none of them saves anything.

    The caller places the jobs again.
    """
    trials = _trials(problem, plan)
    made = [group for group in row if trials.is_right and trials.make(group)]
    return trials.services() if made else None


def _row(trials: BatchTrials, row: GroupRow) -> Batch | None:
    """Returns what a row of groups saves and costs together; None if one of them does not save any more."""
    made = [trials.make(group) for group in row]
    parts = [batch for batch in made if batch]
    return _join(parts) if len(parts) == len(row) else None


def _join(parts: Sequence[Batch]) -> Batch:
    row = tuple(group for batch in parts for group in batch.groups)
    saved, relief = sum(batch.saved_per_hour for batch in parts), sum(batch.relief_per_hour for batch in parts)
    return Batch(row, saved, sum(batch.churn for batch in parts), relief, sum(batch.effort for batch in parts))


def _climb(trials: BatchTrials, candidates: Sequence[BatchGroup], has_time: Callable[[], bool]) -> Iterator[Batch]:
    """Makes one batch after the other, and yields each row of them."""
    parts: list[Batch] = []
    for group in candidates:
        if len(parts) == MOST_IN_A_ROW or not has_time():
            return
        if batch := trials.make(group):
            parts.append(batch)
            if len(parts) > 1:
                yield _join(parts)


def _trials(problem: Problem, plan: Plan, limit: MoveLimit | None = None) -> BatchTrials:
    """Returns the plan ready for trials; repaired, if its instances break a rule without the jobs beside them."""
    trials = BatchTrials(problem, plan, limit)
    if trials.is_right:
        return trials
    staying = [placed for placed in plan.jobs if placed.place in trials.closed]
    found = repair(trials.board.t, plan.instances, staying)
    repaired = replace(plan, instances=tuple(found.instances), unserved=tuple(found.unserved))
    return BatchTrials(problem, repaired, limit)
