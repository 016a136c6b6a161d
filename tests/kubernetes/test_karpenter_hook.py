"""A hook of kind karpenter on a real API server, whose claims a test launches and gives up as Karpenter would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from app.control.rent import karpenter
from app.control.rent.calls import HookOrder
from app.control.rent.karpenter import KarpenterHook
from app.control.rent.states import HookVerb
from app.world.service_accounts import NAME_LABEL
from tests.kubernetes.agent_pods import open_as
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.server import ApiServer
from tests.support.patience import patience, until
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

# Of Karpenter's own definition: what stands in for it here needs no more.
SPEC = {"type": "object", "required": ["nodeClassRef"], "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodeclaims.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh", "scope": "Cluster",
        "names": {"kind": "NodeClaim", "plural": "nodeclaims", "singular": "nodeclaim", "listKind": "NodeClaimList"},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}  # fmt: skip
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
FINALIZERS = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
LAUNCHED = {"status": {"conditions": [{"type": "Launched", "status": "True"}]}}


class Clouded:
    """A cluster with NodeClaims, a planner's hook that may make them, and a Karpenter that does what a test says."""

    def __init__(self, cluster: Cluster, hook: KarpenterHook) -> None:
        self.cluster, self.hook = cluster, hook

    def claims(self) -> dict[str, Any]:
        return {item["metadata"]["name"]: item for item in self.cluster.read("get", "nodeclaims")["items"]}

    def call(self, verb: HookVerb, node: str = "burst-1") -> tuple[str, str]:
        key = f"{node}-20261130T080000"
        return self.hook.call(HookOrder(verb, "cloud", key, "burst", node, {"gpuType": "l4-24gb"}))

    def rent(self, node: str = "burst-1") -> tuple[str, str]:
        """Calls the hook until it is at work no longer."""
        answer = self.call("rent", node)

        def has_ended() -> bool:
            nonlocal answer
            answer = self.call("rent", node) if answer[0] == "pending" else answer
            return answer[0] != "pending"

        until(has_ended, lambda: answer[1])
        return answer

    def patch(self, name: str, change: Any, *words: str) -> None:
        self.cluster.kubectl("patch", "nodeclaim", name, "--type=merge", "-p", json.dumps(change), *words)

    @contextmanager
    def karpenter(self) -> Iterator[None]:
        """Launches each claim that is new."""
        over = threading.Event()

        def work() -> None:
            taken: set[str] = set()
            while not over.wait(0.1):
                for name in self.claims().keys() - taken:
                    taken.add(name)
                    self.patch(name, FINALIZERS)
                    self.patch(name, LAUNCHED, "--subresource=status")

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                yield
            finally:
                over.set()
                working.result(patience())


@pytest.fixture
def clouded(api_server: ApiServer, cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Clouded]:
    cluster.kubectl("create", "-f", "-", given=DEFINITION)
    planner = cluster.add_user(namespace, "planner")
    groups = ("karpenter.sh", "karpenter.example")  # of the second there is no definition
    cluster.grant(planner, [(group, "nodeclaims", "create,get,delete") for group in groups], everywhere=True)
    open_as(planner, tmp_path / "account")
    hook = KarpenterHook(
        spec={"nodeClassRef": NODE_CLASS, "requirements": [], "expireAfter": "Never"},
        labels={"team": "a"},
        server=api_server.url,
        token_file=str(tmp_path / "account/token"),
        ca_file=str(tmp_path / "account/ca.crt"),
        timeout_seconds=patience(),
    )
    made = Clouded(cluster, hook)
    try:
        until(lambda: not made.claims(), "claims are served")
        yield made
    finally:
        for name in made.claims():
            made.patch(name, {"metadata": {"finalizers": None}})
        cluster.kubectl("delete", "customresourcedefinition", "nodeclaims.karpenter.sh")


def test_an_order_is_one_claim_however_often_and_by_however_many_planners_it_is_made(clouded: Clouded) -> None:
    with clouded.karpenter(), ThreadPoolExecutor(4) as planners:
        answers = list(planners.map(lambda _: clouded.rent(), range(8)))
        assert {state for state, _ in answers} == {"accepted"}
        assert clouded.rent("burst-2")[0] == "accepted"
    made = clouded.claims()
    assert set(made) == {"burst-1-20261130t080000", "burst-2-20261130t080000"}
    claim = made["burst-1-20261130t080000"]
    assert claim["metadata"]["labels"] == {"team": "a", NAME_LABEL: "burst-1"}
    assert claim["metadata"]["annotations"] == {"gpuwright.io/order": "burst-1-20261130T080000"}
    bought = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    assert claim["spec"] == clouded.hook.spec | {"requirements": bought}


