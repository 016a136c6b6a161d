"""Which services are worse off than they ask to be, and why: in words for conditions and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.control.domain.events import Reason
from app.control.formulate.tenants import BudgetAccount
from app.control.tell.degrade.shedding import Shedding
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Degraded:
    """How a service is degraded. The message holds no number that changes with every breath of the load."""

    reason: Reason
    message: str


Why = Mapping[str, Degraded]  # by service


def find_degraded(
    problem: Problem,
    plan: Plan,
    sheds: Mapping[str, Shedding],
    accounts: Mapping[str, BudgetAccount],
) -> dict[str, Degraded]:
    """The gravest thing that can be said of each service that is degraded; what nothing is done about is left out."""
    short = {one.service for one in plan.unserved}
    over = {tenant for tenant, one in accounts.items() if one.is_over and one.over_budget != "alarm"}
    found = {}
    for name, service in sorted(problem.services.items()):
        if name not in sheds:
            continue  # nothing is done about it
        share = sheds[name].share
        if share > 0:
            told = f"{share:.0%} of its requests are answered 503, as there is too little room"
            found[name] = Degraded(Reason.SHEDDING, told)
        elif name in short:
            found[name] = Degraded(Reason.QUEUEING, "its requests wait, up to a limit, as there is too little room")
        elif service.tenant in over:
            account = accounts[service.tenant]
            is_frozen = account.over_budget == "freeze"
            what = "gets nothing more than it has" if is_frozen else "runs as cheaply as it may"
            told = f"it {what}: tenant {service.tenant} has spent its budget"
            found[name] = Degraded(Reason.FROZEN if is_frozen else Reason.OVER_BUDGET, told)
    return found
