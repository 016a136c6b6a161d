"""`gpuwright scaler` between a real API server, a real Prometheus and a real Postgres."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded import EmbeddedPostgres
from app.store.database import schema
from app.store.plans.scale_rows import ScaleDraft, ScaleState, ScaleTarget
from clusters.estate import WorkloadName
from clusters.kubeconfigs import choose_cluster
from clusters.scaling.server import open_server
from tests.kubernetes.fault_proxy import Fault, faulty_proxy
from tests.kubernetes.scaled import ScalingServer, adopted_deployment
from tests.kubernetes.scalers import ScaledPlace, scaled_place
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.scaling import ScalerStore

pytestmark = pytest.mark.slow


@pytest.fixture
def place(scaling_server: ScalingServer, database_url: str, tmp_path: Path) -> Iterator[ScaledPlace]:
    with scaled_place(scaling_server, database_url, tmp_path, ("ranker", "asked", "own")) as found:
        yield found


def test_advice_is_recorded_and_shown_and_nothing_is_written(place: ScaledPlace) -> None:
    began = place.server.server.audit.mark()
    ranker = adopted_deployment("ranker", 2, mode="advisory", min_replicas="3")
    place.put(ranker)
    scaler = place.start()
    until(lambda: "ranker" in place.rows(), lambda: f"a plan: {scaler.lines()}")
    row = place.rows()["ranker"]
    assert (row.replicas, row.wanted, row.state) == (2, 3, ScaleState.ADVISED), row.hold
    assert row.why, row
    until(lambda: scaler.gauge() == {"ranker": 3.0}, "the gauge shows it")
    assert "gpuwright_scaler_leader 1.0" in scaler.metrics()
    decided = [line for line in scaler.metrics().splitlines() if line.startswith("gpuwright_scale_decided_timestamp")]
    assert abs(float(decided[0].split()[1]) - time.time()) < 3600
    assert scaler.end() == 0
    assert place.server.server.audit.writes(place.server.user.name, began) == []
    assert place.replicas("ranker") == 2


def test_what_is_proposed_is_written_once_a_person_approves_it_and_what_is_automatic_at_once(
    place: ScaledPlace,
) -> None:
    began = place.server.server.audit.mark()
    asked, automatic = adopted_deployment("asked", 2, mode="approve", min_replicas="4"), adopted_deployment("own", 5)
    place.put(asked, automatic)
    scaler = place.start()
    until(lambda: "asked" in place.rows(), lambda: f"a plan: {scaler.lines()}")
    place.annotate(automatic, min_replicas="7")
    until(lambda: place.states() == {"asked": "proposed", "own": "written"}, place.states)
    assert place.replicas("asked") == 2
    place.approve("asked")
    until(lambda: place.states()["asked"] == "written", place.states)
    until(lambda: set(scaler.gauge().items()) == {("asked", 4.0), ("own", 7.0)}, "the gauge")
    assert (place.replicas("asked"), place.replicas("own")) == (4, 7)
    wrote = place.server.server.audit.writes(place.server.user.name, began)
    assert [(each.verb, each.resource, each.status) for each in wrote] == [("update", "deployments/scale", 200)] * 2
    assert 'gpuwright_scale_writes_total{outcome="written"} 2.0' in scaler.metrics()
    assert {event.reason for event in place.events()} == {"replicas_proposed", "replicas_written"}
    place.annotate(automatic, service=None, mode=None, max_replicas=None, min_replicas=None)
    until(lambda: scaler.gauge() == {"asked": 4.0}, "what is not adopted any more is not in the gauge")


def test_what_another_changes_is_held_and_the_gauge_still_says_what_it_needs(place: ScaledPlace) -> None:
    place.put(adopted_deployment("ranker", 3))
    place.server.scale(place.namespace, "deployment/ranker", 2)
    scaler = place.start()
    until(lambda: "ranker" in place.rows(), lambda: f"a plan: {scaler.lines()}")
    place.annotate(adopted_deployment("ranker", 3), min_replicas="3")
    until(lambda: place.rows()["ranker"].wanted == 3, place.states)
    row = place.rows()["ranker"]
    assert (row.state, row.hold.split(" set its")[0]) == (ScaleState.HELD, "kubectl")
    until(lambda: scaler.gauge() == {"ranker": 3.0}, "the gauge")
    assert place.replicas("ranker") == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_a_write_that_a_killed_scaler_left_is_settled_by_the_next_leader_before_it_decides(
    place: ScaledPlace, is_done: bool
) -> None:
    ranker = adopted_deployment("ranker", 3)
    place.put(ranker)
    store, found = (
        ScalerStore(place.url, is_simulated=False),
        place.server.cluster.read("-n", place.namespace, "get", "deployment/ranker"),
    )
    epoch, target = store.lead("dead"), ScaleTarget(place.namespace, "Deployment", "ranker")
    version, generation = found["metadata"]["resourceVersion"], found["metadata"]["generation"]
    dead = store.record(epoch, ScaleDraft(target, "ranker", "auto", 3, 5, "its load", "", generation)).rows[0]
    assert store.begin(epoch, dead, version)
    name = WorkloadName(*target)
    uid = found["metadata"]["uid"]
    with open_server(choose_cluster(None, str(place.server.user.kubeconfig), {})) as cluster:
        if is_done:
            assert cluster.put_scale(name, uid, version, 5).status == 200
        store.expire()
        scaler = place.start()
        until(lambda: place.rows()["ranker"].generation > dead.generation, lambda: f"a plan: {scaler.lines()}")
        assert place.states(dead.generation) == {"ranker": "written" if is_done else "refused"}
        assert place.replicas("ranker") == (5 if is_done else 3)
        assert cluster.put_scale(name, uid, version, 5).status == 409, "what is sent late is refused"
    store.database.close()


def test_a_leader_that_was_paused_past_its_lease_stands_by_when_it_wakes(place: ScaledPlace) -> None:
    ranker = adopted_deployment("ranker", 3)
    place.put(ranker)
    first = place.start()
    until(lambda: "ranker" in place.rows(), lambda: f"a plan: {first.lines()}")
    first.send(signal.SIGSTOP)
    second = place.start()
    place.annotate(ranker, min_replicas="4")
    until(lambda: place.states() == {"ranker": "written"}, place.states)
    first.send(signal.SIGCONT)
    until(lambda: "standing_by" in first.events() or "deposed" in first.events(), "the first has noticed")
    place.annotate(ranker, min_replicas="5")
    until(lambda: place.replicas("ranker") == 5, place.states)
    assert first.gauge() == second.gauge() == {"ranker": 5.0}
    assert second.end() == 0
    place.annotate(ranker, min_replicas="6")
    until(lambda: place.replicas("ranker") == 6, place.states)


def test_while_the_cluster_or_prometheus_is_away_nothing_is_decided_and_then_it_goes_on(
    place: ScaledPlace,
) -> None:
    ranker = adopted_deployment("ranker", 3)
    place.put(ranker)
    with faulty_proxy(place.server.server.admin) as proxy:
        token = json.loads(place.server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
        scaler = place.start(proxy.kubeconfig(place.folder / "proxied.kubeconfig", token))
        until(lambda: "ranker" in place.rows(), lambda: f"a plan: {scaler.lines()}")
        proxy.choose = lambda method, path: Fault.CUT_BEFORE
        until(lambda: "cluster_away" in scaler.events(), "it says so")
        place.annotate(ranker, min_replicas="4")
        plan = place.plan()
        proxy.choose = lambda method, path: None
        until(lambda: "cluster_back" in scaler.events(), "it goes on")
        until(lambda: place.replicas("ranker") == 4, place.states)
        assert plan and plan.rows[0].replicas == 3
        assert scaler.end() == 0
    away = place.start(GPUWRIGHT_PROMETHEUS_URL=f"http://127.0.0.1:{free_port()}")
    until(lambda: "prometheus_away" in away.events(), lambda: f"it says so: {away.lines()}")
    assert "ranker" in place.rows()


def test_while_the_database_is_away_nothing_is_written_and_then_it_goes_on(
    scaling_server: ScalingServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    with EmbeddedPostgres(tmp_path / "data") as server:
        schema.migrate(server.url)
        url = server.url
    ranker = adopted_deployment("ranker", 3)
    with scaled_place(scaling_server, url, tmp_path, ["ranker"]) as place:
        place.put(ranker)
        with EmbeddedPostgres(tmp_path / "data"):
            scaler = place.start()
            until(lambda: "ranker" in place.rows(), lambda: f"a plan: {scaler.lines()}")
        place.annotate(ranker, min_replicas="4")
        until(lambda: scaler.events().count("database_away") > 1, "it says so, and tries again")
        assert scaler.gauge() == {}
        assert place.replicas("ranker") == 3
        with EmbeddedPostgres(tmp_path / "data"):
            until(lambda: place.replicas("ranker") == 4, lambda: f"it goes on: {scaler.lines()}")
            assert scaler.end() == 0


def test_a_second_step_of_a_workload_waits_so_that_somebody_may_see_the_first(place: ScaledPlace) -> None:
    began = place.server.server.audit.mark()
    place.put(adopted_deployment("own", 2, min_replicas="20", max_replicas="30"))
    place.start(GPUWRIGHT_SCALE_STEP_SECONDS="3600")
    until(lambda: place.states() == {"own": "approved"} and place.rows()["own"].wanted == 12, place.rows)
    until(lambda: place.rows()["own"].replicas == 6, place.rows)
    wrote = place.server.server.audit.writes(place.server.user.name, began)
    assert ([each.resource for each in wrote], place.replicas("own")) == (["deployments/scale"], 6)


def test_replicas_follow_the_load_until_now_by_the_rate_that_each_has_shown(
    scaling_server: ScalingServer, database_url: str, tmp_path: Path
) -> None:
    with scaled_place(scaling_server, database_url, tmp_path, ["ranker"], per_second=30.0, pods=3) as place:
        place.put(adopted_deployment("ranker", 1, slo_p99_ms="80"))
        scaler = place.start()
        until(lambda: place.states() == {"ranker": "written"}, lambda: f"{place.rows()} {scaler.lines()[-3:]}")
        row = place.rows()["ranker"]
        assert "/s shown for each: " in row.why
        assert row.wanted == place.replicas("ranker")
        assert row.wanted in (3, 4), row.why  # three have served it; one more for what may come


def test_without_a_known_load_or_with_faulty_bounds_no_number_is_wanted_and_what_is_at_none_stays(
    place: ScaledPlace,
) -> None:
    faulty = adopted_deployment("ranker", 2, max_replicas="4O")
    unknown, stopped = adopted_deployment("unknown", 2, min_replicas="4"), adopted_deployment("own", 0)
    place.put(faulty, unknown, stopped)
    scaler = place.start()
    until(lambda: len(place.rows()) == 3, lambda: f"a plan: {scaler.lines()}")
    rows = place.rows()
    assert (rows["ranker"].wanted, rows["unknown"].wanted) == (None, None), rows
    assert (rows["unknown"].state, rows["own"].state) == (ScaleState.STEADY, ScaleState.HELD)
    assert rows["own"].hold.startswith("it is scaled to none")
    assert scaler.gauge().keys() <= {"own"}
    assert [place.replicas(name) for name in rows] == [0, 2, 2]


def test_what_the_server_refuses_stands_with_its_approval_while_others_go_on(place: ScaledPlace) -> None:
    asked, own = adopted_deployment("asked", 2, mode="approve", min_replicas="4"), adopted_deployment("own", 2)
    place.put(asked, own)
    with faulty_proxy(place.server.server.admin) as proxy:
        token = json.loads(place.server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
        proxy.choose = lambda method, path: Fault.BUSY if method == "PUT" and "/asked/" in path else None
        scaler = place.start(proxy.kubeconfig(place.folder / "proxied.kubeconfig", token))
        until(lambda: place.states().get("asked") == "proposed", lambda: f"a plan: {scaler.lines()}")
        place.approve("asked")
        until(lambda: place.rows()["asked"].tries > 1, place.rows)
        place.annotate(own, min_replicas="3")
        until(lambda: place.states() == {"asked": "refused", "own": "written"}, place.rows)
        row = place.rows()["asked"]
        assert (row.decided_by, row.outcome[:40]) == ("ines", "the API server refused it: 429 the proxy")
        assert row.retry_at
        proxy.choose = lambda method, path: None
        until(lambda: place.states()["asked"] == "written", place.rows)
        proposed = [event for event in place.events() if event.reason == "replicas_proposed"]
        assert [event.times for event in proposed] == [1], "nobody was asked twice"
        assert scaler.end() == 0


def test_a_workload_whose_answers_do_not_come_holds_up_no_other(place: ScaledPlace) -> None:
    place.put(adopted_deployment("asked", 2, min_replicas="3"), adopted_deployment("own", 2, min_replicas="3"))
    with faulty_proxy(place.server.server.admin) as proxy:
        token = json.loads(place.server.user.kubeconfig.read_text())["users"][0]["user"]["token"]
        proxy.choose = lambda method, path: Fault.HANG_BEFORE if "/asked" in path else None
        scaler = place.start(proxy.kubeconfig(place.folder / "proxied.kubeconfig", token))
        until(lambda: place.states().get("own") == "written", lambda: f"{place.rows()} {scaler.lines()}")
        row = place.rows()["asked"]
        assert (row.state, row.tries) == ("approved", 0), "the other was written before this one was given up"
