"""What of an explanation a tenant is shown: nothing that names what others run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.access import Principal, Reach, Scope
from app.api.answers.explain import hide_neighbours
from app.control.domain.snapshot import Correction, LatencyFactor
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.rows import write_correction
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import corrections, plans
from tests.support.missing_loop import OF_PLANS, missing_loop
from tests.support.patience import until
from tests.support.server import RunningServer, running_server
from tests.support.world import model, profile, service

WHY = "why this GPU: lab/x pay for it, so the job costs nothing there"
JOB: Any = {"job": "shop/tune", "reason": WHY, "relaxation": "", "sentences": ["shop/tune runs on node-0/1", WHY]}
TENANT, VIEWER = Principal("t1", Scope.VIEWER, "shop"), Principal("v1", Scope.VIEWER)


def test_a_tenant_is_not_told_whose_services_pay_for_the_gpu_of_its_job() -> None:
    own = hide_neighbours(JOB, TENANT, Reach.OWN)
    assert "lab" not in json.dumps(own)
    assert own["sentences"] == ["shop/tune runs on node-0/1"]
    assert hide_neighbours(JOB, VIEWER, Reach.ALL) == JOB


def test_why_its_job_waits_is_told_to_a_tenant() -> None:
    waits = JOB | {"reason": "of 4 GPUs it has a profile for: 4 with too few SM% left"}
    assert hide_neighbours(waits, TENANT, Reach.OWN)["reason"] == waits["reason"]


@pytest.mark.slow
def test_a_profile_says_what_was_declared_and_what_was_learned(server: RunningServer) -> None:
    reply = server.request("POST", "/api/v1/apply", [model("learned", tenants=["lab"]), profile("learned")])
    assert reply.status == 200, reply.text
    name = profile("learned")["metadata"]["name"]
    path = f"/api/v1/explain/profiles/{name}"
    declared = server.request("GET", path).json
    assert {point["source"] for point in declared["regions"]} == {"declared"}
    spec = profile("learned")["spec"]
    batch, curve = next(iter(spec["latencyMs"].items()))
    points = tuple(LatencyFactor(int(batch), int(sm), 1.2) for sm in curve)
    known = ProfileCorrection("/".join(spec[field] for field in ("model", "variant", "gpuType")), Correction(points))
    database = Database(server.database_url, pool_size=1)
    try:
        row = write_correction(known, datetime(2026, 1, 1, tzinfo=UTC))
        database.write(lambda connection: corrections.keep(connection, [row]))
    finally:
        database.close()
    learned = server.request("GET", path).json
    assert {point["factor"] for point in learned["regions"] if point["batch"] == int(batch)} == {1.2}
    assert "1.20 times as long" in learned["sentences"][1]
    assert server.request("GET", path, token=server.token("viewer", tenant="lab")).status == 200
    assert server.request("GET", path, token=server.token("viewer", tenant="shop")).status == 404
    assert server.request("GET", "/api/v1/explain/profiles/none").status == 404


def test_before_the_first_plan_it_is_said_what_came_of_trying(server: RunningServer) -> None:
    def asked(token: str | None = None) -> str:
        reply = server.request("GET", "/api/v1/explain/plans/0", token=token)
        assert reply.status == 404
        return str(reply.json["detail"])

    assert asked().startswith("there is no plan yet, and no planner leads: one that `gpuwright up` has just started")
    database = Database(server.database_url, pool_size=1)
    try:
        epoch = database.write(lambda c: lease.take(c, "a planner", 60.0))
        assert database.write(
            lambda c: plans.record_cycle(c, epoch or 0, "out_of_time", message="no answer within 25 s")
        )
        assert "the solver had no plan by its deadline" in asked()
        assert asked().endswith(": no answer within 25 s")
        assert database.write(lambda c: plans.record_cycle(c, epoch or 0, "unchanged"))
        assert asked().startswith("there is no plan yet: the declared node does not report; an agent has to run there")
    finally:
        database.close()
    assert asked(server.token("viewer", tenant="shop")) == "there is no plan yet"
    nowhere = service("hash", "press", "hasher")
    assert server.request("POST", "/api/v1/apply", [model("hasher"), nowhere]).status == 200
    own = server.token("viewer", tenant="press")
    refused = server.request("GET", "/api/v1/explain/services/press/hash", token=own)
    assert refused.json["detail"] == (
        "there is no plan yet: model hasher of press/hash has no profile, so nothing is known that could serve it; "
        "measure it: gpuwright profile hasher --on NODE --apply"
    )


@pytest.mark.slow
def test_a_question_is_refused_while_loops_are_compiled_with_the_time_to_ask_again(
    server: RunningServer, tmp_path: Path
) -> None:
    asks = partial(RunningServer.request, method="POST", path="/api/v1/whatif?work=1")
    with (
        missing_loop(tmp_path, OF_PLANS) as supply,
        running_server(server.database_url, XDG_CACHE_HOME=str(tmp_path)) as fresh,
    ):
        reply = asks(fresh)
        assert (reply.status, reply.headers["retry-after"]) == (503, "30")
        assert "loops are still being compiled, once on this machine; ask again" in reply.json["detail"]
        supply()
        until(lambda: asks(fresh).status == 200, "an answer once the loops are there")
