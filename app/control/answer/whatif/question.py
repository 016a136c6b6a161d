"""Answers a what-if in the solver's process: poses and solves two problems alike, and compares the plans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import cast

from app.control.answer.division.proposal import propose_division
from app.control.answer.division.wire import DivisionWire
from app.control.answer.explain.shares import costs_of_services
from app.control.answer.whatif.change import WhatIfChange, WrongChange, apply_change
from app.control.answer.whatif.compare import WhatIfSide, compare, describe_comparison, read_in_force
from app.control.answer.whatif.curve import LeastChange, can_draw
from app.control.answer.whatif.curve_wire import write_curve
from app.control.answer.whatif.front import objective_front, wire
from app.control.answer.whatif.margins import compare_margins, describe_margins
from app.control.answer.whatif.move_points import describe_curve
from app.control.answer.whatif.prices import price_slos
from app.control.answer.whatif.risks import RISKS, price_risks
from app.control.answer.whatif.wire import (
    NoComparison,
    ObjectivePointWire,
    SloPriceWire,
    WhatIfAnswerWire,
)
from app.control.domain.decision import SolveOutcome
from app.control.domain.policy import policy_spec
from app.control.domain.snapshot import Snapshot
from app.control.formulate.causes import find_causes
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.solve.aside import Aside
from app.control.solve.orders import Solve, solve_order
from solvers.planners.names import JOINT
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState, WrongProblem
from solvers.planning.wire import to_json

PRICE_WORK = 4  # steps of each of the many plans whose differences are prices
LEAST_SECONDS = 0.5
DIVISION_SHARE = 12  # plans of a division and its order, likewise
FRONT_SHARE = 9  # plans of a front, for each of the two that are compared
PATIENCE_SHARE = 1 / 12  # of the seconds: a search ends after so long without a better plan


@dataclass(frozen=True, slots=True)
class WhatIf(Aside[WhatIfAnswerWire | NoComparison]):
    """The question what a change would do. The answer changes nothing."""

    snapshot: Snapshot
    change: WhatIfChange
    seconds: float
    work: int | None = None
    seed: int = 0
    prices_of: Sequence[str] | None = None  # services whose SLOs are priced; empty: all, as long as time is left
    with_plan: bool = False
    with_front: bool = False  # plans between money, energy and accuracy
    with_risks: bool = False  # what a few risks cost
    measured: Mapping[str, float] = field(default_factory=dict)  # by service: requests that were timed of late
    with_least_change: bool = False  # of the world as it is; of a change it is always told
    with_division: bool = False  # which GPUs to divide into MIG devices

    def answered(self) -> WhatIfAnswerWire | NoComparison:
        """Returns the comparison on the wire; `failed` says why there is none."""
        try:
            return self._compare()
        except (WrongChange, WrongProblem) as wrong:
            return {"failed": str(wrong), "refused": True}

    def _compare(self) -> WhatIfAnswerWire | NoComparison:
        began = time.monotonic()
        deadline = began + self.seconds
        same = self.change == WhatIfChange()
        changed = apply_change(self.snapshot, self.change)
        asked, today = formulate(changed), formulate(self.snapshot)
        now, then = today.problem, asked.problem
        self._require_priced(then)
        draws = (self.with_least_change or not same) and can_draw(asked)
        share = 2 + 2 * (self.prices_of is not None) + FRONT_SHARE * self.with_front
        share += len(RISKS) * self.with_risks + draws + DIVISION_SHARE * self.with_division
        each = max(LEAST_SECONDS, self.seconds / share)
        patience = inf if self.work is not None else PATIENCE_SHARE * self.seconds
        found = [
            solve_order(Solve(problem, each, self.work, self.seed, patience))
            for problem in ((now,) if same else (now, then))
        ]
        for answer in found:
            if answer.outcome is not SolveOutcome.SOLVED or answer.plan is None:
                return {"failed": answer.message or str(answer.outcome), "refused": False}
        plans = [answer.plan for answer in found if answer.plan]
        before, after = WhatIfSide(now, plans[0]), WhatIfSide(then, plans[-1])
        is_joint = {now.policy.planner, then.policy.planner} == {JOINT}
        if not same and is_joint:
            # Each side also tries the other's plan, since two searches from scratch differ by luck as well.
            before = before.or_better(plans[1]).or_better(self._adapt(now, plans[1]))
            after = after.or_better(before.plan).or_better(self._adapt(then, before.plan))
        compared, now_costs = compare(before, after, self.change.services), read_in_force(today)
        margins = compare_margins(self.snapshot, changed)
        rest = {
            "inForce": now_costs,
            "seconds": time.monotonic() - began,
            "notKept": [{"service": name, "reason": asked.shortages[name]} for name in sorted(asked.shortages)],
            "sentences": describe_comparison(compared, now_costs, asked.shortages),
        }
        comparison = cast(WhatIfAnswerWire, {**compared, **rest})
        if draws:
            own = self.change.services | asked.lacking
            left = max(LEAST_SECONDS, deadline - time.monotonic())
            points = LeastChange(asked, own, left, self.seed, is_counted=self.work is not None).draw(after.plan)
            comparison["leastChange"] = write_curve(points, today, asked, find_causes(changed, asked))
            comparison["sentences"] += describe_curve(comparison["leastChange"])
            comparison["seconds"] = time.monotonic() - began
        comparison["sentences"] += describe_margins(margins)
        if margins:
            comparison["margins"] = margins
        if self.with_risks:
            comparison["riskPrices"] = list(price_risks(changed, partial(self._solve, each), self._adapt))
        if self.prices_of is not None:
            comparison["sloPrices"] = self._prices(then, costs_of_services(now, today.plan_in_force), deadline)
            wanted = self.prices_of or then.services
            comparison["notPriced"] = len(wanted) - len(comparison["sloPrices"])  # no time was left for them
        if self.with_front:
            comparison["front"] = self._front(then, changed, each)
        if self.with_division:
            comparison["division"] = self._divide(asked, changed, after, each, deadline)
        if self.with_plan:
            comparison["plan"] = to_json(after.plan, then)
        return comparison

    def _require_priced(self, problem: Problem) -> None:
        """Raises WrongChange if an SLO is to be priced of a service that the problem leaves out."""
        for name in self.prices_of or ():
            if name not in problem.services:  # such as one that runs only where nothing is planned at the moment
                why = f"it is left out of plans at the moment; see: gpuwright explain service {name}"
                raise WrongChange(f"the SLO of {name} cannot be priced, because {why}")

    def _adapt(self, problem: Problem, other: Plan) -> Plan | None:
        """Adapts another plan to this problem with the fewest changes."""
        lines = tuple(
            instance for instance in other.instances
            if instance.node in problem.nodes and instance.service in problem.services
            and problem.profile(instance.service, instance.variant, instance.node) is not None
        )  # fmt: skip
        jobs = tuple(job for job in other.jobs if job.node in problem.nodes and job.job in problem.jobs)
        state = RunningState(problem.state.now if problem.state else None, lines, jobs)
        return solve_order(Solve(replace(problem, state=state), LEAST_SECONDS, 0, self.seed)).plan

    def _front(self, problem: Problem, snapshot: Snapshot, seconds: float) -> list[ObjectivePointWire]:
        solve = partial(self._solve, seconds)
        return wire(objective_front(problem, policy_spec(snapshot.declared), snapshot.at, solve))

    def _divide(
        self, asked: Question, changed: Snapshot, after: WhatIfSide, each: float, deadline: float
    ) -> DivisionWire:
        began, brief = time.monotonic(), min(each, LEAST_SECONDS)

        def has_passed(share: float) -> bool:
            return self.work is None and time.monotonic() - began > share * (deadline - each - began)

        solve, solve_briefly = partial(self._solve, each), partial(self._solve, brief)
        return propose_division(asked, changed.declared, after, solve, solve_briefly, has_passed)

    def _solve(self, seconds: float, problem: Problem) -> Plan | None:
        return solve_order(Solve(problem, seconds, self.work, self.seed)).plan

    def _prices(self, problem: Problem, paid: Mapping[str, float], deadline: float) -> list[SloPriceWire]:
        fresh = replace(problem, state=None, jobs={})

        def solve(some: Problem) -> Plan | None:
            if time.monotonic() > deadline:
                return None
            return solve_order(Solve(some, max(LEAST_SECONDS, deadline - time.monotonic()), PRICE_WORK, self.seed)).plan

        plan = solve(fresh)
        found = []
        names = tuple(self.prices_of or ())
        for price in price_slos(fresh, plan, solve, names, self.measured, paid) if plan else ():
            if price["costsPerHour"] is None and price["shorterAddsPerHour"] is None:
                break  # no time is left
            found.append(price)
        return found
