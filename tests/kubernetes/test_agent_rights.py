"""What an agent's token may do in a cluster: for its own node, what the runtime of pods does, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agents.kubernetes.api import STRATEGIC, ApiRefused, KubernetesApi
from agents.kubernetes.names import GATE, NODE, PART, hash_copy, name_claim
from agents.node.gpu_claims import write_claim
from agents.runtime import Launch
from agents.runtime.replica_set import PodSettings, write_holder, write_replica_set
from agents.templates import Filled
from tests.kubernetes.accounts import READS_NODES, RUNS
from tests.kubernetes.agent_pods import bind_token, open_as, put_pod
from tests.kubernetes.cluster import Cluster, Resource, User
from tests.kubernetes.installed import Installed
from tests.support.helm import EVERYTHING
from tests.support.patience import until

pytestmark = pytest.mark.slow

# Runtimes are tested with these.
RIGHTS = {
    (verb, f"{resource}.{group}".rstrip("."))
    for group, resource, verbs in (*RUNS, *READS_NODES)
    for verb in verbs.split(",")
}
DENIED = (
    "get secrets", "list secrets", "get configmaps", "create pods", "patch pods", "delete pods",
    "create pods --subresource=exec", "create pods --subresource=attach", "create pods --subresource=eviction",
    "create pods --subresource=binding", "patch pods --subresource=ephemeralcontainers", "deletecollection pods",
    "create serviceaccounts --subresource=token", "update replicasets.apps", "deletecollection replicasets.apps",
    "create deployments.apps", "patch daemonsets.apps", "create jobs.batch", "patch poddisruptionbudgets.policy",
    "get resourceclaims.resource.k8s.io", "patch resourceclaims.resource.k8s.io",
    "delete resourceclaims.resource.k8s.io", "patch resourceclaims.resource.k8s.io --subresource=status",
    "create resourceclaimtemplates.resource.k8s.io", "create resourceslices.resource.k8s.io",
    "create rolebindings.rbac.authorization.k8s.io", "patch nodes", "get nodes --subresource=proxy", "delete nodes",
    "create tokenreviews.authentication.k8s.io", "impersonate users",
)  # fmt: skip


class Agents:
    """The chart with an agent on each of two nodes, which has the token of its pod."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = installed.cluster, installed.nodes, folder
        self.account = f"{installed.name}-runner"
        self.user, self.own = self._start("node-1")
        _, self.foreign = self._start("node-2")

    def _start(self, node: str) -> tuple[User, KubernetesApi]:
        put_pod(self.cluster, self.namespace, f"agent-{node}", node, self.account)
        token = bind_token(self.cluster, self.namespace, f"agent-{node}")
        user = self.cluster.log_in(self.namespace, self.account, token)
        return user, open_as(user, self.folder / node)

    def path(self, copy: str = "") -> str:
        root = f"/apis/apps/v1/namespaces/{self.namespace}/replicasets"
        return f"{root}/copy-{hash_copy(copy)}" if copy else root

    def pod_path(self, pod: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}"

    def put_copy(self, name: str, node: str) -> None:
        """Makes the pod of a copy on its node, as controller and scheduler do."""
        template = copy_of(name, node)["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}
        made = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        self.cluster.kubectl("-n", self.namespace, "create", "-f", "-", given=made)

    def patch_status(self, agent: KubernetesApi, pod: str, **status: object) -> None:
        agent.patch(f"{self.pod_path(pod)}/status", {"status": status}, STRATEGIC)

    def open_gate(self, agent: KubernetesApi, pod: str) -> None:
        self.patch_status(agent, pod, conditions=[{"type": GATE, "status": "True", "reason": "Verified"}])


def copy_of(name: str, node: str) -> Resource:
    """Returns the ReplicaSet that an agent writes for a copy with a share of a GPU and with files."""
    filled = Filled("serve", ("serve", "--port", "8000"), {"A": "b"}, folders=("/var/lib/gpuwright/models:ro",))
    pipes = "/var/lib/gpuwright-agent/mps/GPU-1"
    limits = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
    launch = Launch(name, "GPU-1", filled, 8000, limits, (pipes, *filled.folders))
    return write_replica_set(launch, settings_of(node), claims=[name_claim(node, "GPU-1")])


def settings_of(node: str) -> PodSettings:
    roots = ("/var/lib/gpuwright-agent/mps", "/var/lib/gpuwright/models")
    return PodSettings(node, 64820, 64820, "registry.example/gpuwright-agent:1", roots=roots)


@pytest.fixture(scope="module")
def agents(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    namespace = cluster.make_namespace("rights")
    folder = tmp_path_factory.mktemp("helm")
    installed = Installed(cluster, folder, namespace)
    installed.run("install", {"agent": {**EVERYTHING["agent"], "secrets": ["hub"]}, "migrate": {"enabled": False}})
    made = Agents(installed, folder)

    def are_in_force() -> bool:
        try:
            made.own.create(f"{made.path()}?dryRun=All", copy_of("tried", "node-2"))
        except ApiRefused as refused:
            return "of its own node alone" in str(refused)
        return False

    until(are_in_force, "the policies are in force")
    yield made
    installed.remove()
    cluster.remove_namespace(namespace)


def test_an_agent_has_the_rights_that_its_runtime_uses_and_no_others(agents: Agents) -> None:
    nobody = agents.cluster.add_user(agents.namespace, "nobody")
    assert agents.cluster.list_rights(agents.user) - agents.cluster.list_rights(nobody) == RIGHTS
    assert [words for words in DENIED if agents.cluster.may(agents.user, *words.split())] == []
    assert agents.cluster.may(agents.user, "create", "replicasets.apps")


def test_an_agent_runs_a_copy_on_its_node_opens_its_gate_and_ends_it(agents: Agents) -> None:
    agents.own.create(agents.path(), copy_of("mine", "node-1"))
    agents.put_copy("mine", "node-1")
    agents.open_gate(agents.own, "mine")
    found = agents.cluster.read("-n", agents.namespace, "get", "pod", "mine")["status"]["conditions"]
    assert [each["status"] for each in found if each["type"] == GATE] == ["True"]
    agents.own.patch(agents.path("mine"), {"spec": {"replicas": 0}})
    agents.own.delete(agents.path("mine"), {"propagationPolicy": "Background"})


def test_an_agent_holds_the_gpus_of_its_node_and_of_no_other(agents: Agents) -> None:
    priority = f"{agents.account.removesuffix('-runner')}-gpus"
    agents.own.create(agents.path(), write_holder("0", replace(settings_of("node-1"), priority_class=priority)))
    with pytest.raises(ApiRefused, match="of its own node alone"):
        agents.own.create(agents.path(), write_holder("1", settings_of("node-2")))


def test_an_agent_claims_whole_gpus_of_its_node_and_nothing_else(agents: Agents) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{agents.namespace}/resourceclaims"
    agents.own.create(path, write_claim("node-1", "GPU-1", {}))

    def refuse(wanted: str, made: Resource) -> None:
        with pytest.raises(ApiRefused, match=wanted):
            agents.own.create(f"{path}?dryRun=All", made)

    refuse("of its own node alone", write_claim("node-2", "GPU-2", {}))
    for other in ("node-2", "node-1.gpu-2"):
        named = write_claim("node-1", "GPU-2", {})
        named["metadata"]["name"] = name_claim(other, "GPU-2")
        refuse("of its own node alone", named)
    changes: tuple[Resource, ...] = (
        {"count": 2},
        {"adminAccess": True},
        {"allocationMode": "All", "count": 0},
        {"deviceClassName": "mig.nvidia.com"},
    )
    for change in changes:
        more = write_claim("node-1", "GPU-2", {})
        more["spec"]["devices"]["requests"][0]["exactly"].update(change)
        refuse("one whole GPU|admin access to devices requires", more)
    shared = write_claim("node-1", "GPU-2", {})
    shared["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {}}}]
    refuse("one whole GPU", shared)


def test_a_stolen_token_marks_no_pod_of_another_node_ready_and_changes_nothing_there(agents: Agents) -> None:
    agents.foreign.create(agents.path(), copy_of("theirs", "node-2"))
    agents.put_copy("theirs", "node-2")
    ours = {"metadata": {"labels": {NODE: "node-1"}}}
    for act in (
        lambda: agents.open_gate(agents.own, "theirs"),
        lambda: agents.own.create(agents.path(), copy_of("new", "node-2")),
        lambda: agents.own.patch(agents.path("theirs"), {"spec": {"replicas": 0}}),
        lambda: agents.own.patch(agents.path("theirs"), {**ours, "spec": {"template": ours}}),
        lambda: agents.own.delete(agents.path("theirs")),
    ):
        with pytest.raises(ApiRefused, match=r"the agent of node node-1 writes .* of its own node alone"):
            act()
    with pytest.raises(ApiRefused, match="forbidden"):
        agents.own.delete(agents.pod_path("theirs"))
    agents.open_gate(agents.foreign, "theirs")


def test_a_token_that_is_bound_to_no_node_writes_nothing(agents: Agents) -> None:
    unbound = open_as(agents.cluster.log_in(agents.namespace, agents.account), agents.folder / "unbound")
    agents.own.create(agents.path(), copy_of("waits", "node-1"))
    agents.put_copy("waits", "node-1")
    for act in (
        lambda: unbound.create(agents.path(), copy_of("unbound", "node-1")),
        lambda: unbound.patch(agents.path("waits"), {"spec": {"replicas": 0}}),
        lambda: unbound.delete(agents.path("waits")),
        lambda: agents.open_gate(unbound, "waits"),
    ):
        with pytest.raises(ApiRefused, match="bound to no pod on a node"):
            act()


def test_of_a_pod_of_its_node_an_agent_changes_the_gate_alone_and_only_of_copies(agents: Agents) -> None:
    agents.put_copy("plain", "node-1")
    statuses: tuple[dict[str, object], ...] = (
        {"phase": "Succeeded"},
        {"podIPs": [{"ip": "10.9.9.9"}], "podIP": "10.9.9.9"},
        {"conditions": [{"type": "Ready", "status": "True"}]},
        {"containerStatuses": [{"name": "copy", "ready": True, "restartCount": 0, "image": "a", "imageID": "a"}]},
    )
    for status in statuses:
        with pytest.raises(ApiRefused, match="and nothing else"):
            agents.patch_status(agents.own, "plain", **status)
    for metadata in ({"labels": {PART: "holder"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.example/b"]}):
        with pytest.raises(ApiRefused, match="and nothing else"):
            agents.own.patch(f"{agents.pod_path('plain')}/status", {"metadata": metadata})
    with pytest.raises(ApiRefused, match="copies of its own node alone"):
        agents.open_gate(agents.own, "agent-node-1")
    agents.open_gate(agents.own, "plain")


def pod_of(made: Resource) -> Resource:
    found: Resource = made["spec"]["template"]["spec"]
    return found


def add_volume(made: Resource, **volume: object) -> None:
    pod_of(made)["volumes"].append({"name": "more", **volume})


def add_folder(made: Resource, path: str) -> None:
    add_volume(made, hostPath={"path": path})


def claim(made: Resource, **named: str) -> None:
    pod_of(made)["resourceClaims"] = [{"name": "gpu-0", **named}]


def labels_of(made: Resource) -> Resource:
    found: Resource = made["spec"]["template"]["metadata"]["labels"]
    return found


def change_container(made: Resource, **changes: object) -> None:
    pod_of(made)["containers"][0].update(changes)


def change_security(made: Resource, **changes: object) -> None:
    pod_of(made)["containers"][0]["securityContext"].update(changes)


def terms_of(made: Resource) -> list[Resource]:
    affinity = pod_of(made)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[Resource] = affinity["nodeSelectorTerms"]
    return found


HOST_PROCESSES = {"hostPID": True, "shareProcessNamespace": False}
UNCONFINED = {"type": "Unconfined"}
OTHER_TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
SECRET = {"secretKeyRef": {"name": "gpuwright-tls", "key": "tls.key"}}
SECRETS = {"secretRef": {"name": "gpuwright-tls"}}
HOST_PORT = {"containerPort": 80, "hostPort": 80}
FIRST = {"name": "first", "image": "a", "securityContext": {"privileged": True}}
LONGER = name_claim("node-1.gpu-2", "GPU-1")
TOKEN = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
WRONG: dict[str, tuple[str, Callable[[Resource], object]]] = {
    "a node by name": ("affinity", lambda made: pod_of(made).update(nodeName="node-1")),
    "no affinity": ("affinity", lambda made: pod_of(made).pop("affinity")),
    "a preferred node": ("affinity", lambda made: pod_of(made)["affinity"].update(nodeAffinity={})),
    "another term": ("affinity", lambda made: terms_of(made).append(OTHER_TERM)),
    "all other nodes": ("affinity", lambda made: terms_of(made)[0]["matchFields"][0].update(operator="NotIn")),
    "another node": ("affinity", lambda made: terms_of(made)[0]["matchFields"][0].update(values=["node-2"])),
    "two pods": ("one pod", lambda made: made["spec"].update(replicas=2)),
    "no part": ("labels", lambda made: made["metadata"]["labels"].pop(PART)),
    "another part": ("labels", lambda made: made["metadata"]["labels"].update({PART: "agent"})),
    "pods of another node": ("labels", lambda made: labels_of(made).update({NODE: "node-2"})),
    "the host's network": ("namespaces of its own", lambda made: pod_of(made).update(hostNetwork=True)),
    "the host's processes": ("namespaces of its own", lambda made: pod_of(made).update(HOST_PROCESSES)),
    "the host's memory": ("namespaces of its own", lambda made: pod_of(made).update(hostIPC=True)),
    "any user": ("without rights", lambda made: pod_of(made).pop("securityContext")),
    "root": ("without rights", lambda made: pod_of(made)["securityContext"].update(runAsUser=0)),
    "root's group": ("group alone", lambda made: pod_of(made)["securityContext"].update(runAsGroup=0)),
    "no group": ("group alone", lambda made: pod_of(made)["securityContext"].pop("runAsGroup")),
    "more groups": ("group alone", lambda made: pod_of(made)["securityContext"].update(supplementalGroups=[0])),
    "files of a group": ("group alone", lambda made: pod_of(made)["securityContext"].update(fsGroup=0)),
    "root's group inside": ("no privileges", lambda made: change_security(made, runAsGroup=0)),
    "any system call": ("without rights", lambda made: pod_of(made)["securityContext"].pop("seccompProfile")),
    "any system call inside": ("no privileges", lambda made: change_security(made, seccompProfile=UNCONFINED)),
    "the first place": ("priority", lambda made: pod_of(made).update(priorityClassName="system-node-critical")),
    "root inside": ("no privileges", lambda made: change_security(made, runAsUser=0)),
    "any user inside": ("no privileges", lambda made: change_security(made, runAsNonRoot=False)),
    "privileged": ("no privileges", lambda made: change_security(made, allowPrivilegeEscalation=True, privileged=True)),
    "more rights later": ("no privileges", lambda made: change_security(made, allowPrivilegeEscalation=None)),
    "a capability": ("no privileges", lambda made: change_security(made, capabilities={"add": ["SYS_ADMIN"]})),
    "a port of the host": ("no privileges", lambda made: change_container(made, ports=[HOST_PORT])),
    "privileged before": ("no privileges", lambda made: pod_of(made).update(initContainers=[FIRST])),
    "the host's root": ("empty folders", lambda made: add_folder(made, "/")),
    "the agent's state": ("empty folders", lambda made: add_folder(made, "/var/lib/gpuwright-agent")),
    "its credential": ("empty folders", lambda made: add_folder(made, "/var/lib/gpuwright-agent/credential.json")),
    "a link, perhaps": ("empty folders", lambda made: add_folder(made, "/var/lib/gpuwright-agent/mps/GPU-1")),
    "a like name": ("empty folders", lambda made: add_folder(made, "/var/lib/gpuwright-agent/mpsx")),
    "a way out": ("must not contain", lambda made: add_folder(made, "/var/lib/gpuwright/../..")),
    "a secret": ("empty folders", lambda made: add_volume(made, secret={"secretName": "gpuwright-tls"})),
    "a token": ("empty folders", lambda made: add_volume(made, projected=TOKEN)),
    "a disk": ("empty folders", lambda made: add_volume(made, persistentVolumeClaim={"claimName": "disk"})),
    "the account's token": ("no token", lambda made: pod_of(made).pop("automountServiceAccountToken")),
    "another account": ("no token", lambda made: pod_of(made).update(serviceAccountName="other")),
    "a GPU of another node": ("a GPU of its own node", lambda made: claim(made, resourceClaimName="node-2.gpu-1")),
    "a GPU of a node whose name goes on": ("a GPU of its own node", lambda made: claim(made, resourceClaimName=LONGER)),
    "a new claim": ("a GPU of its own node", lambda made: claim(made, resourceClaimTemplateName="any")),
    "a secret's key": ("no token", lambda made: change_container(made, env=[{"name": "A", "valueFrom": SECRET}])),
    "a whole secret": ("no token", lambda made: change_container(made, envFrom=[SECRETS])),
}  # fmt: skip


def test_an_agent_makes_no_replica_set_with_more_than_a_copy_needs(agents: Agents) -> None:
    passed = []
    agents.own.create(agents.path(), copy_of("whole", "node-1"))
    for name, (wanted, change) in WRONG.items():
        made = copy_of("wrong", "node-1")
        change(made)
        try:
            agents.own.create(f"{agents.path()}?dryRun=All", made)
            passed.append(name)
        except ApiRefused as refused:
            assert wanted in str(refused), (name, refused)
    assert passed == []
    with pytest.raises(ApiRefused, match="namespaces of its own"):
        agents.own.patch(agents.path("whole"), {"spec": {"template": {"spec": HOST_PROCESSES}}})


def test_a_copy_has_the_secrets_that_the_chart_names(agents: Agents) -> None:
    made = copy_of("own-image", "node-1")
    named = {"secretKeyRef": {"name": "hub", "key": "token"}}
    change_container(made, env=[{"name": "HUB_TOKEN", "valueFrom": named}])
    agents.own.create(f"{agents.path()}?dryRun=All", made)


def test_others_are_not_held_to_it(agents: Agents) -> None:
    given = copy_of("by-hand", "node-9")
    given["spec"]["replicas"] = 2
    agents.cluster.kubectl("-n", agents.namespace, "create", "-f", "-", given=given)
