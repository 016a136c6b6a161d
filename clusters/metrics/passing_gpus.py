"""GPUs that jobs and people held at other times, by kube-state-metrics: what nothing scales may come back."""

from __future__ import annotations

from clusters.estate import Estate
from clusters.measured import MeasuredSeries
from clusters.metrics.asking import MetricsReader
from clusters.metrics.renamed_labels import RENAMED, check_renamed, match_own
from clusters.reading.gpu_nodes import GPU_RESOURCE_LABEL

# What pods hold that neither a Deployment nor a StatefulSet, nor what is built of them, has made.
HOLDS = f'kube_pod_container_resource_requests{{resource=~"{GPU_RESOURCE_LABEL}"'
OWNERS = 'kube_pod_owner{owner_kind!~"ReplicaSet|StatefulSet"'
PHASES = 'kube_pod_status_phase{phase=~"Pending|Running"'
BY_POD = "max by (namespace, pod)"
JOINED = "* on (namespace, pod) group_left ()"
LABELS = ("namespace", "pod", "node")
OWN = match_own(*LABELS)


def read_passing_gpus(estate: Estate, reader: MetricsReader, window: str, every: str) -> dict[str, MeasuredSeries]:
    """Returns the most GPUs of each node that pods held at once which nothing scales; PrometheusFailed without answers.

    A step without these metrics is a gap. None tells of claims, so nodes of a DRA driver are left out.
    """
    moved = f'{HOLDS},{RENAMED}node!=""}}'  # their node is that of kube-state-metrics
    known = f'count(kube_pod_owner{{{OWN}}}) and count(kube_pod_status_phase{{phase="Running",{OWN}}})'
    is_seen = reader.read_steps(f"{known} unless count(last_over_time({moved}[{window}]))")
    if not is_seen or is_seen[-1] is None:
        check_renamed(reader, "kube_pod_container_resource_requests", "kube-state-metrics", *LABELS)
    if not is_seen:
        return {}
    # A join of all pods at every minute takes long, so namespaces come first in which such pods ever held a GPU.
    holds, owners = f"{HOLDS},{OWN}}}[{reader.span}]", f"{OWNERS},{OWN}}}[{reader.span}]"
    ever = f"last_over_time({holds}) {JOINED} {BY_POD} (last_over_time({owners}))"
    spaces = sorted(
        {each.labels.get("namespace", "") for each in reader.read_samples(f"count by (namespace) ({ever})")}
    )
    chosen = f'{OWN},namespace=~"{"|".join(spaces)}"'
    if not spaces and not reader.read_samples(f"count(last_over_time({holds}))"):
        return {}  # it has no pod's GPUs at all
    owned, alive = f"{BY_POD} ({OWNERS},{chosen}}})", f"{BY_POD} ({PHASES},{chosen}}} == 1)"
    held = f"sum by (node) ({HOLDS},{chosen}}} {JOINED} {owned} {JOINED} {alive})"
    found = reader.read_by_label(f"max_over_time(({held})[{window}:{every}])", "node") if spaces else {}
    passing = {}
    for node in estate.nodes:
        if node.offers:
            part = float(max(offer.gpus_per_slot for offer in node.offers))
            values = found.get(node.name, {})
            passing[node.name] = tuple(
                None if seen is None else values.get(round(end), 0.0) * part
                for end, seen in zip(reader.ends, is_seen, strict=True)
            )
    return passing
