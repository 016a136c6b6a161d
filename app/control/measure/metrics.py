"""Prometheus metrics of the planner; their names, labels and label values are part of the interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from app.control.domain.decision import Decision, PlanningLane, PlanState, SolveOutcome
from app.control.domain.desired import CopyCounts
from app.control.domain.events import NewEvent, Reason
from app.control.measure.latencies import LatencyHistograms
from app.http.metrics import REGISTRY
from app.store.fleet.loads import LoadBucket

CHANGES = ("keep", "retune", "resize", "start", "stop", "move")

CYCLES = Counter("gpuwright_cycles", "Planning cycles, by outcome.", ["outcome"], registry=REGISTRY)
FALLBACKS = Counter(
    "gpuwright_fallback_plans",
    "Plans that added what was unserved by HetSev's greedy, by how the joint solver failed to give one.",
    ["failure"],
    registry=REGISTRY,
)
PHASE_SECONDS = Histogram(
    "gpuwright_cycle_phase_seconds",
    "Time of each phase of a cycle; the phase `cycle` is the whole cycle.",
    ["phase"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=REGISTRY,
)
DECISIONS = Counter("gpuwright_decisions", "Plans recorded, by lane and reason.", ["lane", "reason"], registry=REGISTRY)
INSTANCE_CHANGES = Counter(
    "gpuwright_planned_instance_changes", "Instance changes of recorded plans.", ["change"], registry=REGISTRY
)
ROLLOUTS = Counter("gpuwright_rollouts", "Rollouts, by final state.", ["state"], registry=REGISTRY)
ROLLOUTS_BLOCKED = Counter(
    "gpuwright_rollout_blocked",
    "Times that changes of a rollout waited with nothing under way, and were left out or got another order.",
    registry=REGISTRY,
)
ROLLOUT_WAITING_SECONDS = Counter(
    "gpuwright_rollout_waiting_seconds",
    "Time in which changes of a rollout waited with nothing under way.",
    registry=REGISTRY,
)
EVENTS = Counter(
    "gpuwright_events", "Recorded events, by reason and severity.", ["reason", "severity"], registry=REGISTRY
)
FAILED = Counter(
    "gpuwright_planner_failed", "Planner jobs that failed with an unexpected error.", ["job"], registry=REGISTRY
)
FAST_SECONDS = Histogram(
    "gpuwright_fast_lane_seconds",
    "Time from reading the loads until the step is written for the nodes.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5),
    registry=REGISTRY,
)
# A rate over a series that appears with its first increment misses that increment: an alert would sleep through it.
for _outcome in SolveOutcome:
    CYCLES.labels(_outcome.value)
for _failure in (SolveOutcome.OUT_OF_TIME, SolveOutcome.CRASHED, SolveOutcome.WRONG, SolveOutcome.COMPILING):
    FALLBACKS.labels(_failure.value)
for _state in (PlanState.DONE, PlanState.STOPPED, PlanState.ABORTED, PlanState.SUPERSEDED):
    ROLLOUTS.labels(_state.value)
for _reason in Reason:
    if _reason.severity == "alarm":
        EVENTS.labels(_reason.value, _reason.severity)


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """The current figures of a service."""

    asked_per_second: float = 0.0  # measured
    expected_per_second: float = 0.0  # planned for
    unserved_per_second: float = 0.0
    shed_share: float = 0.0
    attainment: float | None = None  # None: no requests
    burn_rates: Mapping[str, float] = field(default_factory=dict)  # by window: 5m, 30m, 1h, 6h
    burstiness: float = 1.0  # of arrivals, over windows of the SLO
    slo_seconds: float | None = None  # the latency promised; of a language model for its first token
    slo_ratio: float | None = None  # of requests, for which it is promised


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """The spending and GPUs of a tenant."""

    spent: float = 0.0
    budget: float | None = None
    gpus: float = 0.0
    guarantee_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannerFigures:
    """The planner's current figures. A planner that does not lead shows only that."""

    leads: bool = False
    epoch: int = 0
    generation: int = 0
    last_cycle_at: float = 0.0  # seconds since 1970
    cost_per_hour: float = 0.0
    held_cost_per_hour: float = 0.0
    bound_per_hour: float | None = None
    gap: float | None = None
    unserved_cost_per_hour: float = 0.0
    held_back: Mapping[str, int] = field(default_factory=dict)  # by reason
    nodes: Mapping[str, int] = field(default_factory=dict)  # by state
    jobs: Mapping[str, int] = field(default_factory=dict)  # by phase
    releasable_per_hour: float = 0.0
    releasable_nodes: int = 0
    services: Mapping[str, ServiceFigures] = field(default_factory=dict)  # by tenant/name
    tenants: Mapping[str, TenantFigures] = field(default_factory=dict)
    cost_rates: Mapping[str, float] = field(default_factory=dict)  # per hour, by tenant; the dearest only
    corrections: Mapping[str, float] = field(default_factory=dict)  # of latency, by model/variant/gpuType


