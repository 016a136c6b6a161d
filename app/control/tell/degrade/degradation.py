"""Finds the services that get less than they need, and says why, for conditions and events."""

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
    """The degradation of a service. The message holds no figure that follows the load."""

    reason: Reason
    message: str


def find_degraded(
    problem: Problem,
    plan: Plan,
    sheds: Mapping[str, Shedding],
    accounts: Mapping[str, BudgetAccount],
) -> dict[str, Degraded]:
    """Returns the worst degradation of each service; services that gateways do not limit are left out."""
    short = {unserved.service for unserved in plan.unserved}
    over = {tenant for tenant, account in accounts.items() if account.is_over and account.over_budget != "alarm"}
    found = {}
    for name, service in sorted(problem.services.items()):
        if name not in sheds:
            continue  # advisory: nothing is done about it
        share = sheds[name].share
        if share > 0:
            message = f"gateways reject {share:.0%} of its requests, as capacity is short; full copies answer 503, too"
            found[name] = Degraded(Reason.SHEDDING, message)
        elif name in short:
            found[name] = Degraded(
                Reason.QUEUEING, "requests queue at the gateways, up to a limit, for lack of capacity"
            )
        elif service.tenant in over:
            account = accounts[service.tenant]
            is_frozen = account.over_budget == "freeze"
            what = "keeps what it has and gets no more" if is_frozen else "runs as cheaply as it may"
            message = f"the service {what}: tenant {service.tenant} has spent its budget"
            found[name] = Degraded(Reason.FROZEN if is_frozen else Reason.OVER_BUDGET, message)
    return found
