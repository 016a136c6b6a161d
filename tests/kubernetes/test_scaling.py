"""Replicas of adopted workloads on a real API server, written by a user with exactly the role of a scaler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.scaling.adoption import AdoptedWorkload
from clusters.scaling.writing import write_replicas
from tests.kubernetes.fault_proxy import Fault
from tests.kubernetes.owned import Owned, owned_place
from tests.kubernetes.scaled import EXACT, Permission, Scaler, ScalingServer, adopted_deployment, workload

pytestmark = pytest.mark.slow


@pytest.fixture
def place(scaling_server: ScalingServer) -> Iterator[str]:
    with scaling_server.namespace() as name:
        yield name


@pytest.fixture
def scaler(scaling_server: ScalingServer, place: str) -> Scaler:
    return Scaler(scaling_server.user.kubeconfig, place)


@pytest.mark.parametrize(
    ("api", "kind"),
    [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")],
)
def test_replicas_are_written_through_scale_and_the_server_notes_who_wrote_them(
    scaling_server: ScalingServer, scaler: Scaler, place: str, api: str, kind: str
) -> None:
    name, user = f"{kind.lower()}/ranker", scaling_server.user.name
    scaling_server.put(place, workload(api, kind, "ranker", 11, EXACT))
    scaling_server.scale(place, name, 12)
    began = scaling_server.server.audit.mark()
    found = scaler.find()["ranker"]
    assert (found.replicas, found.mode, found.service) == (12, "auto", "ranker")
    assert found.hold.startswith("kubectl set its replicas at an unknown time before")
    scaler.wait(11)
    found = scaler.find()["ranker"]
    assert found.hold == ""
    permission = Permission()
    with scaler.server() as server:
        outcome = write_replicas(server, found.bound(13), permission)
    assert (outcome.state, outcome.reason) == ("written", "")
    assert permission.versions == [outcome.version]
    assert scaling_server.replicas(place, name) == 13
    assert scaling_server.managers(place, name) == [("gpuwright", "Update", "scale", False)]
    wrote = scaling_server.server.audit.writes(user, began)
    assert [(each.verb, each.resource.split("/")[1]) for each in wrote] == [("update", "scale")]
    assert scaler.find()["ranker"].hold == ""  # what is ours holds nobody


def test_a_write_that_was_decided_before_another_change_is_refused_by_the_server(
    scaling_server: ScalingServer, scaler: Scaler, place: str
) -> None:
    scaling_server.put(place, adopted_deployment("ranker", 3))
    scaling_server.scale(place, "deployment/ranker", 4)
    scaler.find()
    scaler.wait(11)
    found = scaler.find()["ranker"]
    with scaler.server() as server:
        change = Permission(lambda: scaling_server.scale(place, "deployment/ranker", 5))
        outcome = write_replicas(server, found.bound(6), change)
    assert outcome.state == "not written"
    assert outcome.reason == "it has changed since it was decided; decided again next time"
    assert scaling_server.replicas(place, "deployment/ranker") == 5


def test_a_scaler_without_the_right_to_scale_is_told_so(
    scaling_server: ScalingServer, scaler: Scaler, place: str
) -> None:
    scaling_server.put(place, adopted_deployment("ranker", 3))
    scaling_server.scale(place, "deployment/ranker", 4)
    scaler.find()
    scaler.wait(11)
    found = scaler.find()["ranker"]
    reader = Scaler(scaling_server.reader.kubeconfig, place)
    with reader.server() as server:
        outcome = write_replicas(server, found.bound(6), Permission())
    assert (outcome.state, outcome.reason[:36]) == ("not written", "the API server refused it: 403 deplo")


@pytest.fixture
def owned(scaling_server: ScalingServer, tmp_path: Path) -> Iterator[Owned]:
    with owned_place(scaling_server, tmp_path) as found:
        yield found


@pytest.fixture
def free(owned: Owned) -> AdoptedWorkload:
    """One that nothing holds any more."""
    owned.server.put(owned.place, adopted_deployment("ranker", 3))
    owned.pass_minutes(11)
    return owned.scaler.find()["ranker"]


@pytest.mark.parametrize(("fault", "seconds"), [(Fault.BUSY, 3.0), (Fault.CONFLICT, 0.0)])
def test_a_refusal_leaves_the_decision_as_it_is_and_says_how_long_the_server_wants_to_wait(
    owned: Owned, free: AdoptedWorkload, fault: Fault, seconds: float
) -> None:
    owned.proxy.choose = lambda method, path: fault if method == "PUT" else None
    with owned.scaler.server() as server:
        outcome = write_replicas(server, free.bound(4), Permission())
        assert (outcome.state, outcome.is_refused, outcome.asked_seconds) == ("not written", True, seconds)
        assert f"{fault.value} the proxy says {fault.name}" in outcome.reason
        assert owned.replicas == 3
        owned.proxy.choose = lambda method, path: None
        assert write_replicas(server, free.bound(4), Permission()).state == "written"


def test_a_write_that_comes_late_is_refused_once_its_outcome_is_known(owned: Owned, free: AdoptedWorkload) -> None:
    with owned.scaler.server() as server:
        owned.proxy.choose = lambda method, path: Fault.LATE if method == "PUT" else None
        outcome = write_replicas(server, free.bound(4), Permission())
        reason = "its answer was lost, and it was not done and no longer can be ("
        assert (outcome.state, outcome.is_refused, outcome.reason[: len(reason)]) == ("not written", True, reason)
        assert owned.proxy.deliver_late() == [409]

        owned.proxy.choose = lambda method, path: Fault.CUT_AFTER if method == "PUT" else None
        outcome = write_replicas(server, free.bound(4), Permission())
        assert (outcome.state, outcome.reason, owned.replicas) == ("written", "", 4)

        again = owned.scaler.find()["ranker"]
        owned.proxy.choose = lambda method, path: Fault.CUT_BEFORE if method in ("PUT", "PATCH") else None
        outcome = write_replicas(server, again.bound(8), Permission())
        assert (outcome.state, outcome.is_open, owned.replicas) == ("unknown", True, 4)
    assert owned.hold() == ""  # the managers of ours hold nobody


def test_a_workload_that_cannot_be_read_is_tried_later_and_one_that_may_not_be_written_now_is_left(
    owned: Owned, free: AdoptedWorkload
) -> None:
    with owned.scaler.server() as server:
        owned.proxy.choose = lambda method, path: Fault.BUSY if method == "GET" else None
        outcome = write_replicas(server, free.bound(4), Permission())
        assert (outcome.state, outcome.is_refused, outcome.asked_seconds) == ("not written", True, 3.0)
        owned.proxy.choose = lambda method, path: None
        assert write_replicas(server, free.bound(4), lambda version: False).state == "untried"
