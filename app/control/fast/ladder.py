"""Climbs from the cheapest step up: batches, then SM% in the slack, then new instances; the first that suffices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import FollowingSolver
from app.control.fast.neighbourhood import cost_on
from app.control.fast.step_draft import MADE_WAY, StepDraft, StepKind
from app.control.fast.watch import CapacityNeed
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import Problem

SECONDS = 0.8  # for the last rung: the whole step has one second
SAME = 1e-9
LEAST_RATE_PER_SECOND = 1e-3


@dataclass(frozen=True, slots=True)
class QuickStep:
    """A decision of the fast lane: a whole plan, and what is new in it."""

    plan: Plan
    rates: Mapping[str, float]  # what these services are planned for from now on
    rungs: Mapping[str, StepKind]  # by service
    reason: str  # load_rose, slo_missed
    message: str
    unserved: Mapping[str, float]  # of the services in need: what still is not carried
    answer: SolverAnswer

    @property
    def rung(self) -> StepKind:
        """Returns the highest rung."""
        return max(self.rungs.values(), key=list(StepKind).index)

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(sorted(self.rungs))


def find_quick_step(
    problem: Problem,
    plan: Plan,
    needs: Sequence[CapacityNeed],
    solver: FollowingSolver,
    *,
    strict: bool,
    seconds: float,
    elsewhere: Mapping[str, float],
) -> QuickStep | None:
    """Returns the cheapest step for each need; None if nothing helps. `plan` is what runs, `problem` what it answers.

    `elsewhere` is what instances carry that the problem does not contain, as on a cordoned GPU: it counts.
    Needs of higher priority choose first. The solver follows `plan` itself, which it may have prepared, so services
    that need new instances get them before the others take their steps.
    """
    services = problem.services
    known = [_subtract_carried(need, elsewhere.get(need.service, 0.0)) for need in needs if need.service in services]
    order = sorted(known, key=lambda need: (-services[need.service].priority, need.service))
    course = StepDraft(problem, plan)
    outside = [need for need in order if not course.serve_inside(need, strict, ahead=True)]
    answer: SolverAnswer | None = None
    if outside:
        course, answer = _draft_outside(problem, plan, outside, solver, strict, seconds)
        for need in order:
            if need.service not in course.rungs and not course.serve_inside(need, strict):
                course.serve_partly(need, strict)
    if not course.rungs:
        return None
    quick = _summarise(course, order, answer)
    return replace(quick, rates={name: rate + elsewhere.get(name, 0.0) for name, rate in quick.rates.items()})


def _draft_outside(
    problem: Problem,
    plan: Plan,
    needs: Sequence[CapacityNeed],
    solver: FollowingSolver,
    strict: bool,
    seconds: float,
) -> tuple[StepDraft, SolverAnswer | None]:
    """Starts new instances; if these would open a GPU or leave something unserved, jobs make way instead.

    A service never pays for a job: what jobs hold counts as free for it.
    """
    followed, answer = _draft_by_solver(problem, plan, needs, solver, seconds)
    if followed and not _weigh_shortfall(followed, needs) and cost_delta(problem, plan, followed.plan) <= SAME:
        return followed, answer
    if not any(problem.jobs[placed.job].is_preemptible for placed in plan.jobs):
        return followed or StepDraft(problem, plan), answer
    pushed = StepDraft(problem, plan)
    if all(pushed.serve_displacing_jobs(need, strict) for need in needs):
        return pushed, None
    pushed = StepDraft(problem, plan)
    bare = StepDraft(problem, plan)
    bare.leave_out([placed.job for placed in plan.jobs if problem.jobs[placed.job].is_preemptible])
    alone, other = _draft_by_solver(problem, bare.plan, needs, solver, seconds)
    if alone and (followed is None or _weigh_shortfall(alone, needs) < _weigh_shortfall(followed, needs) * (1 - SAME)):
        return _restore_jobs(alone, plan), other
    return followed or pushed, answer if followed else None


def _draft_by_solver(
    problem: Problem, plan: Plan, needs: Sequence[CapacityNeed], solver: FollowingSolver, seconds: float
) -> tuple[StepDraft | None, SolverAnswer | None]:
    answer = solver.follow(problem, plan, {need.service: need.rate_per_second for need in needs}, seconds=seconds)
    if answer.outcome is not SolveOutcome.SOLVED or answer.plan is None:
        return None, answer
    course = StepDraft(problem, plan)
    course.follow(answer.plan, needs)
    return course, answer


def _restore_jobs(course: StepDraft, before: Plan) -> StepDraft:
    """Keeps jobs where they ran, as far as services leave them their place."""
    from solvers.planning.jobs import place_jobs  # compiled loops; rarely needed here

    state = course.problem.state
    assert state
    problem = replace(course.problem, state=replace(state, jobs=before.jobs))
    placed = place_jobs(problem, course.plan.instances, work=0)
    stay = {placed.job: placed for placed in before.jobs}
    staying = tuple(job for job in placed.jobs if job.job in stay)
    gone = sorted(stay.keys() - {job.job for job in staying})
    waiting = {unplaced.job: unplaced for unplaced in before.unplaced} | {job: Unplaced(job, MADE_WAY) for job in gone}
    unplaced = tuple(waiting[job] for job in sorted(waiting))
    course.plan = replace(course.plan, instances=placed.instances, jobs=staying, unplaced=unplaced)
    return course


def _subtract_carried(need: CapacityNeed, carried: float) -> CapacityNeed:
    return replace(
        need,
        rate_per_second=max(need.rate_per_second - carried, LEAST_RATE_PER_SECOND),
        least=max(need.least - carried, LEAST_RATE_PER_SECOND),
    )


def _weigh_shortfall(course: StepDraft, needs: Sequence[CapacityNeed]) -> float:
    """Returns what these services lack, weighted by priority."""
    names = {need.service for need in needs}
    services = course.problem.services
    return sum(
        unserved.rate_per_second * services[unserved.service].priority
        for unserved in course.plan.unserved
        if unserved.service in names
    )


def cost_delta(problem: Problem, before: Plan, after: Plan) -> float:
    """Returns how much more services pay an hour; only nodes where something that is paid for differs are judged."""
    energy = problem.policy.energy_price_per_kwh > 0

    def paid(plan: Plan) -> dict[str, tuple[object, ...]]:
        return {
            instance.id: (
                instance.place,
                instance.service,
                instance.variant,
                instance.batch,
                instance.sm_percent,
                instance.clock_mhz,
            )
            + ((instance.rate_per_second,) if energy else ())
            for instance in plan.instances
        }

    was, now = paid(before), paid(after)
    differ = {id_ for id_ in was.keys() | now.keys() if was.get(id_) != now.get(id_)}
    nodes = {instance.node for plan in (before, after) for instance in plan.instances if instance.id in differ}
    return cost_on(problem, after, nodes) - cost_on(problem, before, nodes)


def _summarise(course: StepDraft, needs: Sequence[CapacityNeed], answer: SolverAnswer | None) -> QuickStep:
    unserved = {
        unserved.service: unserved.rate_per_second
        for unserved in course.plan.unserved
        if unserved.service in course.rungs
    }
    served = [need for need in needs if need.service in course.rungs]
    return QuickStep(
        plan=replace(course.plan, certificate=None),
        rates=course.rates,
        rungs=course.rungs,
        reason=str(served[0].trigger),
        message="; ".join(f"{need.service}: {need.message}" for need in served[:3]),
        unserved=unserved,
        answer=SolverAnswer(SolveOutcome.SOLVED, course.plan, seconds=answer.seconds if answer else 0.0),
    )
