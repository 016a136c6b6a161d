"""Which copies serve, from what nodes say and were told: in, out, drained, and never the last one that serves."""

from __future__ import annotations

from ipaddress import ip_network

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.paths import build_table, hash_rules
from agents.contract.reports import Copy
from app.nodes.detail import InstanceOwner, NodeDetail
from app.nodes.endpoints import MOST_UP, ServiceCopy, list_endpoints, select_services
from app.nodes.endpoints import list_copies as judge_copies
from app.store.fleet.endpoints import GatewayLimit


def copy(
    name: str, stage: str = "ready", instance: str = "i-1", address: str = "10.0.0.1:9000", paths: str = ""
) -> Copy:
    return Copy(name, instance, 0, stage, address=address, paths=paths)


def told(*instances: str, rate: float = 40.0) -> Assignment:
    assigned = [
        AssignedInstance(name, 0, tenant="shop", service="search", rate_per_second=rate, slo_ms=80.0, percentile=98.0)
        for name in instances
    ]
    return Assignment("node-1", 1, 1, 1, instances=tuple(assigned))


def said(*copies: Copy) -> NodeDetail:
    return NodeDetail(copies=copies, owners={copy.instance: InstanceOwner("shop", "search") for copy in copies})


def list_copies(node: str, detail: NodeDetail, assignment: Assignment | None) -> tuple[ServiceCopy, ...]:
    """The copies of a node that was lately assigned everything that it reports."""
    services = {name: f"{owner.tenant}/{owner.service}" for name, owner in detail.owners.items() if owner.service}
    return judge_copies(node, detail, assignment, services).copies


def shown(*of_nodes: tuple[ServiceCopy, ...]) -> dict[str, bool]:
    """Whether each copy is drained."""
    (service,) = list_endpoints(1, (one for copies in of_nodes for one in copies), {}, ()).services
    return {copy.id: copy.drained for copy in service.copies}


def test_a_copy_is_an_endpoint_from_routing_until_it_is_gone() -> None:
    stages = ("starting", "verifying", "warming", "routing", "ready", "draining", "ending", "gone", "unheard-of")
    found = list_copies("node-1", said(*(copy(stage, stage) for stage in stages)), told("i-1"))
    assert [(one.copy.id, one.copy.drained) for one in found] == [
        ("routing", False), ("ready", False), ("draining", True), ("ending", True)
    ]  # fmt: skip


def test_what_is_asked_of_a_copy_is_its_planned_rate() -> None:
    (one,) = list_copies("node-1", said(copy("a")), told("i-1", rate=40.0))
    (zero,) = list_copies("node-1", said(copy("a")), told("i-1", rate=0.0))
    assert (one.service, one.copy.node, one.copy.address, one.copy.weight) == (
        "shop/search", "node-1", "10.0.0.1:9000", 40.0
    )  # fmt: skip
    assert zero.copy.weight > 0


def test_jobs_and_copies_without_an_address_are_no_endpoints() -> None:
    job = NodeDetail(copies=(copy("a"),), owners={"i-1": InstanceOwner("shop", "", "finetune")})
    assert list_copies("node-1", job, None) == ()
    assert list_copies("node-1", NodeDetail(copies=(copy("a"),)), None) == ()
    assert list_copies("node-1", said(copy("a", address="")), told("i-1")) == ()


def test_what_nobody_is_told_to_run_is_drained_once_another_copy_is_up() -> None:
    old = list_copies("node-1", said(copy("old", instance="i-1")), told())
    for stage in ("starting", "warming", "draining"):
        assert shown(old, list_copies("node-2", said(copy("new", stage, "i-2")), told("i-2")))["old"] is False
    for stage in ("routing", "ready"):
        assert shown(old, list_copies("node-2", said(copy("new", stage, "i-2")), told("i-2"))) == {
            "old": True,
            "new": False,
        }
    assert shown(old) == {"old": False}  # the last one that serves goes when its node says so


def test_both_copies_of_a_hand_over_serve_until_the_node_drains_one() -> None:
    both = list_copies("node-1", said(copy("old"), copy("new")), told("i-1"))
    assert shown(both) == {"old": False, "new": False}
    assert shown(list_copies("node-1", said(copy("old", "draining"), copy("new")), told("i-1"))) == {
        "old": True, "new": False
    }  # fmt: skip


def test_a_service_says_its_promise_and_its_limit_also_without_a_copy() -> None:
    limits = {"shop/search": GatewayLimit(100, 0.25, 7), "lab/unserved": GatewayLimit(shed_share=1.0)}
    unserved, search = list_endpoints(1, list_copies("node-1", said(copy("a")), told("i-1")), limits, ()).services
    assert (search.slo_ms, search.percentile) == (80.0, 98.0)
    assert (search.queue_limit, search.shed_share, search.retry_after_seconds) == (100, 0.25, 7)
    assert (unserved.service, unserved.copies, unserved.shed_share) == ("lab/unserved", (), 1.0)


