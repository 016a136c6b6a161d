"""KEDA itself follows the desired replicas of `gpuwright scaler`, from Prometheus and from the scaler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.store.plans.scale_rows import ScaleState
from tests.kubernetes.audit import Audit
from tests.kubernetes.keda import running_keda
from tests.kubernetes.recipes import find_trigger, make_as_keda, recipe, running_scaling_server
from tests.kubernetes.scaled import adopted_deployment
from tests.kubernetes.scalers import scaled_place
from tests.kubernetes.server import ADMIN
from tests.support.needs import need_follower
from tests.support.patience import until
from tests.support.prometheus import Prometheus

pytestmark = pytest.mark.slow
NAMES = ("ranker", "tagger")


def test_keda_takes_twelve_to_thirteen_and_not_without_tolerance_and_hands_over_when_it_is_paused(
    database_url: str, tmp_path: Path
) -> None:
    operator = need_follower("keda-operator", "make kubernetes ARGS=keda builds it with Go")
    with (
        running_scaling_server(tmp_path / "server") as server,
        running_keda(server, operator, tmp_path / "keda") as log,
        scaled_place(server, database_url, tmp_path, NAMES) as place,
    ):
        kubectl = server.cluster.kubectl
        place.put(*(adopted_deployment(name, 12, mode="advisory", min_replicas="13") for name in NAMES))
        scaler = place.start()
        until(lambda: set(place.rows()) == set(NAMES), scaler.lines)
        until(lambda: scaler.gauge() == dict.fromkeys(NAMES, 13.0), scaler.lines)
        prometheus = Prometheus(tmp_path, [scaler.port])

        def read(what: str) -> dict[str, Any]:
            found: dict[str, Any] = server.cluster.read("-n", place.namespace, "get", what)
            return found

        def seen(name: str) -> dict[str, Any]:
            """Returns what the HPA of a ScaledObject has read last."""
            found = kubectl("-n", place.namespace, "get", f"hpa/keda-hpa-{name}", "--ignore-not-found", "-o", "json")
            [metric] = json.loads(found)["status"].get("currentMetrics") or [{}] if found else [{}]
            current: dict[str, Any] = metric.get("external", {}).get("current", {})
            return current

        try:
            prometheus.start()
            by_prometheus, by_scaler = (recipe("ScaledObject", name, place.namespace) for name in NAMES)
            [asked] = by_prometheus["spec"]["triggers"]
            asked["metadata"]["serverAddress"] = prometheus.url
            direct = find_trigger("metrics-api", "tagger", place.namespace)
            direct["metadata"]["url"] = direct["metadata"]["url"].replace(
                "gpuwright-scaler.gpuwright:9402", f"127.0.0.1:{scaler.port}"
            )
            by_scaler["spec"]["triggers"] = [direct]
            scaled = [by_prometheus, by_scaler]
            until(lambda: all(read(f"deployment/{name}")["status"].get("replicas") == 12 for name in NAMES), "pods")

            for each in scaled:
                server.put(place.namespace, {**each, "spec": {**each["spec"], "advanced": {}}})
            until(
                lambda: all(seen(name).get("averageValue") == "1084m" for name in NAMES),
                lambda: f"both HPAs have read 13 for 12 replicas: {log.read_text()[-3000:]}",
            )
            wait_for_rounds(server.server.audit)
            assert [place.replicas(name) for name in NAMES] == [12, 12]  # 13 is within a tenth of 12
            until(lambda: {row.state for row in place.rows().values()} == {ScaleState.HELD}, "KEDA owns them")
            assert all(row.hold.startswith("KEDA's ScaledObject ") for row in place.rows().values())

            for each in scaled:
                kubectl("-n", place.namespace, "patch", f"scaledobject/{each['metadata']['name']}", "--type=merge",
                        "-p", json.dumps({"spec": each["spec"]}))  # fmt: skip
            until(lambda: [place.replicas(name) for name in NAMES] == [13, 13], lambda: log.read_text()[-3000:])
            made, expected = read("hpa/keda-hpa-ranker")["spec"], make_as_keda(by_prometheus)["spec"]
            for direction, rules in expected["behavior"].items():
                assert made["behavior"][direction].items() >= rules.items()
            assert {**made, "behavior": expected["behavior"]} == expected

            scaler.kill()
            until(lambda: not any(map(is_active, (read(f"hpa/keda-hpa-{name}") for name in NAMES))), "both see nothing")
            wait_for_rounds(server.server.audit)
            assert [place.replicas(name) for name in NAMES] == [13, 13]  # no gauge is not a gauge of 0
            place.start()

            annotate = ("-n", place.namespace, "annotate", "--overwrite", "scaledobject/ranker")
            kubectl(*annotate, "autoscaling.keda.sh/paused-replicas=10")
            until(lambda: place.replicas("ranker") == 10, lambda: log.read_text()[-3000:])
            until(lambda: "is paused at 10 replicas" in place.rows()["ranker"].hold, place.rows)
            kubectl(*annotate, "autoscaling.keda.sh/paused-replicas-", "autoscaling.keda.sh/paused=true")
            until(lambda: "KEDA" not in place.rows()["ranker"].hold, place.rows)
            assert not kubectl("-n", place.namespace, "get", "hpa/keda-hpa-ranker", "--ignore-not-found")
            assert place.replicas("ranker") == 10
        finally:
            prometheus.close()


def wait_for_rounds(audit: Audit) -> None:
    """Waits until the HPAs' controller has asked for metrics, of both, three times more."""
    mark = audit.mark()
    until(lambda: sum(asked.resource.startswith("s0-") for asked in audit.requests(ADMIN, mark)) >= 6, "three rounds")


def is_active(hpa: dict[str, Any]) -> bool:
    return any(
        each["type"] == "ScalingActive" and each["status"] == "True" for each in hpa["status"].get("conditions", ())
    )
