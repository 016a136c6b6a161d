"""`gpuwright scaler` between a real Ray, a real Prometheus and a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from app.store.plans.scale_rows import ScaleDraft, ScaleRow, ScaleState, ScaleTarget
from clusters.ray_serve.engine import LONGEST
from tests.kubernetes.fault_proxy import Fault, FaultProxy, faulty_proxy
from tests.ray_serve.asking import asking
from tests.ray_serve.site import DASHBOARD, ECHO, RaySite
from tests.support.patience import patience, until
from tests.support.scaling import ScalerStore

pytestmark = [pytest.mark.slow, pytest.mark.needs("ip", "iproute2"), pytest.mark.timeout(600)]


def test_a_load_is_read_of_the_counters_that_ray_has(site: RaySite) -> None:
    """The first of all: until now there was one request in two seconds, and each replica has shown that much."""
    site.adopt(mode="advisory", maxReplicas=40)
    site.start()
    until(lambda: site.row() is not None, site.log.read_text)
    with asking(4, 0.01):
        row = site.await_state(ScaleState.ADVISED, 5)
    assert "0.500/s shown for each: " in row.why, row


def test_planned_replicas_are_there_within_one_cycle_and_no_request_fails(site: RaySite) -> None:
    plans: list[ScaleRow] = []
    with asking(4, 0.05) as asked:
        until(lambda: asked.answered > 50, lambda: asked.failures[-3:])
        for replicas in (3, 2, 4):
            site.adopt(mode="auto", minReplicas=replicas, maxReplicas=replicas)
            if not plans:
                site.start()
            plans.append(site.await_state(ScaleState.WRITTEN, replicas))
            site.await_running(replicas)
        more = asked.answered + 200
        until(lambda: asked.answered > more, lambda: asked.failures[-3:])
    assert asked.failures == []
    assert [(row.since, row.resource_version != "") for row in plans] == [(row.generation, True) for row in plans]
    assert [event.reason for event in site.events()] == ["replicas_written"] * 3


def test_what_is_proposed_waits_for_a_person(site: RaySite) -> None:
    site.adopt(mode="approve", minReplicas=2, maxReplicas=2)
    site.start()
    site.await_state(ScaleState.PROPOSED, 2)
    assert site.count_target() == 1
    site.approve()
    site.await_state(ScaleState.WRITTEN, 2)
    site.await_running(2)


def test_what_another_sets_is_let_alone_for_ten_minutes(site: RaySite) -> None:
    site.adopt(mode="auto", minReplicas=1, maxReplicas=1)
    site.start()
    site.await_state(ScaleState.STEADY)
    site.scale_by_hand(2)
    row = site.await_state(ScaleState.HELD)
    assert row.hold.startswith("somebody else set 2 replicas; nothing is written until "), row.hold


def test_replicas_that_a_new_configuration_sets_are_set_again(site: RaySite) -> None:
    site.adopt(mode="auto", minReplicas=2, maxReplicas=2)
    site.start()
    first = site.await_state(ScaleState.WRITTEN, 2)
    site.await_running(2)
    site.deploy(3)
    until(lambda: (row := site.row()) and row.object_generation > first.object_generation, site.row)
    site.await_state(ScaleState.WRITTEN, 2)
    site.await_running(2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"external_scaler_enabled": False}, "its application lets nobody else scale it"),
        (
            {
                "external_scaler_enabled": False,
                "deployment": {"num_replicas": None, "autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
            },
            "Ray's own autoscaling sets its replicas",
        ),
    ],
)
def test_a_deployment_that_ray_scales_or_that_nobody_else_may_is_held(
    site: RaySite, options: dict[str, object], said: str
) -> None:
    site.deploy(1, **options)
    site.adopt(mode="auto", minReplicas=2, maxReplicas=2)
    site.start()
    # While Ray still makes the deployment it has none, which is a hold, too.
    until(lambda: (row := site.row()) and row.hold.startswith(said), site.row)
    row = site.await_state(ScaleState.HELD)
    assert "external_scaler_enabled: true" in row.hold


def test_a_deployment_that_is_not_there_has_a_sentence(site: RaySite) -> None:
    site.adopt(deployment="Other")
    site.start()
    until(site.rows, site.log.read_text)
    (row,) = site.rows()
    assert (row.state, row.hold.split(";")[0]) == (ScaleState.HELD, "Ray Serve has no such deployment")


def test_ray_keeps_a_number_over_the_end_of_its_controller_and_takes_the_next(site: RaySite) -> None:
    site.adopt(mode="auto", minReplicas=3, maxReplicas=3)
    site.start()
    first = site.await_state(ScaleState.WRITTEN, 3)
    site.await_running(3)
    site.kill_controller()
    until(lambda: site.find() is not None, "it is there again")
    assert site.count_target() == 3
    site.adopt(mode="auto", minReplicas=2, maxReplicas=2)
    row = site.await_state(ScaleState.WRITTEN, 2)
    assert row.object_generation == first.object_generation, "it was not deployed again"
    site.await_running(2)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with faulty_proxy(DASHBOARD) as found:
        yield found


def fail_once(proxy: FaultProxy, method: str, *faults: Fault) -> None:
    """Lets the next requests of a method meet these faults, each once."""
    left = list(faults)
    proxy.choose = lambda asked, _: left.pop(0) if asked == method and left else None


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.CUT_BEFORE, Fault.BROKEN_AFTER, Fault.BROKEN])
def test_a_write_whose_answer_is_lost_is_settled_by_what_ray_has(
    site: RaySite, proxy: FaultProxy, fault: Fault
) -> None:
    """Where it was not done, nobody can know that before three minutes are over."""
    site.adopt(proxy.url, mode="auto", minReplicas=2, maxReplicas=2)
    fail_once(proxy, "POST", fault)
    site.start()
    if fault in (Fault.CUT_AFTER, Fault.BROKEN_AFTER):
        site.await_state(ScaleState.WRITTEN, 2)
        site.await_running(2)
    else:
        site.await_state(ScaleState.WRITING, 2)
        assert site.count_target() == 1
    assert [method for method, _ in proxy.met] == ["POST"]


def test_a_write_that_comes_late_is_the_same_write(site: RaySite, proxy: FaultProxy) -> None:
    site.adopt(proxy.url, mode="auto", minReplicas=2, maxReplicas=2)
    fail_once(proxy, "POST", Fault.LATE)
    site.start()
    site.await_state(ScaleState.WRITING, 2)
    assert proxy.deliver_late() == [200]
    until(lambda: [event.reason for event in site.events()] == ["replicas_written"], site.events)
    site.await_running(2)


def test_a_proposal_stands_while_ray_is_away(site: RaySite, proxy: FaultProxy) -> None:
    site.adopt(proxy.url, mode="approve", minReplicas=2, maxReplicas=2)
    site.start()
    before = site.await_state(ScaleState.PROPOSED, 2)
    proxy.choose = lambda method, path: Fault.CUT_BEFORE
    until(lambda: "ray_away" in site.log.read_text(), site.log.read_text)
    proxy.choose = lambda method, path: None
    until(lambda: "ray_back" in site.log.read_text(), site.log.read_text)
    now = site.await_state(ScaleState.PROPOSED, 2)
    assert (now.generation, now.since) == (before.generation, before.since)
    site.approve()
    site.await_state(ScaleState.WRITTEN, 2)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_write_that_a_killed_scaler_left_is_settled_by_the_next_leader(site: RaySite, is_done: bool) -> None:
    found = site.find()
    assert found is not None
    store, sent = ScalerStore(site.url, is_simulated=False), datetime.now(UTC) - LONGEST
    target = ScaleTarget(*ECHO)
    epoch = store.lead("dead")
    draft = ScaleDraft(target, "echo", "auto", 1, 2, "its load", "", found.deployed_at, DASHBOARD)
    dead = store.record(epoch, draft).rows[0]
    assert store.begin(epoch, dead, sent.isoformat())
    if is_done:
        site.scale_by_hand(2)
    store.expire()
    site.adopt(mode="auto", minReplicas=3, maxReplicas=3)
    site.start()
    site.await_state(ScaleState.WRITTEN, 3)
    assert store.read(dead.generation).rows[0].state == ("written" if is_done else "refused")
    site.await_running(3)
    store.database.close()


def test_a_file_with_faults_starts_no_scaler_and_stops_one_that_runs_from_deciding(site: RaySite) -> None:
    site.adopt(mode="automatic")
    assert site.start().wait(patience()) != 0
    assert "mode 'automatic' is not one of advisory, approve, auto" in site.log.read_text()
    site.adopt(mode="auto", minReplicas=1, maxReplicas=1)
    site.start()
    site.await_state(ScaleState.STEADY)
    site.adopt(mode="auto", minReplicas=2)
    until(lambda: "mode auto needs maxReplicas" in site.log.read_text(), site.log.read_text)
    assert site.count_target() == 1
