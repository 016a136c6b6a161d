"""A plan while quick steps are tried on it: batches first, then SM%, then what the solver made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum

from app.control.fast.neighbourhood import Neighbourhood, neighbourhood_of
from app.control.fast.resize import blocking_jobs, leave_out_jobs, resize
from app.control.fast.retune import retune
from app.control.fast.watch import CapacityNeed
from solvers.planning.plan import NONE_UNSERVED_SHARE, Plan, Unplaced
from solvers.planning.problem import Problem

GROWTH_FACTOR = 1.2  # expected until new instances serve: beyond it they are started at once
MADE_WAY = "services needed its share of the GPU"


class StepKind(StrEnum):
    """The rungs of the ladder, the cheapest first."""

    RETUNE = "retune"  # batch, timeout, rates
    RESIZE = "resize"  # more SM%, if the GPU has some to spare
    START = "start"  # new instances
    PARTLY = "partly"  # as much as there is room for


class StepDraft:
    """A plan to which quick steps are applied."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self.rungs: dict[str, StepKind] = {}
        self.rates: dict[str, float] = {}

    def serve_inside(self, need: CapacityNeed, strict: bool, ahead: bool = False) -> bool:
        """Serves the need on the service's own GPUs and displaces no job: what it needs soon, else what it needs now.

        `ahead`: it does not serve what is needed now alone if much more is needed once a new instance could serve.
        """
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        grows = ahead and need.rate_per_second > need.least * GROWTH_FACTOR
        for rate in (need.rate_per_second,) if grows else dict.fromkeys((need.rate_per_second, need.least)):
            after = retune(area, need.service, rate)
            if after:
                return self._take(after, need.service, rate, StepKind.RETUNE)
            after = resize(area, need.service, rate, strict)
            if after:
                return self._take(after, need.service, rate, StepKind.RESIZE)
        return False

    def serve_displacing_jobs(self, need: CapacityNeed, strict: bool) -> bool:
        """Serves the need on the service's own GPUs and displaces preemptible jobs on as few of them as suffice."""
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        for rate in dict.fromkeys((need.rate_per_second, need.least)):
            gone: frozenset[str] = frozenset()
            for jobs in blocking_jobs(area, need.service):
                gone |= jobs
                after = resize(leave_out_jobs(area, gone), need.service, rate, strict)
                if after:
                    self.leave_out(gone)
                    return self._take(after, need.service, rate, StepKind.RESIZE)
        return False

    def serve_partly(self, need: CapacityNeed, strict: bool) -> bool:
        """Serves as much of the need as batches and slack allow."""
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        after = resize(area, need.service, need.least, strict, partly=True)
        after = after or retune(area, need.service, need.least, partly=True)
        return after is not None and self._take(after, need.service, need.least, StepKind.PARTLY)

    def leave_out(self, jobs: Collection[str]) -> None:
        """Removes jobs from the plan."""
        self.plan = replace(
            self.plan,
            jobs=tuple(placed for placed in self.plan.jobs if placed.job not in jobs),
            unplaced=self.plan.unplaced + tuple(Unplaced(job, MADE_WAY) for job in sorted(jobs)),
        )

    def follow(self, after: Plan, needs: Sequence[CapacityNeed]) -> None:
        """Takes over the solver's plan. A rate that is only foreseen and finds no room does not count as demand yet."""
        carried = dict.fromkeys((need.service for need in needs), 0.0)
        for line in after.instances:
            if line.service in carried:
                carried[line.service] += line.rate_per_second
        missed = {unserved.service: unserved for unserved in after.unserved}
        for need in needs:
            name, rate = need.service, need.rate_per_second
            part = missed.pop(name, None)
            if part:
                rate = max(need.least, carried[name])
                if rate - carried[name] > NONE_UNSERVED_SHARE * rate:
                    missed[name] = replace(part, rate_per_second=rate - carried[name])
            self.rungs[name] = StepKind.PARTLY if name in missed else StepKind.START
            self.rates[name] = rate
        self.problem = self.problem.change_rates(self.rates)
        self.plan = replace(after, unserved=tuple(missed[name] for name in sorted(missed)))

    def _take(self, after: Neighbourhood, service: str, rate: float, rung: StepKind) -> bool:
        new = {line.id: line for line in after.plan.instances}
        missed = {unserved.service: unserved for unserved in self.plan.unserved if unserved.service != service}
        missed |= {unserved.service: unserved for unserved in after.plan.unserved if unserved.service == service}
        self.problem = self.problem.change_rates({service: rate})
        self.plan = replace(
            self.plan,
            instances=tuple(new.get(line.id, line) for line in self.plan.instances),
            unserved=tuple(missed[name] for name in sorted(missed)),
        )
        self.rungs[service], self.rates[service] = rung, rate
        return True
