"""Figures of a cycle, as metrics show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from app.control.domain.decision import HeldBackChange
from app.control.domain.snapshot import NodeStatus
from app.control.formulate.tenants import GpuUsage
from app.control.measure.metrics import PlannerFigures, ServiceFigures, TenantFigures
from app.control.tell.announcement import Announcement
from app.control.tell.conditions import CycleFacts
from app.control.tell.degrade.shedding import Shedding
from app.control.tell.outcome import CycleOutcome
from app.control.tell.rates import top_tenants
from app.control.tell.slo import SloStatus
from app.control.tell.sums import PlanSums
from solvers.planning.plan import Certificate, Releasable, Unserved

ATTAINED_IN = "1h"  # the window of the condition SloAttained and of the metric


@dataclass(slots=True)
class LastAnswer:
    """The last answer of the solver: a cycle without a decision shows that of an earlier one."""

    reasons: dict[str, Unserved] = field(default_factory=dict)  # by service
    held_back: Sequence[HeldBackChange] = ()
    certificate: Certificate | None = None

    def update(self, outcome: CycleOutcome) -> None:
        if outcome.decision:
            self.reasons = {unserved.service: unserved for unserved in outcome.decision.plan.unserved}
            self.certificate = outcome.decision.plan.certificate
            self.held_back = outcome.decision.held_back
        for name, reason in outcome.blamed.items():
            self.reasons[name] = Unserved(name, 0.0, reason)

    def least_cost(self, outcome: CycleOutcome) -> float | None:
        """Returns the least price an hour of GPUs by which as much is served; None where no bound holds any more."""
        if not self.certificate or self.certificate.bound is None or outcome.changed_since_bound:
            return None
        return max(0.0, self.certificate.bound - self.certificate.cost.unserved)


def make_figures(
    announced: Announcement, facts: CycleFacts, answer: LastAnswer, free: Sequence[Releasable], held_per_hour: float,
    sums: PlanSums,
) -> PlannerFigures:  # fmt: skip
    """Returns the figures of a cycle; costs and bound are those of the last plan that was made.

    There is no bound once more than rates has changed since it was computed.
    """
    outcome, certificate, accounts = announced.outcome, answer.certificate, facts.accounts
    if certificate and outcome.changed_since_bound:
        certificate = replace(certificate, bound=None)
    snapshot = outcome.snapshot
    return PlannerFigures(
        leads=True,
        epoch=announced.epoch,
        generation=snapshot.target,
        last_cycle_at=snapshot.at.timestamp(),
        cost_per_hour=certificate.cost.total if certificate else 0.0,
        held_cost_per_hour=held_per_hour,
        unserved_cost_per_hour=certificate.cost.unserved if certificate else 0.0,
        bound_per_hour=certificate.bound if certificate else None,
        gap=certificate.gap if certificate else None,
        held_back=Counter(change.reason for change in answer.held_back),
        nodes=Counter(_state(node, snapshot.at) for node in snapshot.nodes.values()),
        jobs=Counter(job.phase for job in snapshot.jobs.values()),
        releasable_nodes=len(free),
        releasable_per_hour=sum(node.price_per_hour for node in free),
        services=_services(announced),
        tenants={
            tenant: TenantFigures(
                spent=accounts[tenant].spent if tenant in accounts else 0.0,
                budget=terms.budget_per_month,
                gpus=facts.used.get(tenant, GpuUsage()).gpus,
                guarantee_gpus=terms.guarantee_gpus,
            )
            for tenant, terms in facts.terms.items()
        },
        cost_rates=top_tenants(sums.cost_rates),
        corrections={name: correction.latency_factor for name, correction in snapshot.corrections.items()},
    )


def _state(node: NodeStatus, at: datetime) -> str:
    if node.was_reclaimed(at):
        return "reclaimed"
    return "incomplete" if node.state == "reporting" and node.missing_gpus else str(node.state)


def _services(announced: Announcement) -> dict[str, ServiceFigures]:
    outcome = announced.outcome
    short = {unserved.service: unserved.rate_per_second for unserved in outcome.plan.unserved}
    found = {}
    for name, service in outcome.question.problem.services.items():
        expected, slo = outcome.snapshot.expected.get(name), announced.slos.get(name, SloStatus())
        found[name] = ServiceFigures(
            asked_per_second=expected.observed_per_second if expected else 0.0,
            expected_per_second=expected.rate_per_second if expected else 0.0,
            burstiness=expected.burstiness.get("1", 1.0) if expected else 1.0,
            unserved_per_second=short.get(name, 0.0),
            shed_share=announced.sheds.get(name, Shedding()).share,
            attainment=slo.attainment.get(ATTAINED_IN),
            burn_rates=slo.burn_rates,
            slo_seconds=service.slo_ms / 1000,
            slo_ratio=service.percentile / 100,
        )
    return found
