"""From the cheapest rung up: batches, then SM% in the slack, then new instances; the first that suffices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.control.domain.decision import RecipeKind, SolveOutcome, SolverAnswer
from app.control.fast.neighbourhood import Neighbourhood, cost_on, neighbourhood_of
from app.control.fast.recording_solver import FollowingSolver, RecordingSolver
from app.control.fast.resize import blocking_jobs, resize, without_jobs
from app.control.fast.retune import retune
from app.control.fast.watch import CapacityNeed
from app.manifests.model import JSON
from solvers.planning.plan import NONE_UNSERVED_SHARE, Plan, Unplaced
from solvers.planning.problem import Problem

SECONDS = 0.8  # for the last rung: the whole has one
SAME = 1e-9
LEAST_RATE = 1e-3
GROWS = 1.2  # by the time that new instances serve: then they are started at once
MADE_WAY = "services needed its share of the GPU"


class StepKind(StrEnum):
    """How far up the ladder, the lowest first."""

    RETUNE = "retune"  # batch, timeout, rates
    RESIZE = "resize"  # more SM% where there are some to spare
    START = "start"  # new instances
    PARTLY = "partly"  # nothing suffices: what there was room for


@dataclass(frozen=True, slots=True)
class QuickStep:
    """What the fast lane decided: a whole plan, and what of it is new."""

    plan: Plan
    rates: Mapping[str, float]  # what these services are planned for from now on
    rungs: Mapping[str, StepKind]  # by service
    reason: str  # load_rose, slo_missed
    message: str
    cost_delta_per_hour: float = 0.0  # of services
    preempted: tuple[str, ...] = ()  # jobs that make way
    unserved: Mapping[str, float] = field(default_factory=dict)  # of the callers, what even so nobody carries
    answer: SolverAnswer = field(default_factory=lambda: SolverAnswer(SolveOutcome.SOLVED))

    @property
    def rung(self) -> StepKind:
        """The highest of them."""
        return max(self.rungs.values(), key=list(StepKind).index)

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(sorted(self.rungs))


def find_quick_step(
    problem: Problem,
    plan: Plan,
    needs: Sequence[CapacityNeed],
    solver: FollowingSolver | None = None,
    *,
    strict: bool = False,
    seconds: float = SECONDS,
    elsewhere: Mapping[str, float] | None = None,
) -> QuickStep | None:
    """The cheapest step for each caller; None where nothing helps. `plan` is what runs, `problem` what it answers.

    `elsewhere` is what instances carry that the problem does not know of, as on a cordoned GPU: it counts.
    Callers of higher priority choose first. The solver follows `plan` itself, which it may have made ready for, so who
    needs new instances gets them before the others take their steps beside them.
    """
    services = problem.services
    held = elsewhere or {}
    known = [_subtract_carried(need, held.get(need.service, 0.0)) for need in needs if need.service in services]
    order = sorted(known, key=lambda one: (-services[one.service].priority, one.service))
    course = StepDraft(problem, plan)
    outside = [need for need in order if not course.inside(need, strict, ahead=solver is not None)]
    answer: SolverAnswer | None = None
    heard = RecordingSolver(solver) if solver else None
    if outside:
        course, answer = _draft_outside(problem, plan, outside, heard, strict, seconds)
        for need in order:
            if need.service not in course.rungs and not course.inside(need, strict):
                course.partly(need, strict)
    if not course.rungs:
        return None
    quick = _summarise(course, problem, plan, order, answer)
    recipe: dict[str, JSON] = {
        "kind": RecipeKind.QUICKEN,
        "calls": {need.service: [need.rate_per_second, need.least] for need in order},
        "strict": strict,
        "solver": heard is not None,
        "followed": list(heard.outcomes) if heard else [],
    }
    quick = replace(quick, answer=replace(quick.answer, recipe=recipe))
    return replace(quick, rates={name: rate + held.get(name, 0.0) for name, rate in quick.rates.items()})


class StepDraft:
    """A plan on its way up the ladder."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self.rungs: dict[str, StepKind] = {}
        self.rates: dict[str, float] = {}

    def inside(self, need: CapacityNeed, strict: bool, ahead: bool = False) -> bool:
        """On the GPUs that it has, and nobody makes way: for what it will need soon, else for what it needs now.

        `ahead`: not for now alone where much more will be needed by the time that a new instance serves.
        """
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        grows = ahead and need.rate_per_second > need.least * GROWS
        for rate in (need.rate_per_second,) if grows else dict.fromkeys((need.rate_per_second, need.least)):
            after = retune(area, need.service, rate)
            if after:
                return self._take(after, need.service, rate, StepKind.RETUNE)
            after = resize(area, need.service, rate, strict)
            if after:
                return self._take(after, need.service, rate, StepKind.RESIZE)
        return False

    def pushing(self, need: CapacityNeed, strict: bool) -> bool:
        """The same, and preemptible jobs beside it make way, as few GPUs' as will do: services come first."""
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        for rate in dict.fromkeys((need.rate_per_second, need.least)):
            gone: frozenset[str] = frozenset()
            for jobs in blocking_jobs(area, need.service):
                gone |= jobs
                after = resize(without_jobs(area, gone), need.service, rate, strict)
                if after:
                    self.leave_out(gone)
                    return self._take(after, need.service, rate, StepKind.RESIZE)
        return False

    def partly(self, need: CapacityNeed, strict: bool) -> bool:
        """Nothing suffices: as far as batches and slack go."""
        area = neighbourhood_of(self.problem, self.plan, [need.service])
        after = resize(area, need.service, need.least, strict, partly=True)
        after = after or retune(area, need.service, need.least, partly=True)
        return after is not None and self._take(after, need.service, need.least, StepKind.PARTLY)

    def leave_out(self, jobs: Collection[str]) -> None:
        """These jobs no longer run."""
        self.plan = replace(
            self.plan,
            jobs=tuple(one for one in self.plan.jobs if one.job not in jobs),
            unplaced=self.plan.unplaced + tuple(Unplaced(job, MADE_WAY) for job in sorted(jobs)),
        )

    def follow(self, after: Plan, needs: Sequence[CapacityNeed]) -> None:
        """Take over what the solver made of these callers. What is only foreseen, without room, is no demand yet."""
        carried = dict.fromkeys((need.service for need in needs), 0.0)
        for line in after.instances:
            if line.service in carried:
                carried[line.service] += line.rate_per_second
        missed = {one.service: one for one in after.unserved}
        for need in needs:
            name, rate = need.service, need.rate_per_second
            left = missed.pop(name, None)
            if left:
                rate = max(need.least, carried[name])
                if rate - carried[name] > NONE_UNSERVED_SHARE * rate:
                    missed[name] = replace(left, rate_per_second=rate - carried[name])
            self.rungs[name] = StepKind.PARTLY if name in missed else StepKind.START
            self.rates[name] = rate
        self.problem = self.problem.with_rates(self.rates)
        self.plan = replace(after, unserved=tuple(missed[name] for name in sorted(missed)))

    def _take(self, after: Neighbourhood, service: str, rate: float, rung: StepKind) -> bool:
        new = {line.id: line for line in after.plan.instances}
        missed = {one.service: one for one in self.plan.unserved if one.service != service}
        missed |= {one.service: one for one in after.plan.unserved if one.service == service}
        self.problem = self.problem.with_rates({service: rate})
        self.plan = replace(
            self.plan,
            instances=tuple(new.get(line.id, line) for line in self.plan.instances),
            unserved=tuple(missed[name] for name in sorted(missed)),
        )
        self.rungs[service], self.rates[service] = rung, rate
        return True


