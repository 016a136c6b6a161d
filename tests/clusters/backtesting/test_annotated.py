"""A backtest of workloads that annotations adopt: decided as a scaler decides them, within the same bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main
from clusters.measured import WorkloadSeries
from clusters.metrics.measuring import PrometheusReading
from tests.clusters.backtesting.replays import HOURLY, backtest, falling
from tests.clusters.made_up import Item, scaled_object
from tests.clusters.measured_estate import items
from tests.clusters.savings.fleets import nodes, served


def adopt(found: list[Item], **annotations: str) -> list[Item]:
    """The items, whose Deployments have these annotations beside the name of their service."""
    for item in found:
        if item["kind"] == "Deployment":
            more = {f"gpuwright.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
            item["metadata"]["annotations"] = {"gpuwright.io/service": "a", **more}
    return found


@pytest.mark.parametrize(
    ("annotations", "mean", "last"),
    [
        ({}, 4.0, "2 more for a lost node"),
        ({"max_replicas": "3"}, 3.0, "3 by gpuwright.io/max-replicas"),
        ({"min_replicas": "5"}, 5.0, "5 by the annotations' bounds"),
        ({"max_replicas": "many"}, 0.0, ""),
    ],
)
def test_what_annotations_adopt_is_decided_within_their_bounds(
    annotations: dict[str, str], mean: float, last: str
) -> None:
    estate = adopt([*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"])], **annotations)
    found = backtest(estate, {"a": falling(6, 2)}, HOURLY)
    (workload,) = found.workloads
    assert workload.mean_decided == mean
    assert workload.last_reason.endswith(last)
    assert bool(workload.why_not) == (not last)
    assert all(hour.paid_nano - hour.planned_nano <= hour.limit_nano for hour in found.hours)


def test_a_load_above_what_annotations_allow_saves_no_more_than_the_limit() -> None:
    estate = adopt([*nodes(3, 1), *served("a", ["n0", "n1", "n2"])], max_replicas="1")
    found = backtest(estate, {"a": WorkloadSeries((27.0,) * 144, (3.0,) * 144, (50.0,) * 144)}, HOURLY)
    assert found.hours[-1].planned_nano == 10**10
    assert all(hour.paid_nano - hour.planned_nano <= hour.limit_nano for hour in found.hours)


def test_an_autoscaler_that_is_paused_leaves_an_adopted_workload_to_decisions() -> None:
    [scaled, owned] = scaled_object("shop", "a", 6, 9)
    scaled["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    own = [*nodes(3, 2), *served("a", ["n0", "n0", "n1", "n1", "n2", "n2"]), scaled, owned]
    assert backtest(own, {"a": falling(6, 2)}, HOURLY).workloads[0].why_not == "ScaledObject a is paused"
    found = backtest(adopt(own), {"a": falling(6, 2)}, HOURLY)
    assert found.workloads[0].mean_decided == 4.0
    assert all(hour.paid_nano - hour.planned_nano <= hour.limit_nano for hour in found.hours)


@pytest.mark.slow
def test_the_verb_reads_the_annotations(
    measured: tuple[PrometheusReading, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps(adopt(list(items()), max_replicas="many")))
    assert main(["assess", "-f", str(file), "--prometheus", measured[1], "--backtest", "2h", "-o", "json"]) == 0
    found = {
        each["workload"]: each["notDecided"] for each in json.loads(capsys.readouterr().out)["backtest"]["workloads"]
    }
    assert "its annotations have faults, so nobody knows between which bounds it may be" in found.values(), found
