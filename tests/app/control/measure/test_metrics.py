"""The planner's metrics: removed objects leave no series behind, and every phase is timed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.domain.decision import Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.desired import CopyCounts
from app.control.domain.events import Reason, event_of
from app.control.measure import metrics
from app.control.measure.metrics import PlannerFigures, ServiceFigures, TenantFigures
from app.control.measure.tracing import phase
from app.http.metrics import REGISTRY, render
from solvers.planning.plan import Changes, Plan


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_figures_are_shown_and_what_is_gone_leaves_no_series() -> None:
    search = ServiceFigures(90.0, 100.0, 5.0, 0.05, 0.991, {"1h": 0.5})
    tenants = {"shop": TenantFigures(120.0, 9000.0, 3.5, 4.0), "lab": TenantFigures()}
    metrics.show_figures(
        PlannerFigures(
            leads=True, gap=None, services={"shop/search": search}, tenants=tenants, cost_rates={"shop": 1.5}
        )
    )
    assert value("gpuwright_leader") == 1
    assert value("gpuwright_plan_gap_ratio") is None
    assert value("gpuwright_slo_burn_rate", tenant="shop", service="search", window="1h") == 0.5
    assert value("gpuwright_tenant_budget", tenant="shop") == 9000
    assert value("gpuwright_tenant_budget", tenant="lab") is None
    assert value("gpuwright_tenant_cost_per_hour", tenant="shop") == 1.5
    metrics.show_figures(PlannerFigures())
    assert value("gpuwright_leader") == 0
    assert value("gpuwright_slo_burn_rate", tenant="shop", service="search", window="1h") is None


def test_copies_of_a_service_are_shown_and_a_planner_that_no_longer_leads_shows_none() -> None:
    named = {"tenant": "shop", "service": "search"}
    metrics.show_copies({"shop/search": CopyCounts(3, 2, 1)})
    shown = [value(f"gpuwright_service_{kind}_copies", **named) for kind in ("planned", "running", "routed")]
    assert shown == [3, 2, 1]
    metrics.show_figures(PlannerFigures())
    assert value("gpuwright_service_planned_copies", **named) is None


def test_the_time_of_a_rollout_counts_from_the_first_of_several_plans() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    name = "gpuwright_rolling_since_timestamp_seconds"
    metrics.show_rollout(None)
    assert value(name) is None
    metrics.show_rollout(began)
    metrics.show_rollout(began + timedelta(minutes=5))
    assert value(name) == began.timestamp()
    metrics.show_rollout(None)
    assert value(name) is None


def test_a_recorded_decision_counts_its_reason_and_its_changes() -> None:
    before = value("gpuwright_decisions_total", lane="fast", reason="load_rose") or 0
    started = value("gpuwright_planned_instance_changes_total", change="start") or 0
    plan = Plan((), changes=Changes(keep=3, start=2))
    metrics.count_decision(
        Decision(PlanningLane.FAST, plan, {}, SolverAnswer(SolveOutcome.SOLVED), reason=Reason.LOAD_ROSE)
    )
    assert value("gpuwright_decisions_total", lane="fast", reason="load_rose") == before + 1
    assert value("gpuwright_planned_instance_changes_total", change="start") == started + 2


def test_a_plan_of_the_second_method_counts_by_the_failure_of_the_first_from_zero() -> None:
    name = "gpuwright_fallback_plans_total"
    before = {failure: value(name, failure=failure) for failure in ("out_of_time", "crashed", "wrong", "compiling")}
    assert None not in before.values()
    answer = SolverAnswer(SolveOutcome.SOLVED)
    metrics.count_decision(Decision(PlanningLane.FULL, Plan(()), {}, answer, failure=SolveOutcome.COMPILING))
    after = {failure: value(name, failure=failure) for failure in before}
    assert after == before | {"compiling": (before["compiling"] or 0) + 1}


def test_events_count_by_reason_and_severity() -> None:
    metrics.count_events([event_of(Reason.NODE_LOST, kind="Node", name="node-1")])
    assert (value("gpuwright_events_total", reason="node_lost", severity="alarm") or 0) >= 1


def test_a_phase_is_timed_also_when_it_fails() -> None:
    before = value("gpuwright_cycle_phase_seconds_count", phase="solve") or 0
    try:
        with phase("cycle"), phase("solve"):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert value("gpuwright_cycle_phase_seconds_count", phase="solve") == before + 1
    assert value("gpuwright_cycle_phase_seconds_count", phase="cycle")


def test_outcomes_are_zero_before_they_happen() -> None:
    assert 'gpuwright_cycles_total{outcome="crashed"}' in render()[0].decode()
