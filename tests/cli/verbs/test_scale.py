"""`gpuwright scale` over a real server: the newest plan, and what operators and tenants may say of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from app.store.plans.scale_rows import ScalePlan, ScaleState
from cli import exits
from tests.cli.conftest import Run
from tests.support.scaling import ScalerStore, draft
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

RANKER, SEARCH = "shop/Deployment/ranker", "shop/Deployment/search"


@pytest.fixture
def store(server: RunningServer) -> Iterator[ScalerStore]:
    made = ScalerStore(server.database_url)
    yield made
    made.database.close()


def propose(store: ScalerStore, wanted: int = 5) -> ScalePlan:
    rows = draft(wanted, mode="approve"), draft(wanted, mode="approve", name="search"), draft(wanted, name="auto")
    return store.record(store.lead("a"), *rows)


def test_the_newest_plan_is_a_table_and_json(run: Run, store: ScalerStore) -> None:
    plan = propose(store)
    done = run("scale")
    assert done.lines[0].split() == ["WORKLOAD", "SERVICE", "MODE", "REPLICAS", "WANTED", "STATE", "WHY"]
    assert [RANKER, "ranker", "approve", "4", "5", "proposed", "its", "load"] in [line.split() for line in done.lines]
    found = json.loads(run("scale", "-o", "json").out)
    assert (found["generation"], len(found["items"])) == (plan.generation, 3)


def test_named_workloads_are_approved_together_or_not_at_all(run: Run, store: ScalerStore) -> None:
    generation = str(propose(store).generation)
    done = run("scale", "approve", generation, RANKER, "shop/Deployment/auto", "shop/Deployment/none")
    assert done.code == exits.REFUSED
    assert f"shop/Deployment/auto is approved in plan {generation}; only what is proposed can be approved" in done.err
    assert f"plan {generation} has no workload shop/Deployment/none" in done.err
    assert [row.state.value for row in store.read().rows] == ["approved", "proposed", "proposed"]
    done = run("scale", "approve", generation, RANKER, SEARCH)
    assert (done.code, len(done.lines)) == (0, 3)
    assert {row.state for row in store.read().rows} == {ScaleState.APPROVED}
    audited = json.loads(run("audit", "-o", "json").out)
    assert [f"{one['tenant']}/{one['name']}" for one in audited if one["kind"] == "Scale"] == [SEARCH, RANKER]
    assert "shop/Deployment/ranker: 4 -> 5 replicas" in run("events", "--reason", "replicas_approved").out


def test_a_plan_that_was_overtaken_is_refused_with_what_is_wanted_now(run: Run, store: ScalerStore) -> None:
    seen, newer = propose(store), propose(store, 6)
    done = run("scale", "approve", str(seen.generation), RANKER)
    assert done.code == exits.REFUSED
    wants = f"by plan {newer.generation}, which wants 6 replicas and is proposed"
    assert f"plan {seen.generation} is overtaken for {RANKER} {wants}" in done.err
    assert run("scale", "reject", str(newer.generation), RANKER).code == 0
    assert run("scale", "reject", str(newer.generation), RANKER).code == exits.REFUSED, "it is rejected already"
    assert run("scale", "approve", "9999", RANKER).code == exits.NO


def test_a_tenant_sees_the_namespace_of_its_name_and_approves_nothing(
    server: RunningServer, store: ScalerStore
) -> None:
    generation = propose(store).generation
    for tenant, count in (("shop", 3), ("lab", 0)):
        token = server.token("operator", tenant=tenant)
        assert len(server.request("GET", "/api/v1/scale", token=token).json["items"]) == count
        body = {"workloads": [RANKER]}
        reply = server.request("POST", f"/api/v1/scale/{generation}/approve", body, token=token)
        assert reply.status == 403


def test_a_name_of_another_form_is_refused(run: Run, server: RunningServer) -> None:
    assert "name the plan and the workloads" in run("scale", "approve").err
    reply = server.request("POST", "/api/v1/scale/1/approve", {"workloads": ["shop/ranker"]})
    assert reply.status == 422


def test_all_scalers_are_paused_by_one_command_which_is_audited_and_shown(run: Run, store: ScalerStore) -> None:
    plan = propose(store)
    done = run("scale", "pause", "-m", "load test")
    assert done.code == 0
    assert "scalers are paused by " in done.err and "load test; every workload is advisory until" in done.err
    assert not store.begin(plan.epoch, plan.rows[0]), "from the answer on no write begins"
    assert run("scale", "pause").code == exits.REFUSED
    shown = run("scale")
    assert "scalers are paused by " in shown.err
    assert json.loads(run("scale", "-o", "json").out)["pause"]["message"] == "load test"
    refused = run("scale", "approve", str(plan.generation), RANKER)
    assert (refused.code, "resume them, and approve then" in refused.err) == (exits.REFUSED, True)
    assert run("scale", "resume").code == 0
    assert run("scale", "resume").code == exits.REFUSED
    assert "paused by" not in run("scale").err
    audited = json.loads(run("audit", "-o", "json").out)
    assert [(one["verb"], one["detail"][:9]) for one in audited if one["name"] == "all"] == [
        ("resume", "paused by"), ("pause", "load test"),
    ]  # fmt: skip
    assert "load test" in run("events", "--reason", "scalers_paused").out
    assert run("scale", "pause", "12").code == exits.BAD_INPUT
    assert run("scale", "resume", "-m", "x").code == exits.BAD_INPUT


def test_a_tenant_or_a_viewer_pauses_no_scaler(server: RunningServer, store: ScalerStore) -> None:
    propose(store)
    for token in (server.token("operator", tenant="shop"), server.token("viewer")):
        assert server.request("POST", "/api/v1/scale/pause", token=token).status == 403