class FigureCollector(Collector):
    """Exports the newest figures on each scrape, so that objects that are gone leave no series behind."""

    def __init__(self) -> None:
        self.figures = PlannerFigures()
        self.rolling_since: float | None = None
        self.copies: Mapping[str, CopyCounts] = {}  # by service
        self.latencies = LatencyHistograms()

    def collect(self) -> Iterator[GaugeMetricFamily | HistogramMetricFamily]:
        """Yields every family, also those without values."""
        now = self.figures
        yield _gauge("gpuwright_leader", "1 if this process plans the fleet.", float(now.leads))
        yield _gauge("gpuwright_epoch", "Epoch of the leader, as this process knows it.", now.epoch)
        yield _gauge("gpuwright_plan_generation", "Generation of the plan in force.", now.generation)
        yield _gauge("gpuwright_last_cycle_timestamp_seconds", "When the last cycle ended.", now.last_cycle_at)
        yield _gauge(
            "gpuwright_rolling_since_timestamp_seconds",
            "Since when rollouts have been under way without a break; absent while none is.",
            self.rolling_since,
        )
        yield _gauge("gpuwright_plan_cost_per_hour", "Cost of the plan in force.", now.cost_per_hour)
        yield _gauge(
            "gpuwright_held_cost_per_hour", "Cost of the GPUs that hold copies of services.", now.held_cost_per_hour
        )
        yield _gauge(
            "gpuwright_plan_unserved_cost_per_hour",
            "Part of the plan's cost for unserved load.",
            now.unserved_cost_per_hour,
        )
        yield _gauge(
            "gpuwright_plan_bound_per_hour", "Lower bound on the cost of any correct plan.", now.bound_per_hour
        )
        yield _gauge("gpuwright_plan_gap_ratio", "Gap between cost and bound, as a share of the bound.", now.gap)
        yield _make_family("gpuwright_held_back", "Changes held back, by reason.", "reason", now.held_back)
        states = "reporting, incomplete, silent, lost, reclaimed, mismatch or never"
        yield _make_family("gpuwright_nodes", f"Nodes, by state: {states}.", "state", now.nodes)
        yield _make_family("gpuwright_jobs", "Jobs, by phase.", "phase", now.jobs)
        yield _gauge("gpuwright_releasable_nodes", "Nodes that could be returned.", now.releasable_nodes)
        yield _gauge("gpuwright_releasable_per_hour", "Savings if they were returned.", now.releasable_per_hour)
        yield from _services(now.services)
        yield from self.latencies.collect()
        yield from _copies(self.copies)
        yield from _tenants(now.tenants)
        yield _make_family(
            "gpuwright_tenant_cost_per_hour",
            "Cost of its part of the plan's GPUs; the top 100 tenants, __others__, __idle__ and __unallocated__.",
            "tenant",
            now.cost_rates,
        )
        yield _make_labelled_family(
            "gpuwright_profile_correction_ratio",
            "Reported execution time over profiled.",
            ["model", "variant", "gpu_type"],
            ((name.split("/"), factor) for name, factor in now.corrections.items() if name.count("/") == 2),
        )


COLLECTOR = FigureCollector()
REGISTRY.register(COLLECTOR)


def show_figures(figures: PlannerFigures) -> None:
    """Sets the figures to export from now on. A planner that does not lead knows no copies."""
    COLLECTOR.figures = figures
    COLLECTOR.latencies.keep_only(figures.services)
    if not figures.leads:
        COLLECTOR.copies = {}


def show_rollout(began: datetime | None) -> None:
    """Sets since when a rollout is under way, None if none is; one plan that follows another keeps the earlier time."""
    if began is None or COLLECTOR.rolling_since is None:
        COLLECTOR.rolling_since = began.timestamp() if began else None