def _draft_outside(
    problem: Problem,
    plan: Plan,
    needs: Sequence[CapacityNeed],
    solver: FollowingSolver | None,
    strict: bool,
    seconds: float,
) -> tuple[StepDraft, SolverAnswer | None]:
    """New instances; where these would open a GPU, or leave something unserved, jobs make way instead.

    A service never pays for a job's sake: what jobs hold counts as free to it.
    """
    followed, answer = _draft_by_solver(problem, plan, needs, solver, seconds)
    if followed and not _weighted_shortfall(followed, needs) and cost_delta(problem, plan, followed.plan) <= SAME:
        return followed, answer
    if not any(problem.jobs[one.job].is_preemptible for one in plan.jobs):
        return followed or StepDraft(problem, plan), answer
    pushed = StepDraft(problem, plan)
    if all(pushed.pushing(need, strict) for need in needs):
        return pushed, None
    pushed = StepDraft(problem, plan)
    bare = StepDraft(problem, plan)
    bare.leave_out([one.job for one in plan.jobs if problem.jobs[one.job].is_preemptible])
    alone, other = _draft_by_solver(problem, bare.plan, needs, solver, seconds)
    if alone and (
        followed is None or _weighted_shortfall(alone, needs) < _weighted_shortfall(followed, needs) * (1 - SAME)
    ):
        return _restore_jobs(alone, plan), other
    return followed or pushed, answer if followed else None


