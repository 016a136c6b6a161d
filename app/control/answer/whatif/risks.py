"""Prices a few risks: the cheapest plan of the running fleet at the margins that each of them asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import fsum

from app.control.answer.whatif.change import WhatIfChange, apply_change
from app.control.answer.whatif.compare import FindPlan, WhatIfSide
from app.control.answer.whatif.wire import RiskPriceWire
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

RISKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # the smallest first: its plan serves all others, too

Adapt = Callable[[Problem, Plan], Plan | None]


def price_risks(snapshot: Snapshot, solve: FindPlan, adapt: Adapt) -> Iterator[RiskPriceWire]:
    """Yields what the fleet costs at each risk of the Policy, as long as plans are found; equal rates cost the same."""
    before: WhatIfSide | None = None
    rates: dict[str, float] = {}
    for risk in RISKS:
        world = apply_change(snapshot, WhatIfChange(risk=risk))
        wanted = {name: load.rate_per_second for name, load in world.expected.items()}
        if before is None or wanted != rates:
            problem = formulate(world).problem
            plan = solve(problem)
            if plan is None:
                return
            side = WhatIfSide(problem, plan)
            if before is not None:
                side = side.or_better(before.plan).or_better(adapt(problem, before.plan))
            before, rates = side, wanted
        certificate = before.plan.certificate
        assert certificate
        yield {
            "risk": risk,
            "resourceCost": certificate.cost.resource,
            "plannedPerSecond": fsum(wanted.values()),
            "unservedPerSecond": fsum(line.rate_per_second for line in before.plan.unserved),
        }