def show_copies(copies: Mapping[str, CopyCounts]) -> None:
    """Sets the copies of each service to export from now on."""
    COLLECTOR.copies = copies


def count_latencies(buckets: Iterable[LoadBucket]) -> None:
    """Counts the answers of these buckets under the plan in force."""
    COLLECTOR.latencies.add(buckets, COLLECTOR.figures.generation)


def count_decision(decision: Decision) -> None:
    """Counts a recorded decision."""
    if decision.failure:
        FALLBACKS.labels(decision.failure.value).inc()
    DECISIONS.labels(PlanningLane(decision.lane).value, decision.reason or "none").inc()
    for change in CHANGES:
        INSTANCE_CHANGES.labels(change).inc(getattr(decision.plan.changes, change))


def count_events(events: Iterable[NewEvent]) -> None:
    """Counts recorded events."""
    for event in events:
        EVENTS.labels(event.reason, event.severity).inc()


def _services(services: Mapping[str, ServiceFigures]) -> Iterator[GaugeMetricFamily]:
    who = ["tenant", "service"]
    named = [(name.split("/", 1), figures) for name, figures in services.items() if "/" in name]
    for name, text, field_name in (
        ("gpuwright_service_asked_per_second", "Observed requests a second.", "asked_per_second"),
        ("gpuwright_service_expected_per_second", "Planned requests a second.", "expected_per_second"),
        ("gpuwright_service_burstiness", "Dispersion of arrivals over windows of the SLO.", "burstiness"),
        (
            "gpuwright_service_unserved_per_second",
            "Requests a second that no planned instance serves.",
            "unserved_per_second",
        ),
        ("gpuwright_service_shed_ratio", "Share of requests that the plan leaves to be answered 503.", "shed_share"),
    ):
        yield _make_labelled_family(name, text, who, ((key, getattr(figures, field_name)) for key, figures in named))
    for name, text, field_name in (
        ("gpuwright_slo_attainment_ratio", "Share of requests within the SLO.", "attainment"),
        ("gpuwright_slo_latency_seconds", "Latency that the SLO promises.", "slo_seconds"),
        ("gpuwright_slo_target_ratio", "Share of requests for which the SLO promises it.", "slo_ratio"),
    ):
        values = ((key, getattr(figures, field_name)) for key, figures in named)
        yield _make_labelled_family(name, text, who, ((key, value) for key, value in values if value is not None))
    yield _make_labelled_family(
        "gpuwright_slo_burn_rate",
        "Late requests over those that the SLO allows, by window.",
        [*who, "window"],
        (([*key, window], rate) for key, figures in named for window, rate in figures.burn_rates.items()),
    )


def _copies(copies: Mapping[str, CopyCounts]) -> Iterator[GaugeMetricFamily]:
    named = [(name.split("/", 1), counts) for name, counts in copies.items() if "/" in name]
    for name, text, field_name in (
        ("gpuwright_service_planned_copies", "Copies that the plan has.", "planned"),
        ("gpuwright_service_running_copies", "Planned copies that run, by their nodes' reports.", "running"),
        ("gpuwright_service_routed_copies", "Planned copies that the gateway sends requests to.", "routed"),
    ):
        yield _make_labelled_family(
            name, text, ["tenant", "service"], ((key, getattr(counts, field_name)) for key, counts in named)
        )


def _tenants(tenants: Mapping[str, TenantFigures]) -> Iterator[GaugeMetricFamily]:
    for name, text, field_name in (
        ("gpuwright_tenant_spent", "Estimated spending this month.", "spent"),
        ("gpuwright_tenant_budget", "Budget for a month.", "budget"),
        ("gpuwright_tenant_gpus", "GPUs that the plan assigns, as a sum of shares.", "gpus"),
        ("gpuwright_tenant_guarantee_gpus", "Guaranteed GPUs.", "guarantee_gpus"),
    ):
        values = ((tenant, getattr(figures, field_name)) for tenant, figures in tenants.items())
        yield _make_labelled_family(
            name, text, ["tenant"], (([tenant], value) for tenant, value in values if value is not None)
        )


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    return _make_labelled_family(name, text, [], [([], value)] if value is not None else [])


def _make_family(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    return _make_labelled_family(name, text, [label], (([word], value) for word, value in values.items()))


def _make_labelled_family(
    name: str, text: str, labels: list[str], values: Iterable[tuple[list[str], float]]
) -> GaugeMetricFamily:  # fmt: skip
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family
