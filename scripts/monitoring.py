"""Writes the rules of Prometheus, the dashboard of Grafana and docs/monitoring.md from one list of alerts and panels.

Usage: .venv/bin/python scripts/monitoring.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.control.domain.events import Reason  # noqa: E402
from app.control.measure import metrics as planner  # noqa: E402
from app.http.metrics import REGISTRY  # noqa: E402
from app.nodes import metrics  # noqa: E402
from scripts.generated import table, write_or_check  # noqa: E402

assert planner and metrics  # they register their metrics
FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "gpuwright.rules.yml"
DASHBOARD = FOLDER / "gpuwright-dashboard.json"
PAGE = ROOT / "docs" / "monitoring.md"
SITE = "https://gpuwright.example/docs"  # where `mkdocs build` of docs/ is served; yours


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: when it fires, and the first step for the person on call."""

    name: str
    expr: str
    lasts: str
    severity: str  # page: now; ticket: in working hours
    summary: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard: its queries, and the names of its series."""

    title: str
    unit: str  # Grafana's
    queries: tuple[tuple[str, str], ...]  # (expression, legend)
    kind: str = "timeseries"  # or stat
    wide: int = 8  # of 24


BURNS = 'gpuwright_slo_burn_rate{{window="{}"}} > {}'
FAST = f"{BURNS.format('1h', 14.4)} and ignoring(window) {BURNS.format('5m', 14.4)}"
SLOW = f"{BURNS.format('6h', 6)} and ignoring(window) {BURNS.format('30m', 6)}"
FAILED = 'gpuwright_cycles_total{outcome=~"out_of_time|crashed|wrong"}'

ALERTS = (
    Alert(
        "NoLeader", "(sum(gpuwright_leader) or vector(0)) < 1", "1m", "page",
        "No planner leads: nothing is planned; running copies keep serving.",
        "Check that a planner runs and reaches the database: `gpuwright planner` logs `standing_by` or `leader`.",
    ),
    Alert(
        "CyclesStalled", "time() - max(gpuwright_last_cycle_timestamp_seconds) > 300", "1m", "page",
        "No planning cycle has ended for five minutes.",
        "Look at the leader's log for `planner_failed` and `deposed`, then at the database's slow statements.",
    ),
    Alert(
        "PlannerFailing", "sum by (job) (increase(gpuwright_planner_failed_total[15m])) > 3", "0m", "page",
        "The planner's {{ $labels.job }} fails repeatedly with an unexpected error.",
        "The log has it under `planner_failed`. Restart this planner, so that another one leads.",
    ),
    Alert(
        "SolverFailing", f"sum(increase({FAILED}[15m])) >= 3", "0m", "page",
        "The solver failed to return a plan three times; the last good one stays in force, and what it leaves unserved "
        "is added by HetSev's greedy.",
        "`gpuwright explain plan` names each outcome under `lately`. Out of time: give it more seconds or cores. "
        "Crashed or wrong: `gpuwright replay PLAN` repeats the decision offline; report it.",
    ),
    Alert(
        "FallbackPlans", 'sum(increase(gpuwright_fallback_plans_total{failure!="compiling"}[15m])) > 0', "0m", "ticket",
        "The joint solver failed to give a plan while load was unserved, so HetSev's greedy added instances.",
        "As for SolverFailing. What was added costs more than a joint plan would; the next one plans it again.",
    ),
    Alert(
        "CyclesSlow",
        'histogram_quantile(0.9, sum by (le) (rate(gpuwright_cycle_phase_seconds_bucket{phase="cycle"}[30m]))) > 30',
        "15m", "ticket", "A cycle takes longer than 30 seconds.",
        "The panel Cycle phases shows which phase. Observing or recording: the database; solving: its budget.",
    ),
    Alert(
        "RolloutStopped", 'sum(increase(gpuwright_rollouts_total{state="stopped"}[15m])) > 0', "0m", "page",
        "A step of a rollout failed its check; the changes that depend on it were left out.",
        "`gpuwright plan show` and `gpuwright events --reason rollout_stopped` say which step and why. Then "
        "`gpuwright plan rollback`, or repair the node and let the next cycle plan again.",
    ),
    Alert(
        "RolloutBlocked", "sum(increase(gpuwright_rollout_blocked_total[15m])) > 0", "0m", "ticket",
        "Changes of a rollout waited with nothing under way; they were left out, or got another order.",
        "`gpuwright events --reason rollout_blocked` names them and what they waited for. The next plan starts "
        "from what runs.",
    ),
    Alert(
        "RolloutLong", "time() - max(gpuwright_rolling_since_timestamp_seconds) > 1800", "0m", "ticket",
        "A rollout, or several in a row, has been under way for more than half an hour.",
        "`gpuwright plan show` names the changes that wait, and for what. `gpuwright plan abort` ends it where it is, "
        "so that the next cycle plans from what runs.",
    ),
    Alert(
        "NoRoomToHandOver", 'sum(gpuwright_held_back{reason="no_room_to_hand_over"}) > 0', "1h", "ticket",
        "A change has waited for an hour because no order of steps starts the new copy before the old one ends.",
        "`gpuwright plan show` names the smallest room that would help: free that much, or set `handover: overlap`.",
    ),
    Alert(
        "SloBurnsFast", f"({FAST}) or (1 - gpuwright_slo_attainment_ratio > 0.5)", "2m", "page",
        "{{ $labels.tenant }}/{{ $labels.service }} misses its SLO so often that a month's allowance lasts two days.",
        "`gpuwright explain service NAME`: too little capacity (rent, or raise the tenant's limit), a wrong profile, "
        "or a node that is slower than the others.",
    ),
    Alert(
        "SloBurnsSlowly", SLOW, "15m", "ticket",
        "{{ $labels.tenant }}/{{ $labels.service }} misses its SLO so often that a month's allowance lasts five days.",
        "As for SloBurnsFast; it can wait for working hours.",
    ),
    Alert(
        "Unserved", "gpuwright_service_unserved_per_second > 0", "10m", "ticket",
        "The plan leaves part of {{ $labels.tenant }}/{{ $labels.service }} unserved.",
        "Its condition Planned names the reason and the smallest change that would serve it; `gpuwright plan show` "
        "lists GPUs to rent.",
    ),
    Alert(
        "ServiceDown", "gpuwright_service_routed_copies == 0 and gpuwright_service_expected_per_second > 0", "1m",
        "page",
        "No copy of {{ $labels.tenant }}/{{ $labels.service }} gets requests.",
        "Its condition Running names a copy and what its node says of it; `gpuwright logs` shows its output.",
    ),
    Alert(
        "CopiesMissing", "gpuwright_service_routed_copies < gpuwright_service_planned_copies", "10m", "ticket",
        "Fewer copies of {{ $labels.tenant }}/{{ $labels.service }} get requests than are planned.",
        "Its condition Running names one of them and what its node says of it.",
    ),
    Alert(
        "ServiceSuspect", 'sum(increase(gpuwright_events_total{reason="service_suspect"}[15m])) > 0', "0m", "page",
        "A service fails wherever it is started, so its copies are not moved any more.",
        "`gpuwright events --reason service_suspect` names it, where it failed, and the last line of its output.",
    ),
    Alert(
        "ManyDown", 'sum(increase(gpuwright_events_total{reason="many_down"}[15m])) > 0', "0m", "page",
        "More than a third of all copies or nodes went down within a minute; nothing moves for ten minutes.",
        "`gpuwright events --reason many_down` says what they share: a model, a template, a folder. Look there first.",
    ),
    Alert(
        "Shedding", "gpuwright_service_shed_ratio > 0", "5m", "page",
        "Requests of {{ $labels.tenant }}/{{ $labels.service }} are answered 503 for lack of capacity.",
        "As for Unserved. Lower the priority of others, or rent what the event `rent_more` names.",
    ),
    Alert(
        "TenantOverBudget", "gpuwright_tenant_spent >= gpuwright_tenant_budget", "5m", "ticket",
        "{{ $labels.tenant }} has spent its budget for the month.",
        "Raise `budget.perMonth` of the Tenant, or let `overBudget` take effect.",
    ),
    Alert(
        "NodeLost", 'sum(gpuwright_nodes{state="lost"}) > 0', "0m", "page",
        "A node was silent for longer than lostAfterSeconds; its instances are replaced.",
        "`gpuwright get nodes` shows which; check its agent's log and the machine. Drain it before repairing it.",
    ),
    Alert(
        "ReclaimShort", 'sum(increase(gpuwright_events_total{reason="reclaim_short"}[15m])) > 0', "0m", "page",
        "A service loses capacity when a node is reclaimed: no other place can serve it in time.",
        "`gpuwright events --reason reclaim_short` names the services and what they will lack; rent or start nodes for "
        "them before the deadline that `gpuwright get nodes` shows.",
    ),
    Alert(
        "NodeMismatch", 'sum(gpuwright_nodes{state=~"mismatch|incomplete"}) > 0', "10m", "ticket",
        "A node has other devices than declared, or fewer; nothing is planned on those.",
        "The condition InventoryMismatch names the difference: correct the declaration, or repair the machine.",
    ),
    Alert(
        "GpuUnhealthy", "gpuwright_agent_gpu_healthy == 0", "5m", "ticket",
        "GPU {{ $labels.gpu }} of {{ $labels.instance }} is failed or degraded.",
        "docs/health.md says what to do for each reason.",
    ),
    Alert(
        "ProfileWrong", "gpuwright_profile_correction_ratio > 1.45 or gpuwright_profile_correction_ratio < 0.72", "30m",
        "ticket", "Measurements of {{ $labels.model }}/{{ $labels.variant }} on {{ $labels.gpu_type }} are further "
        "from the profile than a correction may go.",
        "Measure it again and apply the Profile.",
    ),
    Alert(
        "PlanFarFromBound", "gpuwright_plan_gap_ratio > 0.5", "1h", "ticket",
        "The plan may cost half as much again as needed.",
        "Give the solver more seconds. On a fleet of few GPUs the bound is loose; that is no fault.",
    ),
    Alert(
        "DatabasePoolFull",
        'gpuwright_database_pool_connections{state="in_use"} >= ignoring(state) '
        'gpuwright_database_pool_connections{state="size"}',
        "5m", "ticket", "Every connection to the database has been in use for five minutes.",
        "Look for slow statements in the log (`slow_query`), then raise GPUWRIGHT_POOL_SIZE.",
    ),
    Alert(
        "ReportsShed", "sum(rate(gpuwright_reports_shed_total[5m])) > 0", "10m", "page",
        "Node reports are rejected because they cannot be stored.",
        "The label `reason` says why: the database's disk is full, or it is too slow.",
    ),
    Alert(
        "HousekeepingFailing", "sum by (job) (increase(gpuwright_housekeeping_failed_total[1h])) > 3", "0m", "ticket",
        "Housekeeping fails repeatedly: {{ $labels.job }}.",
        "The log says why (`housekeeping_failed`). Until it is fixed, old data stays and the disk fills.",
    ),
    Alert(
        "NodeQuarantined", "max(gpuwright_ledger_quarantined_nodes) > 0", "15m", "ticket",
        "The usage of a node cannot be accounted for; all other nodes' is.",
        "`gpuwright events --reason node_quarantined` names the node and the reason.",
    ),
    Alert(
        "NodeTokenReused", "sum(increase(gpuwright_node_token_reuse_total[1h])) > 0", "0m", "page",
        "A node's token was used again after its successor: it may have been copied.",
        "`gpuwright audit --outcome alarm` names the node. `gpuwright token revoke` each token of it, then "
        "`gpuwright token join --node NAME`, and join it again.",
    ),
)  # fmt: skip

PANELS = (
    Panel("Leaders", "none", (("sum(gpuwright_leader)", "leaders"),), "stat", 3),
    Panel("Plan in force", "none", (("max(gpuwright_plan_generation)", "generation"),), "stat", 3),
    Panel(
        "Cost an hour", "none",
        (("max(gpuwright_plan_cost_per_hour)", "planned"), ("max(gpuwright_held_cost_per_hour)", "held")), "stat", 3,
    ),
    Panel("Gap to the bound", "percentunit", (("max(gpuwright_plan_gap_ratio)", "gap"),), "stat", 3),
    Panel("Releasable an hour", "none", (("max(gpuwright_releasable_per_hour)", "releasable"),), "stat", 4),
    Panel("Unserved", "reqps", (("sum(gpuwright_service_unserved_per_second)", "unserved"),), "stat", 4),
    Panel(
        "Copies not routed", "none",
        (("sum(gpuwright_service_planned_copies) - sum(gpuwright_service_routed_copies)", "missing"),), "stat", 4,
    ),
    Panel("Worst attainment", "percentunit", (("min(gpuwright_slo_attainment_ratio)", "least"),), "stat", 4),
    Panel(
        "Cost against the bound", "none",
        (("max(gpuwright_plan_cost_per_hour)", "cost"), ("max(gpuwright_held_cost_per_hour)", "held"),
         ("max(gpuwright_plan_bound_per_hour)", "bound"),
         ("max(gpuwright_plan_unserved_cost_per_hour)", "of it unserved")),
    ),
    Panel(
        "Asked and planned for", "reqps",
        (("sum(gpuwright_service_asked_per_second)", "asked"),
         ("sum(gpuwright_service_expected_per_second)", "planned for"),
         ("sum(gpuwright_service_unserved_per_second)", "unserved")),
    ),
    Panel(
        "Services furthest from their SLO", "percentunit",
        (("bottomk(10, gpuwright_slo_attainment_ratio)", "{{tenant}}/{{service}}"),),
    ),
    Panel(
        "Burn rates, an hour", "none",
        (('topk(10, gpuwright_slo_burn_rate{window="1h"})', "{{tenant}}/{{service}}"),),
    ),
    Panel(
        "Shed", "percentunit", (("gpuwright_service_shed_ratio > 0", "{{tenant}}/{{service}}"),),
    ),
    Panel(
        "What plans change", "none",
        (('sum by (change) (increase(gpuwright_planned_instance_changes_total{change!="keep"}[5m]))', "{{change}}"),),
    ),
    Panel(
        "Decisions", "none",
        (("sum by (lane, reason) (increase(gpuwright_decisions_total[5m]))", "{{lane}} {{reason}}"),),
    ),
    Panel("Held back", "none", (("sum by (reason) (gpuwright_held_back)", "{{reason}}"),)),
    Panel("Rollouts", "none", (("sum by (state) (increase(gpuwright_rollouts_total[15m]))", "{{state}}"),)),
    Panel(
        "Cycles", "none",
        (("sum by (outcome) (increase(gpuwright_cycles_total[5m]))", "{{outcome}}"),
         ("sum(increase(gpuwright_fallback_plans_total[5m]))", "added by HetSev's greedy")),
    ),
    Panel(
        "Cycle phases, 90 of a hundred", "s",
        (("histogram_quantile(0.9, sum by (le, phase) (rate(gpuwright_cycle_phase_seconds_bucket[15m])))",
          "{{phase}}"),),
    ),
    Panel(
        "Fast lane, 99 of a hundred", "s",
        (("histogram_quantile(0.99, sum by (le) (rate(gpuwright_fast_lane_seconds_bucket[15m])))", "signal to step"),),
    ),
    Panel("Nodes", "none", (("max by (state) (gpuwright_nodes)", "{{state}}"),)),
    Panel("Jobs", "none", (("max by (phase) (gpuwright_jobs)", "{{phase}}"),)),
    Panel(
        "Tenants' cost an hour", "none",
        (("topk(20, max by (tenant) (gpuwright_tenant_cost_per_hour))", "{{tenant}}"),),
    ),
    Panel(
        "Tenants' GPUs", "none",
        (("max by (tenant) (gpuwright_tenant_gpus)", "{{tenant}}"),
         ("max by (tenant) (gpuwright_tenant_guarantee_gpus)", "{{tenant}} guaranteed")),
    ),
    Panel(
        "Budgets spent", "percentunit",
        (("max by (tenant) (gpuwright_tenant_spent / gpuwright_tenant_budget)", "{{tenant}}"),),
    ),
    Panel(
        "Corrections of profiles", "none",
        (("gpuwright_profile_correction_ratio", "{{model}}/{{variant}} on {{gpu_type}}"),),
    ),
    Panel(
        "Alarms", "none",
        (('sum by (reason) (increase(gpuwright_events_total{severity="alarm"}[5m]))', "{{reason}}"),),
    ),
    Panel("Power", "watt", (("sum(DCGM_FI_DEV_POWER_USAGE)", "all GPUs"),)),
    Panel("Utilization of GPUs", "percent", (("avg(DCGM_FI_DEV_GPU_UTIL)", "mean"),)),
    Panel(
        "API, 99 of a hundred", "s",
        (("histogram_quantile(0.99, sum by (le) (rate(gpuwright_request_seconds_bucket[5m])))", "all routes"),),
    ),
    Panel(
        "Database connections", "none",
        (('max by (instance) (gpuwright_database_pool_connections{state="in_use"})', "{{instance}}"),),
    ),
)  # fmt: skip

HEAD = """\
# Monitoring

