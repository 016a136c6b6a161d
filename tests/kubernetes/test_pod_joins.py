"""Agents that are pods join by their service account's token, which a real API server reviews for a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.control.join import join_again, join_as_pod
from agents.node.state_folder import PodJoin, StateFolder
from app.world.service_accounts import NAME_LABEL
from tests.kubernetes.agent_pods import bind_token, put_pod
from tests.kubernetes.cluster import Cluster
from tests.support.forked import ROOT
from tests.support.patience import patience, until
from tests.support.ports import free_port
from tests.support.server import Reply, running_server
from tests.support.world import gpu_type

pytestmark = pytest.mark.slow

SPEC = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}


class Joining:
    """A server that admits the account `agent` of a namespace, and may do nothing in the cluster but review tokens."""

    def __init__(self, cluster: Cluster, namespace: str, database_url: str, kubeconfig: Path) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._kubeconfig, self._database_url = kubeconfig, database_url

    def start(self) -> Iterator[Joining]:
        given = {"KUBECONFIG": str(self._kubeconfig), "GPUWRIGHT_KUBERNETES_AGENTS": f"{self.namespace}/agent"}
        with running_server(self._database_url, **given) as self.server:
            assert self.server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
            yield self

    def pod_token(self, node: str, *, audience: str = "gpuwright", account: str = "agent", pod: str = "pod") -> str:
        put_pod(self.cluster, self.namespace, pod, node, account)
        return bind_token(self.cluster, self.namespace, pod, audience)

    def ask(self, token: str, node: str) -> Reply:
        return self.server.request("POST", "/api/v1/join", {"token": token, "node": node, **SPEC}, token="")


@pytest.fixture
def joining(cluster: Cluster, namespace: str, database_url: str) -> Iterator[Joining]:
    reviewer = cluster.add_user(namespace, "api")
    rights = [("authentication.k8s.io", "tokenreviews", "create"), ("", "nodes", "list")]
    cluster.grant(reviewer, rights, everywhere=True)
    for account in ("agent", "other"):
        cluster.kubectl("-n", namespace, "create", "serviceaccount", account)
    yield from Joining(cluster, namespace, database_url, reviewer.kubeconfig).start()


def test_a_pod_joins_as_its_node_as_often_as_it_starts_and_no_part_of_its_token_is_kept(joining: Joining) -> None:
    server, token = joining.server, joining.pod_token("node-1")
    joined = joining.ask(token, "node-1")
    assert joined.status == 201, joined.text
    assert server.request("GET", "/api/v1/nodes/node-1").json["spec"] == SPEC
    who = server.request("GET", "/api/v1/whoami", token=joined.json["token"]).json
    assert (who["scope"], who["node"]) == ("node", "node-1")
    again = joining.ask(token, "node-1")
    assert again.status == 201
    assert server.request("GET", "/api/v1/whoami", token=again.json["token"]).status == 200
    assert server.request("GET", "/api/v1/whoami", token=joined.json["token"]).status == 401
    audited = server.request("GET", "/api/v1/audit?limit=50").text
    assert f"kubernetes:system:serviceaccount:{joining.namespace}:agent/pod" in audited
    signature = token.rsplit(".", 1)[1]
    assert signature not in audited + server.log_path.read_text()


def test_a_token_of_another_audience_account_or_node_or_of_no_pod_is_refused_and_says_which(joining: Joining) -> None:
    own = joining.pod_token("node-1")
    strange = joining.pod_token("node-1", account="other", pod="strange")
    for_api_server = bind_token(joining.cluster, joining.namespace, "pod")
    words = ("-n", joining.namespace, "create", "token", "agent", "--audience=gpuwright")
    unbound = joining.cluster.kubectl(*words).strip()
    unscheduled = joining.pod_token("", pod="unscheduled")
    head, body, signature = own.split(".")
    forged = f"{head}.{body}.{signature[::-1]}"
    for token, node, status, wanted in (
        (own, "node-2", 403, "of a pod on node node-1, not on node-2"),
        (strange, "node-1", 403, "agents are system:serviceaccount:.*:agent"),
        (for_api_server, "node-1", 401, "for the audience gpuwright: .*kubernetes.default.svc"),
        (unbound, "node-1", 403, "bound to no pod on a node"),
        (unscheduled, "node-1", 403, "bound to no pod on a node"),
        (forged, "node-1", 401, "for the audience gpuwright"),
        ("a.b.c", "node-1", 401, "for the audience gpuwright"),
        ("garbage", "node-1", 401, "not a join token"),
        ("a.b." + "c" * 9000, "node-1", 422, ""),
    ):
        refused = joining.ask(token, node)
        assert refused.status == status, refused.text
        assert re.search(wanted, refused.json["detail"]), refused.json
        assert len(token) < 20 or token[-40:] not in refused.text
    assert joining.server.request("GET", "/api/v1/nodes/node-1").status == 404
    audited = joining.server.request("GET", "/api/v1/audit?limit=50").json["items"]
    assert [entry["outcome"] for entry in audited].count("refused") == 4
    joining.cluster.kubectl("-n", joining.namespace, "delete", "pod", "pod", "--grace-period=0", "--force")
    until(lambda: joining.ask(own, "node-1").status == 401, "the token ends with its pod")


def test_a_node_whose_name_has_dots_joins_with_hyphens(joining: Joining, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(joining.pod_token("ip-10-0-0-1.ec2.internal"))
    pod = PodJoin("ip-10-0-0-1.ec2.internal", str(file), SPEC)
    joined = join_as_pod(StateFolder(tmp_path / "state"), joining.server.url, pod)
    assert (joined.node, joined.pod) == ("ip-10-0-0-1-ec2-internal", pod)


def test_a_node_joins_under_the_name_that_its_label_has_and_keeps_it(joining: Joining, tmp_path: Path) -> None:
    """As one that was rented does: its order has named it before its cloud has."""
    labels = {NAME_LABEL: "burst-1"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ip-10-0-0-9.ec2.internal", "labels": labels}}
    joining.cluster.kubectl("create", "-f", "-", given=node)
    try:
        file, folder = tmp_path / "token", StateFolder(tmp_path / "state")
        file.write_text(joining.pod_token("ip-10-0-0-9.ec2.internal"))
        pod = PodJoin("ip-10-0-0-9.ec2.internal", str(file), SPEC)
        joined = join_as_pod(folder, joining.server.url, pod)
        assert (joined.node, joined.pod) == ("burst-1", pod)
        assert join_as_pod(folder, joining.server.url, pod).token == joined.token, "its pod starts again"
        again = join_again(folder, joined)
        assert again.node == "burst-1" and again.token != joined.token
        who = joining.server.request("GET", "/api/v1/whoami", token=again.token).json
        assert (who["scope"], who["node"]) == ("node", "burst-1")
        assert joining.server.request("GET", "/api/v1/nodes/ip-10-0-0-9-ec2-internal").status == 404
        refused = joining.ask(file.read_text(), "burst-1")
        assert refused.status == 403, "nobody asks by another name than the cluster's"
        refused = joining.ask(joining.pod_token("burst-1", pod="other"), "burst-1")
        assert (refused.status, "gives that one this name" in refused.json["detail"]) == (403, True)
        assert joining.server.request("GET", "/api/v1/whoami", token=again.token).status == 200
        joining.cluster.kubectl("label", "--overwrite", "node", pod.node, f"{NAME_LABEL}=Burst.1")
        refused = joining.ask(file.read_text(), "ip-10-0-0-9-ec2-internal")
        assert (refused.status, "is Burst.1, and no DNS label" in refused.json["detail"]) == (403, True)
    finally:
        joining.cluster.kubectl("delete", "node", "ip-10-0-0-9.ec2.internal")


@pytest.mark.parametrize("first", ["labelled", "named"])
def test_a_label_takes_no_name_from_the_node_that_has_it_whichever_asks_first(joining: Joining, first: str) -> None:
    cluster = joining.cluster
    nodes = {"labelled": "gpu-1.example", "named": "gpu-2.example"}
    for node in nodes.values():
        cluster.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    cluster.kubectl("label", "node", nodes["labelled"], f"{NAME_LABEL}=gpu-2-example")
    tokens = {which: joining.pod_token(node, pod=which) for which, node in nodes.items()}
    try:
        for which in (first, *(nodes.keys() - {first})):
            answer = joining.ask(tokens[which], nodes[which].replace(".", "-"))
            assert answer.status == (403 if which == "labelled" else 201), answer.text
            if which == "labelled":
                assert answer.json["detail"] == (
                    f"the label {NAME_LABEL} of node gpu-1.example is gpu-2-example, which is the own name of node"
                    " gpu-2.example: give the label another value, or remove it"
                )
            else:
                held = answer.json["token"]
        who = joining.server.request("GET", "/api/v1/whoami", token=held)
        assert (who.status, who.json["node"]) == (200, "gpu-2-example"), "it keeps its credential"
        cluster.kubectl("label", "node", nodes["named"], f"{NAME_LABEL}=gpu-3")
        assert joining.ask(tokens["labelled"], "gpu-1-example").json["node"] == "gpu-2-example", "the name is free"
        cluster.kubectl("label", "--overwrite", "node", nodes["named"], f"{NAME_LABEL}=gpu-2-example")
        both = joining.ask(tokens["named"], "gpu-2-example")
        assert (both.status, "on node gpu-2.example and on node gpu-1.example" in both.json["detail"]) == (403, True)
    finally:
        cluster.kubectl("delete", "node", *nodes.values())


def test_two_nodes_that_have_one_name_here_are_both_refused(joining: Joining) -> None:
    nodes = ("gpu-4.example", "gpu-4-example")
    for node in nodes:
        given = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        joining.cluster.kubectl("create", "-f", "-", given=given)
    try:
        for number, node in enumerate(nodes):
            refused = joining.ask(joining.pod_token(node, pod=f"pod-{number}"), "gpu-4-example")
            assert (refused.status, "are both called gpu-4-example here" in refused.json["detail"]) == (403, True)
    finally:
        joining.cluster.kubectl("delete", "node", *nodes)


def test_a_pod_that_joins_without_end_is_made_to_wait(joining: Joining) -> None:
    token = joining.pod_token("node-1")
    until(lambda: joining.ask(token, "node-1").status == 429, "there is an end")
    waits = joining.ask(token, "node-1")
    assert (waits.status, int(waits.headers["retry-after"]) > 0) == (429, True)


def run_cli(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.main", "agent", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience())


def test_an_agents_pod_joins_keeps_its_credential_and_joins_again_once_that_is_revoked(
    joining: Joining, tmp_path: Path
) -> None:
    server, file, folder = joining.server, tmp_path / "token", tmp_path / "state"
    file.write_text(joining.pod_token("node-1"))
    place = ("--state-dir", str(folder))
    words = ("--server", server.url, "--node", "node-1", "--gpu-type", "v100-16gb", "--gpus", "2")
    for _ in ("its pod starts", "it starts again"):
        joined = run_cli("join", *place, *words, "--service-account-token", str(file))
        assert joined.returncode == 0, joined.stderr
    first = StateFolder(folder).credential()
    assert first is not None
    joins = [entry for entry in server.request("GET", "/api/v1/audit").json["items"] if entry["verb"] == "join"]
    assert len(joins) == 1
    run = [sys.executable, "-m", "cli.main", "agent", "run", *place, "--device", "simulated", "--simulated-gpus", "2"]
    log = tmp_path / "agent.log"
    with log.open("wb") as said:
        agent = subprocess.Popen(run, cwd=ROOT, stdout=said, stderr=said)
    try:
        until(lambda: "reports to" in log.read_text(), log.read_text)
        revoked = server.request("DELETE", f"/api/v1/tokens/{first.token.split('_')[1]}")
        assert revoked.status < 300, revoked.text
        until(lambda: "this node has joined again" in log.read_text(), log.read_text)
        second = StateFolder(folder).credential()
        assert second is not None and second.pod == first.pod
        assert server.request("GET", "/api/v1/whoami", token=second.token).json["node"] == "node-1"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {NAME_LABEL: "renamed"}}}
        joining.cluster.kubectl("create", "-f", "-", given=node)
        server.request("DELETE", f"/api/v1/tokens/{second.token.split('_')[1]}")
        until(lambda: agent.poll() is not None, log.read_text)
        assert "this node is called renamed now" in log.read_text()
    finally:
        joining.cluster.kubectl("delete", "node", "node-1", "--ignore-not-found")
        agent.terminate()
        agent.wait(patience())
    renamed = StateFolder(folder).credential()
    assert renamed is not None and renamed.node == "renamed"


def test_while_the_api_server_is_away_or_refuses_a_pod_is_told_to_try_again(
    cluster: Cluster, namespace: str, database_url: str, tmp_path: Path
) -> None:
    powerless = cluster.add_user(namespace, "api")
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "agent")
    for joining in Joining(cluster, namespace, database_url, powerless.kubeconfig).start():
        token = joining.pod_token("node-1")
        refused = joining.ask(token, "node-1")
        assert refused.status == 503 and "needs the right to create tokenreviews" in refused.json["detail"], refused
        assert int(refused.headers["retry-after"]) > 0
        away = powerless.kubeconfig.read_text()
        powerless.kubeconfig.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{free_port()}", away))
        refused = joining.ask(token, "node-1")
        assert refused.status == 503 and "did not answer: ConnectError" in refused.json["detail"], refused
