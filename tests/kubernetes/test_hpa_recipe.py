"""An HPA of Kubernetes' own controller follows the desired replicas of `gpuwright scaler`, with a tolerance of 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from app.store.plans.scale_rows import ScaleState
from tests.kubernetes.metrics_adapter import serving_metrics
from tests.kubernetes.recipes import make_as_keda, recipe
from tests.kubernetes.scaled import ScalingServer, adopted_deployment
from tests.kubernetes.scalers import scaled_place
from tests.support.patience import until

pytestmark = pytest.mark.slow


def read_samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_twelve_become_thirteen_by_the_recipes_for_hpa_and_keda_and_not_without_their_tolerance(
    scaling_server: ScalingServer, database_url: str, tmp_path: Path
) -> None:
    scaling_server.server.start_controllers()
    with scaled_place(scaling_server, database_url, tmp_path, ("ranker", "tagger")) as place:
        names = ("ranker", "tagger")
        followed = recipe("HorizontalPodAutoscaler", "ranker", place.namespace)
        hpas = [followed, make_as_keda(recipe("ScaledObject", "tagger", place.namespace))]
        place.put(*(adopted_deployment(name, 12, mode="advisory", min_replicas="13") for name in names))
        scaler = place.start()
        until(lambda: set(place.rows()) == set(names), scaler.lines)
        until(lambda: scaler.gauge() == dict.fromkeys(names, 13.0), scaler.lines)

        def read(what: str) -> dict[str, Any]:
            found: dict[str, Any] = scaling_server.cluster.read("-n", place.namespace, "get", what)["status"]
            return found

        def has_read(hpa: dict[str, Any]) -> bool:
            """Returns whether the HPA's controller has seen 13 for 12 replicas."""
            [metric] = read(f"hpa/{hpa['metadata']['name']}").get("currentMetrics") or [{}]
            return bool(metric.get("external", {}).get("current", {}).get("averageValue") == "1084m")

        with serving_metrics(scaling_server.cluster, tmp_path, scaler.metrics) as adapter:
            until(lambda: all(read(f"deployment/{name}").get("replicas") == 12 for name in names), "pods")
            for hpa in hpas:
                place.server.put(place.namespace, {**hpa, "spec": {**hpa["spec"], "behavior": {}}})
            until(lambda: all(map(has_read, hpas)), "the HPAs have read their metric")
            before = adapter.asked
            until(lambda: adapter.asked >= before + 6, "three more rounds of the HPAs' controller")
            assert [place.replicas(name) for name in names] == [12, 12]  # 13 is within a tenth of 12
            until(lambda: {row.state for row in place.rows().values()} == {ScaleState.HELD}, "the HPAs own them")
            assert all(row.hold.startswith("HPA ") for row in place.rows().values())
            assert scaler.gauge() == dict.fromkeys(names, 13.0)
            [line] = read_samples(scaler.metrics(f"/metrics/{place.namespace}/Deployment/ranker"))
            assert line.startswith("gpuwright_desired_replicas{") and line.endswith("} 13.0")
            with pytest.raises(HTTPError, match="404"):
                scaler.metrics(f"/metrics/{place.namespace}/StatefulSet/ranker")

            for hpa in hpas:
                scaling_server.cluster.kubectl("replace", "-f", "-", given=hpa)
            until(lambda: [place.replicas(name) for name in names] == [13, 13], "thirteen of both")
            scaling_server.cluster.kubectl("-n", place.namespace, "delete", "hpa", "--all")
            until(
                lambda: (
                    {row.hold.split(" before")[0] for row in place.rows().values()}
                    == {"kube-controller-manager set its replicas at an unknown time"}
                ),
                lambda: f"what HPAs wrote is quiet for ten minutes: {place.rows()}",
            )