def test_a_copy_says_how_many_requests_it_answers_in_time_if_the_plan_knows_its_place() -> None:
    limits = {"shop/search": GatewayLimit(100, in_time={"node-1/0": 24, "node-3/0": 8})}
    copies = (
        *list_copies("node-1", said(copy("a"), copy("old", instance="i-9")), told("i-1")),
        *list_copies("node-2", said(copy("b", instance="i-2")), told("i-2")),
    )
    (service,) = list_endpoints(1, copies, limits, ()).services
    assert {copy.id: copy.in_time for copy in service.copies} == {"a": 24, "old": 0, "b": 0}


def test_a_tenant_is_told_of_its_own_services_without_addresses() -> None:
    mine, others = ("GET /v1/mine",), ("POST /v1/secret-plans",)
    other = NodeDetail(
        copies=(copy("b", instance="i-2", paths=hash_rules(others)),),
        owners={"i-2": InstanceOwner("shopping", "search")},
        paths=build_table([others]),
    )
    detail = msgspec.structs.replace(said(copy("a", paths=hash_rules(mine))), paths=build_table([mine]))
    both = list_endpoints(3, (*list_copies("node-1", detail, told("i-1")), *list_copies("node-2", other, None)), {}, ())
    assert both.paths == build_table([mine, others])
    own = select_services(both, "shop", "")
    assert [(copy.id, copy.node, copy.address) for copy in own.services[0].copies] == [("a", "node-1", "")]
    assert (len(own.services), own.version, own.paths) == (1, 3, build_table([mine]))
    assert select_services(both, "shop", "shopping/search").services == ()


def test_a_node_names_the_paths_of_its_own_copies_and_of_no_others() -> None:
    """A key stands for rules of which it is the hash, whatever a node writes under it."""
    modest, greedy = ("POST /v1/x",), ("* /**",)
    lying = NodeDetail(
        copies=(copy("a", paths=hash_rules(modest)), copy("b", paths="0" * 32), copy("c", "draining")),
        owners={"i-1": InstanceOwner("shop", "search")},
        paths={hash_rules(modest): greedy},
    )
    found = list_copies("node-1", lying, None)
    assert [(each.copy.paths, each.paths) for each in found] == [
        (hash_rules(greedy), greedy), (hash_rules(()), ()), ("", None)
    ]  # fmt: skip


def test_a_copy_of_an_instance_that_another_node_was_told_to_run_is_no_endpoint() -> None:
    true, false = (
        list_copies("node-1", said(copy("true")), told("i-1")),
        list_copies("liar", said(copy("false")), told()),
    )
    assert shown(true, false) == {"true": False}


def refused(*copies: Copy, services: dict[str, str] | None = None, network: str = "0.0.0.0/0") -> list[str]:
    """Why copies of a node that is assigned i-1 get no requests."""
    found = judge_copies("node-1", said(*copies), told("i-1"), services or {}, [ip_network(network)])
    assert {copy.copy.id for copy in found.copies} | {copy.id for copy in found.refused} == {copy.id for copy in copies}
    return [copy.why for copy in found.refused]


def test_case_25_a_copy_of_an_instance_that_the_node_was_never_assigned_gets_no_requests() -> None:
    stolen = copy("stolen", instance="i-99")
    assert refused(stolen, copy("own")) == ["instance i-99 is not assigned to this node"]
    assert judge_copies("node-1", said(stolen), None, {}).copies == ()


def test_case_25_the_service_of_a_copy_is_the_assigned_one_whatever_the_node_says() -> None:
    claimed = NodeDetail(
        copies=(copy("a"), copy("b", instance="i-2")),
        owners={"i-1": InstanceOwner("bank", "payments"), "i-2": InstanceOwner("bank", "payments")},
    )
    found = judge_copies("node-1", claimed, told("i-1"), {"i-2": "shop/images"})
    assert [copy.service for copy in found.copies] == ["shop/search", "shop/images"]


def test_case_25_a_copy_that_was_lately_assigned_is_drained_once_an_assigned_one_is_up() -> None:
    old = judge_copies("node-1", said(copy("old")), told(), {"i-1": "shop/search"}).copies
    assert shown(old) == {"old": False}
    new = judge_copies("node-2", said(copy("new", instance="i-2")), told("i-2"), {}).copies
    assert shown(old, new) == {"old": True, "new": False}


def test_case_25_an_instance_has_no_more_copies_than_a_hand_over_needs() -> None:
    many = [copy(f"c{number}") for number in range(MOST_UP + 3)]
    assert len(refused(*many, copy("going", "draining"))) == 3


@pytest.mark.parametrize("address", ["[2001:db8::1%;x]:80", "169.254.169.254:80", "host:80", "192.168.0.1:80"])
def test_case_23_a_copy_with_an_address_that_no_copy_can_have_costs_only_itself(address: str) -> None:
    (why,) = refused(copy("bad", address=address), copy("good"), network="10.0.0.0/8")
    assert address in why
