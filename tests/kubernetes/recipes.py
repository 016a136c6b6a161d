"""What docs/autoscalers.md tells other autoscalers, read from the page itself, and what they make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.scaled import ScalingServer
from tests.kubernetes.server import running_api_server
from tests.support.forked import ROOT

SHOP = ("shop", "ranker")  # the namespace and the workload on the page


@contextmanager
def running_scaling_server(folder: Path) -> Iterator[ScalingServer]:
    """Runs one of a test alone, with controllers: other autoscalers act everywhere and bring their own definitions."""
    folder.mkdir()
    with running_api_server(folder) as server:
        server.start_controllers()
        yield ScalingServer(server)


def recipe(kind: str, name: str, namespace: str = "shop") -> dict[str, Any]:
    """Returns the object of that kind that the page shows, for a workload of another name and namespace."""
    [found] = [item for block in _blocks(name, namespace) for item in block if item.get("kind") == kind]
    found["metadata"]["namespace"] = namespace
    return found


def find_trigger(kind: str, name: str, namespace: str) -> dict[str, Any]:
    """Returns the trigger of KEDA of that kind that the page shows beside its object."""
    [found] = [
        trigger
        for block in _blocks(name, namespace)
        for item in block
        if "kind" not in item
        for trigger in item.get("triggers", ())
        if trigger["type"] == kind
    ]
    assert isinstance(found, dict)
    return found


def _blocks(name: str, namespace: str) -> list[list[dict[str, Any]]]:
    page = (ROOT / "docs" / "autoscalers.md").read_text().replace(SHOP[1], name)
    page = page.replace(f'namespace="{SHOP[0]}"', f'namespace="{namespace}"').replace(f"/{SHOP[0]}/", f"/{namespace}/")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return [[item for item in yaml.safe_load_all(block) if isinstance(item, dict)] for block in blocks]


def make_as_keda(scaled: dict[str, Any]) -> dict[str, Any]:
    """Returns the HPA that KEDA makes of a ScaledObject with one trigger; test_keda_recipe.py asks KEDA itself."""
    name, spec = scaled["metadata"]["name"], scaled["spec"]
    [trigger] = spec["triggers"]
    metric = {
        "name": f"s0-{trigger['type']}", "selector": {"matchLabels": {"scaledobject.keda.sh/name": name}}
    }  # fmt: skip
    told = trigger["metadata"]
    target = {"type": "AverageValue", "averageValue": told.get("threshold") or told["targetValue"]}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}", "namespace": scaled["metadata"]["namespace"]},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]},
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }
