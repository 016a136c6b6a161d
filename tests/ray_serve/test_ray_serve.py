"""`gpuwright scaler` between a real Ray, a real Prometheus and a real Postgres."""

from __future__ import annotations

import pytest

from app.store.plans.scale_rows import ScaleRow, ScaleState
from tests.ray_serve.asking import asking
from tests.ray_serve.site import RaySite
from tests.support.patience import until

pytestmark = [pytest.mark.slow, pytest.mark.needs("ip", "iproute2"), pytest.mark.timeout(600)]


def test_planned_replicas_are_there_within_one_cycle_and_no_request_fails(site: RaySite) -> None:
    plans: list[ScaleRow] = []
    with asking(4, 0.01) as asked:
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
    found = site.find()
    assert found is not None and found.target == 1
    site.approve()
    site.await_state(ScaleState.WRITTEN, 2)
    site.await_running(2)


def test_a_load_is_read_of_the_counters_that_ray_has(site: RaySite) -> None:
    """The past served four a second for each replica; now there are many more, so more replicas are wanted."""
    site.adopt(mode="advisory", maxReplicas=40)
    with asking(4, 0.01):
        site.start()
        row = site.await_state(ScaleState.ADVISED, 5)
    assert "/s shown for each: " in row.why, row


def test_what_another_sets_is_let_alone_for_ten_minutes(site: RaySite) -> None:
    site.adopt(mode="auto", minReplicas=1, maxReplicas=1)
    site.start()
    site.await_state(ScaleState.STEADY)
    site.scale_by_hand(2)
    row = site.await_state(ScaleState.HELD)
    assert row.hold == "another set it to 2 0 minutes ago; nothing is written for ten minutes after that"


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
    row = site.await_state(ScaleState.HELD)
    assert row.hold.startswith(said), row.hold
    assert "external_scaler_enabled: true" in row.hold


def test_a_deployment_that_is_not_there_has_a_sentence(site: RaySite) -> None:
    site.adopt(deployment="Other")
    site.start()
    until(site.rows, site.log.read_text)
    (row,) = site.rows()
    assert (row.state, row.hold.split(";")[0]) == (ScaleState.HELD, "Ray Serve has no such deployment")