Written from `scripts/monitoring.py` and the code by `make openapi`; do not edit it.

Every process serves Prometheus metrics: the server at `/metrics` (with a token of no tenant, or
`GPUWRIGHT_OPEN_METRICS=1`), the planner on the loopback port of `GPUWRIGHT_PLANNER_METRICS_PORT`, agents and gateways
at `--metrics HOST:PORT`. `deploy/monitoring/` has

- `gpuwright.rules.yml`, alerts for Prometheus (`rule_files:`), each with its first step as the annotation `runbook`
  and its page as `runbook_url` (replace `gpuwright.example` by the address where you serve these pages),
- `gpuwright-dashboard.json`, a dashboard for Grafana (Dashboards, Import); the import asks for the data source.

Traces of requests and cycles go to the OTLP/HTTP collector of `OTEL_EXPORTER_OTLP_ENDPOINT`, if set. A cycle is one
trace: a span `cycle`, with one span for each phase.

Events (`GET /api/v1/events`) describe what happened, with reasons from a fixed list. Repeats within an hour are
counted.
"""


def main() -> int:
    made = {RULES: rules(), DASHBOARD: json.dumps(dashboard(), indent=1) + "\n", PAGE: "\n".join(page())}
    return write_or_check(made)


def rules() -> str:
    """Prometheus' own format. JSON strings are YAML strings too."""
    lines = ["# Written by scripts/monitoring.py; do not edit it.", "groups:", "  - name: gpuwright", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: Gpuwright{alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.lasts}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: {json.dumps(alert.runbook)}",
            f"          runbook_url: {json.dumps(f'{SITE}/runbooks/{alert.name}/')}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> dict[str, Any]:
    """Returns the dashboard in the form that Grafana imports."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels, x, y, tall = [], 0, 0, 0
    for number, panel in enumerate(PANELS, 1):
        height = 4 if panel.kind == "stat" else 8
        if x + panel.wide > 24 or (tall and height != tall):
            x, y = 0, y + tall
        panels.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": x, "y": y, "w": panel.wide, "h": height},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + at), "datasource": source, "expr": expr, "legendFormat": legend}
                    for at, (expr, legend) in enumerate(panel.queries)
                ],
            }
        )
        x, tall = x + panel.wide, height
    return {
        "__inputs": [
            {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
        ],
        "uid": "gpuwright",
        "title": "gpuwright",
        "tags": ["gpuwright"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "panels": panels,
    }  # fmt: skip


def page() -> Iterator[str]:
    """Yields the lines of docs/monitoring.md: alerts, metrics, reasons."""
    yield HEAD
    yield "## Alerts\n"
    yield "`page` wakes someone, `ticket` waits for working hours.\n"
    rows = (
        (
            f"[Gpuwright{alert.name}](runbooks/{alert.name}.md)",
            alert.severity,
            alert.lasts,
            _plain(alert.summary),
            alert.runbook,
        )
        for alert in ALERTS
    )
    yield from table(("alert", "severity", "for", "meaning", "first step"), rows)
    yield "## Metrics of server and planner\n"
    families = sorted((family.name, family.type, family.documentation) for family in REGISTRY.collect())
    ours = [(f"`{name}{'_total' if kind == 'counter' else ''}`", kind, help_text) for name, kind, help_text in families]
    yield from table(("metric", "kind", "what"), (row for row in ours if "process_" not in row[0]))
    yield "Agents' metrics are in [reference.md](reference.md), gateways' in [gateway.md](gateway.md).\n"
    yield "## Reasons\n"
    yield "Events, decisions, held-back changes and (in CamelCase) conditions use these reasons.\n"
    yield from table(("reason", "severity", "meaning"), ((f"`{r}`", r.severity, r.sentence) for r in Reason))


def _plain(text: str) -> str:
    """Replaces a template's labels by their names."""
    return text.replace("{{ $labels.", "").replace(" }}", "")


if __name__ == "__main__":
    raise SystemExit(main())
