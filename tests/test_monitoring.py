"""What monitors us asks for metrics that exist, and every alert says what to do first."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.run.metrics import families
from agents.run.view import AgentView
from app.control.domain.events import reason_of
from app.http.metrics import REGISTRY
from scripts import monitoring

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"\b(?:gpuwright|DCGM)_\w+")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def series() -> set[str]:
    """Every name that is served by a server, a planner or an agent."""
    ours = {f"{one.name}{end}" for one in REGISTRY.collect() for end in SUFFIXES.get(one.type, ("",))}
    return ours | {one.name for one in families(AgentView("node"))}


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(monitoring.rules())["groups"][0]["rules"]
    return found


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_exists_and_says_what_to_do(rule: dict[str, Any]) -> None:
    asked = set(NAME.findall(rule["expr"]))
    assert asked
    assert asked <= series()
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook"].endswith(".") or "`" in rule["annotations"]["runbook"]


def test_every_panel_asks_for_what_exists_and_overlaps_no_other() -> None:
    panels = monitoring.dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        for target in panel["targets"]:
            asked = set(NAME.findall(target["expr"]))
            assert asked, panel["title"]
            assert asked <= series(), panel["title"]
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_reasons_that_the_runbook_names_exist() -> None:
    text = " ".join(rule["expr"] + rule["annotations"]["runbook"] for rule in rules())
    for word in re.findall(r'reason="(\w+)"|the event `(\w+)`', text):
        assert reason_of(word[0] or word[1]), word


def test_each_kept_file_is_what_its_reader_expects() -> None:
    assert yaml.safe_load(monitoring.RULES.read_text())["groups"]
    assert json.loads(monitoring.DASHBOARD.read_text())["uid"] == "gpuwright"


@pytest.mark.needs("promtool", "prometheus")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(monitoring.rules())
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


FIRING = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'gpuwright_slo_burn_rate{tenant="shop", service="bad", window="1h"}', values: '20x20'}
      - {series: 'gpuwright_slo_burn_rate{tenant="shop", service="bad", window="5m"}', values: '20x20'}
      - {series: 'gpuwright_slo_burn_rate{tenant="shop", service="over", window="1h"}', values: '20x20'}
      - {series: 'gpuwright_slo_burn_rate{tenant="shop", service="over", window="5m"}', values: '1x20'}
      - {series: 'gpuwright_slo_attainment_ratio{tenant="lab", service="half"}', values: '0.4x20'}
      - {series: 'gpuwright_leader{instance="a"}', values: '1x5 0x15'}
      - {series: 'gpuwright_leader{instance="b"}', values: '0x20'}
      - {series: 'gpuwright_scaler_leader{instance="a"}', values: '1x5 _x30'}
      - {series: 'gpuwright_scaler_leader{instance="b"}', values: '0x5 1x4 _x30'}
      - {series: 'gpuwright_scale_decided_timestamp_seconds{instance="a"}', values: '60x30'}
      - {series: 'gpuwright_scaler_failed_total{task="step"}', values: '0x10 1 2 3 4 5x20'}
      - {series: 'gpuwright_scale_writes_total{outcome="refused"}', values: '0 1 2 3 4 5 6 7 8 9 10 11 12x20'}
      - {series: 'gpuwright_cycles_total{outcome="crashed"}', values: '0x5 1 2 3x13'}
      - {series: 'gpuwright_tenant_spent{tenant="shop"}', values: '99x10 100x10'}
      - {series: 'gpuwright_tenant_budget{tenant="shop"}', values: '100x20'}
      - {series: 'gpuwright_events_total{reason="reclaim_short", severity="alarm"}', values: '0x8 1x30'}
      - {series: 'gpuwright_events_total{reason="node_lost", severity="alarm"}', values: '0x2 1x30'}
      - {series: 'gpuwright_service_routed_copies{tenant="shop", service="dead"}', values: '2x10 0x30'}
      - {series: 'gpuwright_service_planned_copies{tenant="shop", service="dead"}', values: '2x40'}
      - {series: 'gpuwright_service_expected_per_second{tenant="shop", service="dead"}', values: '9x40'}
      - {series: 'gpuwright_service_routed_copies{tenant="shop", service="short"}', values: '2x10 1x30'}
      - {series: 'gpuwright_service_planned_copies{tenant="shop", service="short"}', values: '2x40'}
      - {series: 'gpuwright_rolling_since_timestamp_seconds{instance="a"}', values: '60x40'}
    alert_rule_test:
      - eval_time: 10m
        alertname: GpuwrightServiceDown
        exp_alerts: []
      - eval_time: 12m
        alertname: GpuwrightServiceDown
        exp_alerts: [{exp_labels: {severity: page, tenant: shop, service: dead}}]
      - eval_time: 22m
        alertname: GpuwrightCopiesMissing
        exp_alerts:
          - {exp_labels: {severity: ticket, tenant: shop, service: dead}}
          - {exp_labels: {severity: ticket, tenant: shop, service: short}}
      - eval_time: 5m
        alertname: GpuwrightNoLeader
        exp_alerts: []
      - eval_time: 10m
        alertname: GpuwrightNoLeader
        exp_alerts: [{exp_labels: {severity: page}}]
      - eval_time: 9m
        alertname: GpuwrightScalerNoLeader
        exp_alerts: []
      - eval_time: 18m
        alertname: GpuwrightScalerNoLeader
        exp_alerts: [{exp_labels: {severity: page}}]
      - eval_time: 6m
        alertname: GpuwrightScalerStalled
        exp_alerts: []
      - eval_time: 9m
        alertname: GpuwrightScalerStalled
        exp_alerts: [{exp_labels: {severity: page}}]
      - eval_time: 10m
        alertname: GpuwrightScalerFailing
        exp_alerts: []
      - eval_time: 16m
        alertname: GpuwrightScalerFailing
        exp_alerts: [{exp_labels: {severity: page, task: step}}]
      - eval_time: 10m
        alertname: GpuwrightScalesRefused
        exp_alerts: []
      - eval_time: 23m
        alertname: GpuwrightScalesRefused
        exp_alerts: [{exp_labels: {severity: ticket}}]
      - eval_time: 10m
        alertname: GpuwrightSolverFailing
        exp_alerts: [{exp_labels: {severity: page}}]
      - eval_time: 10m
        alertname: GpuwrightSloBurnsFast
        exp_alerts:
          - {exp_labels: {severity: page, tenant: shop, service: bad, window: 1h}}
          - {exp_labels: {severity: page, tenant: lab, service: half}}
      - eval_time: 10m
        alertname: GpuwrightTenantOverBudget
        exp_alerts: []
      - eval_time: 18m
        alertname: GpuwrightTenantOverBudget
        exp_alerts: [{exp_labels: {severity: ticket, tenant: shop}}]
      - eval_time: 8m
        alertname: GpuwrightReclaimShort
        exp_alerts: []
      - eval_time: 10m
        alertname: GpuwrightReclaimShort
        exp_alerts: [{exp_labels: {severity: page}}]
      - eval_time: 31m
        alertname: GpuwrightRolloutLong
        exp_alerts: []
      - eval_time: 32m
        alertname: GpuwrightRolloutLong
        exp_alerts: [{exp_labels: {severity: ticket}}]
"""


@pytest.mark.slow
@pytest.mark.needs("promtool", "prometheus")
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    bare = yaml.safe_load(monitoring.rules())
    for rule in bare["groups"][0]["rules"]:
        del rule["annotations"]  # said again in full, a test of rules would be as long as the rules
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(bare))
    (tmp_path / "firing.yml").write_text(FIRING)
    done = subprocess.run(["promtool", "test", "rules", "firing.yml"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
