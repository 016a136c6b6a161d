"""What `make kube-conformance` asks of nodes of your cluster that have an agent: that a pod runs there as copies do.

The doctor runs in a pod that is made like the agent's, with its rights, and is gone afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kubernetes.cluster import Cluster, Resource
from tests.support.needs import skip_in_ci_too
from tests.support.patience import until

ONLY_RUNS = ("--metrics=", "--reclaim-file=")  # options of `agent run` that the doctor has not


def write_doctor(agent: Resource, name: str) -> Resource:
    """Returns the pod of a doctor on the node of an agent's pod."""
    spec = agent["spec"]
    (found,) = (one for one in spec["containers"] if one["name"] == "agent")
    words = [word for word in found["args"] if not word.startswith(ONLY_RUNS)]
    assert words[:2] == ["agent", "run"], words
    container = {key: found[key] for key in ("name", "image", "command", "env", "securityContext") if key in found}
    container |= {
        "args": ["agent", "doctor", "--try-copy", "--json", *words[2:]],
        "volumeMounts": found["volumeMounts"],
    }
    kept = (
        "serviceAccountName",
        "automountServiceAccountToken",
        "hostPID",
        "securityContext",
        "tolerations",
        "volumes",
    )
    here = [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": here}]}}
    pod = {key: spec[key] for key in (*kept, "imagePullSecrets", "runtimeClassName") if key in spec}
    pod |= {"containers": [container], "restartPolicy": "Never", "affinity": {"nodeAffinity": required}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}


@contextmanager
def examined(cluster: Cluster, agent: Resource) -> Iterator[list[dict[str, Any]]]:
    """Has what the doctor finds on the agent's node."""
    namespace, name = agent["metadata"]["namespace"], f"doctor-{agent['metadata']['uid'][:8]}"
    cluster.kubectl("-n", namespace, "create", "-f", "-", given=write_doctor(agent, name))
    try:

        def is_over() -> bool:
            pod = cluster.read("-n", namespace, "get", "pod", name)
            return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")

        until(is_over, "the doctor has examined the node", 300.0)
        yield json.loads(cluster.kubectl("-n", namespace, "logs", name))["findings"]
    finally:
        cluster.kubectl("-n", namespace, "delete", "pod", name, "--wait=false")


def test_a_pod_runs_as_copies_do_on_each_node_with_an_agent(cluster: Cluster) -> None:
    labels = "app.kubernetes.io/name=gpuwright,app.kubernetes.io/component=agent"
    agents = cluster.read("get", "pods", "-A", "-l", labels, "--field-selector=status.phase=Running")["items"]
    if not agents:
        skip_in_ci_too("no agent runs in this cluster: install the chart with agent.enabled")
    for agent in agents:
        with examined(cluster, agent) as findings:
            failed = [found for found in findings if found["level"] == "fail"]
            assert failed == [], agent["spec"]["nodeName"]
