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
from cli.scaler import measures as scaler  # noqa: E402
from scripts.alerts import ALERTS  # noqa: E402
from scripts.generated import table, write_or_check  # noqa: E402

assert planner and metrics and scaler  # they register their metrics
FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "gpuwright.rules.yml"
DASHBOARD = FOLDER / "gpuwright-dashboard.json"
PAGE = ROOT / "docs" / "monitoring.md"
SITE = "https://gpuwright.example/docs"  # where `mkdocs build` of docs/ is served; yours


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard: its queries, and the names of its series."""

    title: str
    unit: str  # Grafana's
    queries: tuple[tuple[str, str], ...]  # (expression, legend)
    kind: str = "timeseries"  # or stat
    wide: int = 8  # of 24


CHOSEN = '{tenant="$tenant", service="$service"}'
BUCKETS = f"sum by (le) (rate(gpuwright_service_latency_seconds_bucket{CHOSEN}[5m]))"
PARTS = {0.5: "50 of a hundred", 0.95: "95 of a hundred", 0.99: "99 of a hundred"}
VARIABLES = {  # of the dashboard: those of its panels that name a service
    "tenant": "label_values(gpuwright_slo_latency_seconds, tenant)",
    "service": 'label_values(gpuwright_slo_latency_seconds{tenant="$tenant"}, service)',
}
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
        "Latencies of $tenant/$service", "s",
        (*((f"histogram_quantile({part}, {BUCKETS})", legend) for part, legend in PARTS.items()),
         (f"max(gpuwright_slo_latency_seconds{CHOSEN})", "promised")),
    ),
    Panel(
        "Within the SLO, of $tenant/$service", "percentunit",
        ((f"max(gpuwright_slo_attainment_ratio{CHOSEN})", "attained in an hour"),
         (f"max(gpuwright_slo_target_ratio{CHOSEN})", "promised")),
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

## Exemplars and percentiles

Server and planner answer in OpenMetrics if the header `Accept` names `application/openmetrics-text`, as that of
Prometheus does. Only this answer has exemplars, one for each bucket of a histogram:

| buckets of | name |
|---|---|
| `gpuwright_service_latency_seconds` | the plan in force at its last answer: `generation` |
| `gpuwright_fast_lane_seconds` | the plan that the step made: `generation` |
| `gpuwright_cycle_phase_seconds` | the plan that `cycle` made or kept: `generation`; each phase's `trace_id` |
| `gpuwright_request_seconds` | the request, as in the log: `request_id`; its `trace_id` |

`trace_id` needs a collector of traces. Prometheus keeps exemplars if it runs with `--enable-feature=exemplar-storage`.

The percentile of a service's latency, and the line that its SLO promises:

```text
histogram_quantile(0.99, sum by (le) (
  rate(gpuwright_service_latency_seconds_bucket{tenant="shop", service="search"}[5m])))
max(gpuwright_slo_latency_seconds{tenant="shop", service="search"})
```

A bucket ends 1.47 times as late as the one before it. The buckets count what the SLO counts. A new leader counts from
zero, as `rate` expects of a new process. The view [`report.latency`](sql.md) reads finer buckets.
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
        "templating": {
            "list": [
                {"name": name, "type": "query", "datasource": source, "definition": query,
                 "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1}
                for name, query in VARIABLES.items()
            ]
        },
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
