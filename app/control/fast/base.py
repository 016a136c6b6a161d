"""The base of quick steps: the question that the plan in force answers, and that plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from app.control.decide.assigning import assign_plan
from app.control.decide.drafting import find_changed_owners
from app.control.domain.decision import Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired, have_same_instances
from app.control.domain.ports import FollowingSolver
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.domain.specs import START_SECONDS
from app.control.fast import CapacityNeed, PlannedLoad, QuickStep, find_quick_step
from app.control.fast.ladder import SECONDS
from app.control.formulate.formulate import formulate
from app.control.formulate.predict import predict_instances, predict_paces
from app.control.formulate.question import Question
from solvers.planning.beside import ordinary_part, rejoin, wide_of
from solvers.planning.judge import JudgedPlan, Verdict
from solvers.planning.judge.plan_edit import edit_between
from solvers.planning.judge.services import AVAILABILITY_RULES
from solvers.planning.kept_bound import KeptBound, add_bound
from solvers.planning.plan import Certificate, Plan
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

MOST_SPELLED = 3  # violations, in a message


@dataclass(frozen=True)
class StepBase:
    """One plan in force. Its problem and plan stay the same objects, so that a solver can keep them warm."""

    snapshot: Snapshot
    question: Question
    plan: Plan

    def planned(self, starts: Mapping[str, float]) -> dict[str, PlannedLoad]:
        """Returns what each service is planned for, pinned instances included.

        Of a language model it is at least what its instances carry, as no quick step gives it more.
        """
        found = {}
        carried = self._carried_by_models
        for name, service in self.question.problem.services.items():
            expected = self.snapshot.expected.get(name)
            rate = expected.rate_per_second if expected else service.rate_per_second
            rate = max(rate, carried.get(name, 0.0))
            high = expected.high if expected else 0.0
            found[name] = PlannedLoad(
                rate, high, service.percentile, starts.get(name, START_SECONDS), service.slo_ms / 1000
            )
        return found

    @property
    def elsewhere(self) -> dict[str, float]:
        """Returns what pinned instances carry, which are not in the problem."""
        carried: dict[str, float] = {}
        for _, instance in self.question.pinned:
            name = instance.owner
            carried[name] = carried.get(name, 0.0) + instance.rate_per_second
        return carried

    @cached_property
    def language_models(self) -> frozenset[str]:
        """Returns the services on whole GPUs, which quick steps leave as they are."""
        services = self.question.problem.services
        return frozenset(name for name, service in services.items() if service.tokens is not None)

    @cached_property
    def ordinary(self) -> tuple[Problem, Plan] | None:
        """Returns the part that quick steps change; None where language models are all there is or hold every GPU.

        It is the question and the plan without language models and the GPUs that they hold.
        """
        if not self.language_models:
            return self.question.problem, self.plan
        part = ordinary_part(self.question.problem, self.plan)
        return part if part[0].services and part[0].nodes else None

    @cached_property
    def _carried_by_models(self) -> dict[str, float]:
        """Returns what the instances of each language model carry at most; pinned ones, what they were planned for."""
        if not self.language_models:
            return {}
        from solvers.planning.fleet.token_shapes import carried_by  # compiled, and of language models alone

        problem, elsewhere = self.question.problem, self.elsewhere
        found = {name: elsewhere.get(name, 0.0) for name in self.language_models}
        for line in wide_of(problem, self.plan.instances):
            found[line.service] += carried_by(problem, problem.services[line.service], line)
        return found

    def find_step(
        self,
        needs: Sequence[CapacityNeed],
        solver: FollowingSolver,
        *,
        strict: bool,
        seconds: float = SECONDS,
        elsewhere: Mapping[str, float],
    ) -> QuickStep | None:
        """Returns the cheapest step in the ordinary part, beside language models as they are; None if nothing helps."""
        if self.ordinary is None:
            return None
        problem, plan = self.ordinary
        quick = find_quick_step(problem, plan, needs, solver, strict=strict, seconds=seconds, elsewhere=elsewhere)
        if quick is None or not self.language_models:
            return quick
        return replace(quick, plan=rejoin(self.question.problem, quick.plan, self.plan))

    @cached_property
    def judged(self) -> JudgedPlan:
        """The judged plan: prepared between steps, so that a step is judged by what it changes."""
        return JudgedPlan(self.question.problem, self.plan, keep)

    def amid_rollout(self, assigned: Desired | None) -> StepBase:
        """Returns this base with what nodes are assigned by now, if that is not the plan in force yet."""
        if assigned is not None and have_same_instances(assigned, self.snapshot.in_force):
            assigned = None
        if assigned == self.snapshot.assigned:
            return self
        found = replace(self, snapshot=replace(self.snapshot, assigned=assigned))
        # A copy, as another thread may be judging the plan meanwhile.
        vars(found).update({name: known for name, known in vars(self).copy().items() if name not in vars(found)})
        self.__dict__.pop("judged", None)  # it belongs to the new base from here on
        return found

    def decide(self, quick: QuickStep, now: datetime, kept_bound: KeptBound | None = None) -> Decision:
        """Returns the decision of a quick step, to be recorded with this snapshot. `judged` moves on to that plan.

        The decision's outcome is WRONG if the step breaks a rule that the plan before it keeps.
        """
        held = self.elsewhere
        problem = self.question.problem.change_rates(
            {name: rate - held.get(name, 0.0) for name, rate in quick.rates.items()}
        )
        judged, lines = self.judged, self._reuse_own(quick.plan.instances)
        del self.__dict__["judged"]  # it belongs to the next plan from here on
        verdict = judged.apply(edit_between(self.plan, replace(quick.plan, instances=lines)), problem)
        predicted = predict_instances(problem, judged.residents)
        certificate = Certificate(verdict.cost, None, f"a quick step: {quick.rung}", 0, quick.answer.seconds)
        certificate = add_bound(certificate, problem, kept_bound, now)
        instances = tuple(predicted.get(id(line), line) for line in lines)
        jobs = predict_paces(quick.plan, judged.job_residents)
        plan = replace(quick.plan, instances=instances, jobs=jobs, changes=verdict.changes, certificate=certificate)
        desired = assign_plan(self.snapshot, self.question, plan)
        return Decision(
            lane=PlanningLane.FAST,
            plan=plan,
            desired=desired,
            answer=self._checked(replace(quick.answer, plan=quick.plan), verdict),
            reason=quick.reason,
            message=quick.message,
            base=self.snapshot.target,
            services=find_changed_owners(self.snapshot.in_force, desired),
        )

    def _checked(self, answer: SolverAnswer, verdict: Verdict) -> SolverAnswer:
        if verdict.is_right:
            return answer
        before = {(violation.where, violation.rule) for violation in self.judged.verdict().violations}
        new = [violation for violation in verdict.violations if (violation.where, violation.rule) not in before]
        new = [violation for violation in new if violation.rule not in AVAILABILITY_RULES]
        if not new:
            return answer
        wrong = "; ".join(map(str, new[:MOST_SPELLED]))
        return replace(answer, outcome=SolveOutcome.WRONG, message=f"the judge refuses the quick step: {wrong}")

    def _reuse_own(self, lines: Iterable[Instance]) -> tuple[Instance, ...]:
        """Returns the instances; an unchanged one is the very object of this plan, which was judged."""
        ours = {instance.id: instance for instance in self.plan.instances}
        return tuple(known if (known := ours.get(line.id)) == line else line for line in lines)

    def after(self, quick: QuickStep, decision: Decision, generation: int) -> StepBase:
        """Returns the base of the next step, made only from what is recorded of this one."""
        rates = quick.rates
        loads = {**dict.fromkeys(rates, ExpectedLoad(0.0)), **self.snapshot.expected}
        expected = {
            name: replace(load, rate_per_second=rates[name], high=max(load.high, rates[name]))
            if name in rates
            else load
            for name, load in loads.items()
        }
        snapshot = replace(self.snapshot, expected=expected, in_force=decision.desired, target=generation)
        return step_base(snapshot, formulate(snapshot))


def step_base(snapshot: Snapshot, question: Question) -> StepBase:
    """Returns the base of the plan in force in this snapshot."""
    return StepBase(snapshot, question, question.plan_in_force)
