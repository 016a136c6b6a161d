"""Checks what an agent needs of the cluster that it is a pod of."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from agents.kubernetes.api import Account, ApiAway, ApiRefused, KubernetesApi, Object
from agents.node.gpu_claims import read_offered
from agents.node.gpu_holders import count_given_out, find_other_owner
from agents.node.state_folder import StateFolder
from agents.run.doctor.findings import DoctorFinding, fail, ok, warn
from agents.run.opening import AgentOptions
from agents.runtime import proc


def check_cluster(options: AgentOptions, gpus: int) -> Iterator[DoctorFinding]:
    """Asks the API server what the agent will ask it, and changes nothing; `gpus` are those of this machine."""
    yield _check_processes()
    try:
        api = KubernetesApi(Account(options.account))
        own = f"/api/v1/namespaces/{api.namespace}"
        for path in (f"{own}/pods", f"/apis/apps/v1/namespaces/{api.namespace}/replicasets"):
            api.get(path, limit="1")
        name = read_node_name(options)
        nodes = api.get("/api/v1/nodes", fieldSelector=f"metadata.name={name}").get("items") or () if name else ()
        yield ok("kubernetes", f"the API server answers; copies are pods of namespace {api.namespace}")
        yield from _check_node(api, name, next(iter(nodes), None), gpus)
    except (ApiAway, ValueError) as error:
        advice = "Run the agent as a pod of the chart, with the account of its role `runner`."
        yield fail("kubernetes", str(error), advice)
    except ApiRefused as error:
        yield fail("kubernetes", f"the account may not do what an agent does: {error}", "Give it the role `runner`.")


def _check_node(api: KubernetesApi, name: str, node: Object | None, gpus: int) -> Iterator[DoctorFinding]:
    if node is None:
        some = api.get("/api/v1/nodes", limit="5").get("items") or ()  # of thousands, whose list is too long
        known = ", ".join(str(one["metadata"]["name"]) for one in some)
        advice = "Join with the name that the cluster gives this node, so that its pods are placed here."
        yield fail("cluster node", f"the cluster has no node {name or '(not joined yet)'}; it has {known}", advice)
        return
    offered = read_offered(api, name)
    if why := find_other_owner(node, gpus, offered):
        yield fail("gpu owner", why, "MPS divides a GPU for one owner alone; until then nothing starts on this node.")
    elif offered:
        yield ok("gpu owner", f"pods of ours claim the {len(offered.gpus)} GPUs that DRA gives out")
    elif count_given_out(node):
        yield ok("gpu owner", f"pods of ours hold the {count_given_out(node)} GPUs that the device plugin gives out")
    else:
        yield ok("gpu owner", "nobody gives the GPUs of this node out")
    if (node.get("spec") or {}).get("unschedulable"):
        yield warn("cluster node", f"{name} is unschedulable: plans move everything off it", f"kubectl uncordon {name}")
    else:
        yield ok("cluster node", f"{name} takes pods")


def _check_processes() -> DoctorFinding:
    """Copies are found by their processes, which an agent in a PID namespace of its own does not see."""
    others = sum(1 for _ in proc.list_pids())
    if os.getpid() == 1 or not proc.read("/proc/2/stat").startswith(b"2 (kthreadd"):
        advice = "Set hostPID: true in the agent's pod, as the chart does."
        return warn("host processes", f"{others} processes are seen, and perhaps not those of this machine", advice)
    return ok("host processes", f"all {others} processes of this machine are seen")


def read_node_name(options: AgentOptions) -> str:
    """Returns the name that the cluster gives this node; empty before the agent has joined."""
    try:
        credential = StateFolder(options.folder).credential()
    except (OSError, msgspec.MsgspecError):
        return ""
    if credential is None:
        return ""
    return credential.pod.node if credential.pod else credential.node
