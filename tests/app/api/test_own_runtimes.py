"""Servers of one's own as they are declared: a warning if no node admits them, a refusal of what stays not apart."""

from __future__ import annotations

import json

import pytest

from tests.support.patience import until
from tests.support.reports import report, send
from tests.support.server import RunningServer
from tests.support.world import gpu_type, job, manifest, model, node, profile, service

pytestmark = pytest.mark.slow

RUNTIME = {"command": ["{python}", "/srv/app.py"], "args": ["--port={port}"]}
ENTRY = {"name": "app", "argv": ["{python}", "/srv/app.py", "--port={port}"]}


def own(**runtime: object) -> dict[str, object]:
    return model("mine", variants=[{"name": "fp16", "accuracy": 0.8, "runtime": {**RUNTIME, **runtime}}])


def warnings(api: RunningServer, *documents: object) -> list[str]:
    reply = api.request("POST", "/api/v1/apply", list(documents))
    assert reply.status == 200, reply.text
    found: list[str] = reply.json["warnings"]
    return found


def test_apply_names_what_no_node_admits(api: RunningServer) -> None:
    (first,) = warnings(api, gpu_type(), node("n1"), own())
    assert "no node has reported yet what it admits" in first
    token = api.token("node", node="n1")
    inventory = {"gpus": [], "templates": ["vllm"], "admitted": [ENTRY]}
    assert send(api, token, report("n1", 1, inventory=inventory)).status == 200
    until(lambda: "admitted" in api.request("GET", "/api/v1/nodes/n1").json["status"], "housekeeping has noted it")
    assert warnings(api, own(env={})) == []
    (refused,) = warnings(api, own(args=["--port={port}", "--reload"]))
    assert refused == (
        "Model mine: variant fp16: no node admits its runtime; n1: args: argument 3 '--reload' is not admitted by app, "
        "which ends before it"
    )
    (refused,) = warnings(api, own(env={"DEBUG": "1"}))
    assert "env: the variable 'DEBUG' is not admitted by app, which admits none" in refused


def test_what_planners_could_not_keep_apart_is_refused_whichever_comes_first(api: RunningServer) -> None:
    apart = manifest("Policy", "default", {"shareAcrossTenants": False})
    shared, alone = service("web", "shop", "mine"), service("web", "shop", "mine", isolation="dedicated")
    base = [gpu_type(), own(), profile("mine")]
    assert api.request("POST", "/api/v1/apply", [*base, shared]).status == 200
    refused = api.request("POST", "/api/v1/apply", [apart])
    assert refused.status == 422
    (fault,) = refused.json["faults"]
    assert (fault["field"], fault["allowed"]) == ("spec.isolation", "dedicated")
    assert "Service shop/web" in fault["document"]
    assert api.request("POST", "/api/v1/apply", [apart, alone]).status == 200
    assert api.request("POST", "/api/v1/apply", [shared]).status == 422
    assert api.request("POST", "/api/v1/apply", [job("train", "lab", preemptible=False)]).status == 422
    assert api.request("POST", "/api/v1/apply", [job("train", "lab")]).status == 200
    mudi = manifest("Policy", "default", {"shareAcrossTenants": False, "planner": "mudi"})
    assert "joint or hetsev" in json.dumps(api.request("POST", "/api/v1/apply", [mudi]).json)