def test_what_is_given_back_is_the_orders_own_machine_which_is_gone_with_its_claim(clouded: Clouded) -> None:
    with clouded.karpenter():
        for node in ("burst-1", "burst-2"):
            assert clouded.rent(node)[0] == "accepted"
    for _ in range(2):
        state, message = clouded.call("return")
        assert (state, "ends the machine" in message) == ("pending", True), "its finalizer holds it"
    left = clouded.claims()
    assert "deletionTimestamp" in left["burst-1-20261130t080000"]["metadata"]
    assert "deletionTimestamp" not in left["burst-2-20261130t080000"]["metadata"]
    clouded.patch("burst-1-20261130t080000", {"metadata": {"finalizers": None}})
    assert clouded.call("return") == ("returned", "there is no NodeClaim burst-1-20261130t080000")


def test_a_claim_that_karpenter_gives_up_is_refused_and_may_be_asked_for_again(clouded: Clouded) -> None:
    name = "burst-1-20261130t080000"
    assert clouded.call("rent")[0] == "pending"
    clouded.patch(name, FINALIZERS)
    clouded.cluster.kubectl("delete", "nodeclaim", name, "--wait=false")
    assert clouded.call("rent") == ("pending", f"NodeClaim {name} is not launched yet: it is being deleted")
    clouded.patch(name, {"metadata": {"finalizers": None}})
    assert not clouded.claims()
    with clouded.karpenter():
        assert clouded.rent()[0] == "accepted"


def test_while_karpenter_does_nothing_the_order_is_pending_and_has_one_claim(clouded: Clouded) -> None:
    for _ in range(2):
        state, message = clouded.call("rent")
        assert (state, "is not launched yet" in message) == ("pending", True), message
    assert set(clouded.claims()) == {"burst-1-20261130t080000"}
    with clouded.karpenter():
        assert clouded.rent()[0] == "accepted"


def test_what_was_made_is_not_refused_because_the_api_server_takes_no_more(
    clouded: Clouded, namespace: str, tmp_path: Path
) -> None:
    with clouded.karpenter():
        assert clouded.rent()[0] == "accepted"
    right = clouded.hook
    clouded.hook = msgspec.structs.replace(right, spec={"requirements": []})
    assert clouded.call("rent")[0] == "accepted", "who edits the hook has rented it before"
    reader = clouded.cluster.add_user(namespace, "reader")
    clouded.cluster.grant(reader, [("karpenter.sh", "nodeclaims", "get")], everywhere=True)
    open_as(reader, tmp_path / "reader")
    clouded.hook = msgspec.structs.replace(right, token_file=str(tmp_path / "reader/token"))
    assert clouded.call("rent")[0] == "accepted"
    assert clouded.call("rent", "burst-2")[0] == "refused"


def test_a_claim_of_another_is_neither_taken_nor_deleted(clouded: Clouded) -> None:
    name = "burst-1-20261130t080000"
    other = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": clouded.hook.spec,
    }
    clouded.cluster.kubectl("create", "-f", "-", given=other)
    assert clouded.call("rent") == ("refused", f"NodeClaim {name} is there already, and of no order of this planner's")
    assert clouded.call("return")[0] == "returned"
    assert set(clouded.claims()) == {name}


def test_a_claim_that_the_api_server_does_not_take_is_refused_with_its_reason(
    clouded: Clouded, namespace: str, tmp_path: Path
) -> None:
    right = clouded.hook
    clouded.hook = msgspec.structs.replace(right, spec={"requirements": []})
    state, message = clouded.call("rent")
    assert (state, "spec.nodeClassRef: Required value" in message) == ("refused", True), message
    powerless = clouded.cluster.add_user(namespace, "powerless")
    open_as(powerless, tmp_path / "powerless")
    clouded.hook = msgspec.structs.replace(right, token_file=str(tmp_path / "powerless/token"))
    assert clouded.call("rent")[0] == "failed" and "is forbidden" in clouded.call("rent")[1]
    assert clouded.call("return")[0] == "failed" and "is forbidden" in clouded.call("return")[1]
    assert not clouded.claims()


def test_an_api_server_without_karpenter_or_away_answers_nothing(clouded: Clouded, monkeypatch: Any) -> None:
    monkeypatch.setattr(karpenter, "CLAIMS", "/apis/karpenter.example/v1/nodeclaims")
    assert clouded.call("return")[0] == "failed", "a kind that is not there is no machine that is gone"
    state, message = clouded.call("rent")
    assert (state, "this cluster has no NodeClaims" in message) == ("refused", True)
    clouded.hook = msgspec.structs.replace(clouded.hook, server=f"https://127.0.0.1:{free_port()}")
    for verb in get_args(HookVerb):
        state, message = clouded.call(verb)
        assert (state, "the API server gave no answer: Connection refused" in message) == ("failed", True), message
