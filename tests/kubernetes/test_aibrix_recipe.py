"""AIBrix itself follows the desired replicas of `gpuwright scaler`, as an external metric of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.kubernetes.programs import DEFINITIONS
from tests.kubernetes.metrics_adapter import serving_metrics
from tests.kubernetes.recipes import recipe, running_scaling_server
from tests.kubernetes.scaled import ScalingServer, adopted_deployment
from tests.kubernetes.scalers import scaled_place
from tests.kubernetes.server import launch
from tests.support.needs import need_follower
from tests.support.patience import until
from tests.support.ports import free_port

pytestmark = pytest.mark.slow
NAMES = ("ranker", "tagger", "embedder")


@contextmanager
def running_aibrix(server: ScalingServer, program: Path, folder: Path) -> Iterator[Path]:
    """Runs its controller of PodAutoscalers alone, and yields what it logs; their definition is beside the program."""
    definition, log = program.parent / DEFINITIONS / "autoscaling.aibrix.ai_podautoscalers.yaml", folder / "aibrix.log"
    server.cluster.kubectl("create", "-f", str(definition))
    server.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    process = launch(
        log, program, f"--kubeconfig={server.server.admin}", "--controllers=pod-autoscaler-controller",
        "--disable-webhook", f"--metrics-bind-address=127.0.0.1:{free_port()}",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
    )  # fmt: skip
    try:
        until(lambda: "Starting workers" in log.read_text(), lambda: f"AIBrix: {log.read_text()[-3000:]}")
        yield log
    finally:
        process.kill()
        process.wait()


def test_aibrix_takes_twelve_to_thirteen_and_two_to_one_and_counts_an_address_as_none(
    database_url: str, tmp_path: Path
) -> None:
    program = need_follower("aibrix-controller-manager", "the program of AIBrix's image, with its definitions")
    with (
        running_scaling_server(tmp_path / "server") as server,
        running_aibrix(server, program, tmp_path) as log,
        scaled_place(server, database_url, tmp_path, NAMES) as place,
    ):
        place.put(
            adopted_deployment("ranker", 12, mode="advisory", min_replicas="13"),
            adopted_deployment("tagger", 2, mode="advisory", max_replicas="1"),
            adopted_deployment("embedder", 12, mode="advisory", min_replicas="13"),
        )
        scaler = place.start()
        until(lambda: set(place.rows()) == set(NAMES), scaler.lines)
        until(lambda: scaler.gauge() == {"ranker": 13.0, "tagger": 1.0, "embedder": 13.0}, scaler.lines)
        followed = [recipe("PodAutoscaler", name, place.namespace) for name in NAMES]
        followed[2]["spec"]["metricsSources"] = [by_address(place.namespace, scaler.port)]
        with serving_metrics(server.cluster, tmp_path, scaler.metrics):
            place.server.put(place.namespace, *followed)
            until(lambda: place.replicas("ranker") == 13, lambda: log.read_text()[-3000:])
            until(lambda: place.replicas("tagger") == 1, lambda: log.read_text()[-3000:])
            until(lambda: place.replicas("embedder") < 12, lambda: log.read_text()[-3000:])  # it wants 13
            until(lambda: program.name in place.rows()["ranker"].hold, place.rows)

            scaler.kill()
            said = log.stat().st_size
            failed = f"all 1 metric sources failed for PodAutoscaler {place.namespace}/ranker"
            until(lambda: failed in log.read_text()[said:], lambda: log.read_text()[-3000:])
            assert place.replicas("ranker") == 13  # no gauge is not a gauge of 0


def by_address(namespace: str, port: int) -> dict[str, Any]:
    """Returns a source of a metric that AIBrix does not know, at the scaler's own address."""
    return {
        "metricSourceType": "external",
        "protocolType": "http",
        "endpoint": f"127.0.0.1:{port}",
        "path": f"/metrics/{namespace}/Deployment/embedder",
        "targetMetric": "gpuwright_desired_replicas",
        "targetValue": "1",
    }
