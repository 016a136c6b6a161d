"""Advice on renting: asks the solver which GPUs would serve what the plan leaves unserved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import usual_price
from app.control.tell.money import Addition, pose_rental, read_rental
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

PAUSE = timedelta(seconds=60)  # between two questions to the solver
SOLVER_SECONDS, SOLVER_STEPS = 3.0, 3


@dataclass(frozen=True, slots=True)
class RentalAnswer:
    """The last answer, and the question that it answers."""

    question: bytes
    at: datetime
    addition: Addition | None


@dataclass(slots=True)
class RentalAdvisor:
    """Finds the cheapest addition; asks the solver only for a new question, and not in every cycle."""

    solver: PlanSolver
    _last: RentalAnswer | None = None

    def advise(self, snapshot: Snapshot, problem: Problem, plan: Plan) -> Addition | None:
        """Returns the GPUs to rent; None where everything is served or nothing could be rented."""
        prices = {
            declared.name: usual_price(declared.spec) for declared in snapshot.declared if declared.kind == "GpuType"
        }
        rental = pose_rental(problem, plan, prices)
        if rental is None:
            self._last = None
            return None
        rates = sorted((name, round(service.rate_per_second, 1)) for name, service in rental.services.items())
        offers = sorted(problem.spare.items()), sorted(prices.items())
        question, last = msgspec.json.encode((rates, *offers)), self._last
        if last and (last.question == question or snapshot.at < last.at + PAUSE):
            return last.addition
        answer = self.solver.solve(rental, seconds=SOLVER_SECONDS, work=SOLVER_STEPS)
        addition = read_rental(rental, answer.plan) if answer.plan else None
        self._last = RentalAnswer(question, snapshot.at, addition)
        return addition