def _draft_by_solver(
    problem: Problem, plan: Plan, needs: Sequence[CapacityNeed], solver: FollowingSolver | None, seconds: float
) -> tuple[StepDraft | None, SolverAnswer | None]:
    if solver is None:
        return None, None
    answer = solver.follow(problem, plan, {need.service: need.rate_per_second for need in needs}, seconds=seconds)
    if answer.outcome is not SolveOutcome.SOLVED or answer.plan is None:
        return None, answer
    course = StepDraft(problem, plan)
    course.follow(answer.plan, needs)
    return course, answer


def _restore_jobs(course: StepDraft, before: Plan) -> StepDraft:
    """Jobs go on where they ran, as far as what services now do leaves them their place."""
    from solvers.planning.jobs import place_jobs  # compiled loops; rarely needed here

    state = course.problem.state
    assert state
    problem = replace(course.problem, state=replace(state, jobs=before.jobs))
    placed = place_jobs(problem, course.plan.instances, work=0)
    stay = {one.job: one for one in before.jobs}
    kept = tuple(one for one in placed.jobs if one.job in stay)
    gone = sorted(stay.keys() - {one.job for one in kept})
    told = {one.job: one for one in before.unplaced} | {job: Unplaced(job, MADE_WAY) for job in gone}
    unplaced = tuple(told[job] for job in sorted(told))
    course.plan = replace(course.plan, instances=placed.instances, jobs=kept, unplaced=unplaced)
    return course


def _subtract_carried(need: CapacityNeed, carried: float) -> CapacityNeed:
    least = LEAST_RATE
    return replace(
        need, rate_per_second=max(need.rate_per_second - carried, least), least=max(need.least - carried, least)
    )


def _weighted_shortfall(course: StepDraft, needs: Sequence[CapacityNeed]) -> float:
    """What callers lack, weighed by their priority."""
    names = {need.service for need in needs}
    services = course.problem.services
    return sum(
        one.rate_per_second * services[one.service].priority for one in course.plan.unserved if one.service in names
    )


def cost_delta(problem: Problem, before: Plan, after: Plan) -> float:
    """What services pay more an hour. Only nodes on which something differs that is paid for are judged."""
    energy = problem.policy.energy_price_per_kwh > 0

    def paid(plan: Plan) -> dict[str, tuple[object, ...]]:
        return {
            one.id: (one.place, one.service, one.variant, one.batch, one.sm_percent, one.clock_mhz)
            + ((one.rate_per_second,) if energy else ())
            for one in plan.instances
        }

    was, now = paid(before), paid(after)
    differ = {id_ for id_ in was.keys() | now.keys() if was.get(id_) != now.get(id_)}
    nodes = {one.node for plan in (before, after) for one in plan.instances if one.id in differ}
    return cost_on(problem, after, nodes) - cost_on(problem, before, nodes)


def _summarise(
    course: StepDraft, problem: Problem, before: Plan, needs: Sequence[CapacityNeed], answer: SolverAnswer | None
) -> QuickStep:
    ran = {one.job for one in before.jobs}
    gone = tuple(sorted(ran - {one.job for one in course.plan.jobs}))
    left = {one.service: one.rate_per_second for one in course.plan.unserved if one.service in course.rungs}
    asked = [need for need in needs if need.service in course.rungs]
    return QuickStep(
        plan=replace(course.plan, certificate=None),
        rates=course.rates,
        rungs=course.rungs,
        reason=str(asked[0].trigger),
        message="; ".join(f"{need.service}: {need.message}" for need in asked[:3]),
        cost_delta_per_hour=cost_delta(problem, before, course.plan),
        preempted=gone,
        unserved=left,
        answer=SolverAnswer(SolveOutcome.SOLVED, course.plan, seconds=answer.seconds if answer else 0.0),
    )
