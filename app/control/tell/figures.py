"""The figures of a cycle, as metrics show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.formulate.tenants import GpuUsage
from app.control.measure.metrics import PlannerFigures, ServiceFigures, TenantFigures
from app.control.tell.conditions import CycleFacts
from app.control.tell.degrade import Shedding
from app.control.tell.rates import cost_rates, top_tenants
from app.control.tell.slo import SloStatus
from solvers.planning.plan import Certificate, Plan, Releasable

ATTAINED_IN = "1h"  # the window that conditions and metrics speak of


@dataclass(frozen=True)
class CycleOutcome:
    """What a cycle leaves behind. `plan` is the one that stands, in the problem's words."""

    snapshot: Snapshot
    posed: Question
    plan: Plan
    decision: Decision | None = None  # of this cycle, where it made one
    blamed: Mapping[str, str] = field(default_factory=dict)  # by service: why it may be that no plan came


def make_figures(
    epoch: int,
    after: CycleOutcome,
    ground: CycleFacts,
    certificate: Certificate | None,
    held_back: Sequence[HeldBackChange],
    sheds: Mapping[str, Shedding],
    promises: Mapping[str, SloStatus],
    free: Sequence[Releasable],
) -> PlannerFigures:
    """All of them; `certificate` is that of the last plan that was made."""
    snapshot, accounts = after.snapshot, ground.accounts
    return PlannerFigures(
        leads=True,
        epoch=epoch,
        generation=snapshot.target,
        last_cycle_at=snapshot.at.timestamp(),
        cost_per_hour=certificate.cost.total if certificate else 0.0,
        unserved_cost_per_hour=certificate.cost.unserved if certificate else 0.0,
        bound_per_hour=certificate.bound if certificate else None,
        gap=certificate.gap if certificate else None,
        held_back=_counted(one.reason for one in held_back),
        nodes=_counted(str(one.state) for one in snapshot.nodes.values()),
        jobs=_counted(one.phase for one in snapshot.jobs.values()),
        releasable_nodes=len(free),
        releasable_per_hour=sum(one.price_per_hour for one in free),
        services=_services(after, sheds, promises),
        tenants={
            tenant: TenantFigures(
                spent=accounts[tenant].spent if tenant in accounts else 0.0,
                budget=one.budget_per_month,
                gpus=ground.used.get(tenant, GpuUsage()).gpus,
                guarantee_gpus=one.guarantee_gpus,
            )
            for tenant, one in ground.terms.items()
        },
        cost_rates=top_tenants(cost_rates(after.posed.problem, after.plan)),
        corrections={name: one.latency_factor for name, one in snapshot.corrections.items()},
    )


def _services(
    after: CycleOutcome, sheds: Mapping[str, Shedding], promises: Mapping[str, SloStatus]
) -> dict[str, ServiceFigures]:
    short = {one.service: one.rate_per_second for one in after.plan.unserved}
    found = {}
    for name in after.posed.problem.services:
        expected, kept = after.snapshot.expected.get(name), promises.get(name, SloStatus())
        found[name] = ServiceFigures(
            asked_per_second=expected.seen_per_second if expected else 0.0,
            expected_per_second=expected.rate_per_second if expected else 0.0,
            unserved_per_second=short.get(name, 0.0),
            shed_share=sheds.get(name, Shedding()).share,
            attainment=kept.attainment.get(ATTAINED_IN),
            burn_rates=kept.burn_rates,
        )
    return found


def _counted(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
