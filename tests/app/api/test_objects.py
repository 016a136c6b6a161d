"""The five routes of a kind, as a client sees them."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer
from tests.support.world import gpu_type, manifest, model, node, profile, service

MERGE = {"Content-Type": "application/merge-patch+json"}


def test_put_creates_then_replaces_and_an_equal_put_changes_nothing(server: RunningServer) -> None:
    path = "/api/v1/gputypes/put-me"
    created = server.request("PUT", path, gpu_type("put-me"))
    assert created.status == 201
    again = server.request("PUT", path, gpu_type("put-me"))
    assert (again.status, again.headers["etag"]) == (200, created.headers["etag"])
    dearer = server.request("PUT", path, gpu_type("put-me", pricePerHour=2.0))
    assert dearer.json["spec"]["pricePerHour"] == 2.0
    assert dearer.json["metadata"]["generation"] == 2
    assert dearer.json["metadata"]["resourceVersion"] > created.json["metadata"]["resourceVersion"]
    assert dearer.json["metadata"]["uid"] == created.json["metadata"]["uid"]


def test_put_takes_name_tenant_and_kind_from_the_path(server: RunningServer) -> None:
    spec = service("unnamed", "shop")["spec"]
    reply = server.request("PUT", "/api/v1/services/shop/unnamed", {"spec": spec})
    assert reply.status == 201
    assert reply.json["metadata"]["tenant"] == "shop"


def test_put_refuses_a_document_that_names_something_else(server: RunningServer) -> None:
    reply = server.request("PUT", "/api/v1/services/shop/other", service("search", "shop"))
    assert reply.status == 422
    assert reply.json["faults"][0]["field"] == "metadata.name"


def test_put_takes_yaml(server: RunningServer) -> None:
    text = "spec: {memoryGib: 8, smCount: 20, pricePerHour: 0.1, idleW: 8, maxW: 75, clocksMhz: [600]}\n"
    reply = server.request("PUT", "/api/v1/gputypes/from-yaml", text, headers={"Content-Type": "application/yaml"})
    assert reply.status == 201, reply.text


def test_patch_merges_as_rfc_7396_says(server: RunningServer) -> None:
    path = "/api/v1/services/shop/patched"
    server.request("PUT", path, service("patched", "shop", minInstances=2, priority=200))
    change = {"metadata": {"labels": {"team": "a"}}, "spec": {"minInstances": None, "slo": {"latencyMs": 90}}}
    reply = server.request("PATCH", path, change, headers=MERGE)
    assert reply.status == 200, reply.text
    assert reply.json["metadata"]["labels"] == {"team": "a"}
    assert "minInstances" not in reply.json["spec"]
    assert reply.json["spec"]["slo"] == {"latencyMs": 90, "percentile": 98}
    assert reply.json["spec"]["priority"] == 200


def test_patch_cannot_rename(server: RunningServer) -> None:
    change = {"metadata": {"name": "renamed"}}
    reply = server.request("PATCH", "/api/v1/services/shop/search", change, headers=MERGE)
    assert reply.status == 422


def test_a_patch_is_small_and_a_large_change_is_a_put(server: RunningServer) -> None:
    change = {"metadata": {"labels": {f"label-{n}": "v" * 20 for n in range(2_000)}}}
    reply = server.request("PATCH", "/api/v1/services/shop/search", change, headers=MERGE)
    assert reply.status == 413
    assert "put the whole object" in reply.json["detail"]
    many = {"spec": {"slo": [0] * 6_000}}
    assert server.request("PATCH", "/api/v1/services/shop/search", many, headers=MERGE).status == 413


def test_if_match_refuses_what_has_changed_since(server: RunningServer) -> None:
    path = "/api/v1/gputypes/matched"
    first = server.request("PUT", path, gpu_type("matched"))
    server.request("PUT", path, gpu_type("matched", pricePerHour=3.0))
    headers = {"If-Match": first.headers["etag"]}
    for method, body in (("PUT", gpu_type("matched")), ("PATCH", {"spec": {"idleW": 1}}), ("DELETE", None)):
        extra = MERGE if method == "PATCH" else {}
        assert server.request(method, path, body, headers=headers | extra).status == 412
    assert server.request("GET", path).json["spec"]["pricePerHour"] == 3.0


def test_if_match_any_writes_over_what_is_there_and_creates_nothing(server: RunningServer) -> None:
    anything = {"If-Match": "*"}
    assert server.request("PUT", "/api/v1/gputypes/nothing", gpu_type("nothing"), headers=anything).status == 412
    assert server.request("GET", "/api/v1/gputypes/nothing").status == 404
    server.request("PUT", "/api/v1/gputypes/something", gpu_type("something"))
    assert server.request("PUT", "/api/v1/gputypes/something", gpu_type("something"), headers=anything).status == 200


def test_what_the_caller_has_already_is_not_sent_again(server: RunningServer) -> None:
    path = "/api/v1/gputypes/kept"
    etag = server.request("PUT", path, gpu_type("kept")).headers["etag"]
    for tags in (etag, f'"1", W/{etag}', "*"):
        known = server.request("GET", path, headers={"If-None-Match": tags})
        assert (known.status, known.headers["etag"], known.text) == (304, etag, "")
    server.request("PUT", path, gpu_type("kept", pricePerHour=3.0))
    assert server.request("GET", path, headers={"If-None-Match": etag}).status == 200


def test_a_put_that_may_only_create_replaces_nothing(server: RunningServer) -> None:
    path, only_new = "/api/v1/gputypes/only", {"If-None-Match": "*"}
    assert server.request("PUT", path, gpu_type("only"), headers=only_new).status == 201
    again = server.request("PUT", path, gpu_type("only", pricePerHour=9.0), headers=only_new)
    assert again.status == 412 and "GpuType only exists, at version" in again.json["detail"]
    assert server.request("GET", path).json["spec"]["pricePerHour"] != 9.0
    for wrong in ({"If-None-Match": '"4"'}, {**only_new, "If-Match": "*"}):
        assert server.request("PUT", path, gpu_type("only"), headers=wrong).status == 412


def test_a_misspelt_parameter_is_refused_before_anything_is_written(server: RunningServer) -> None:
    path = "/api/v1/gputypes/tried"
    reply = server.request("PUT", f"{path}?dryrun=true", gpu_type("tried"))
    assert reply.status == 400
    assert "did you mean dryRun?" in reply.json["detail"]
    assert server.request("GET", path).status == 404
    assert server.request("GET", "/api/v1/services?labelselector=a%3Db").status == 400


def test_an_object_that_others_refer_to_is_not_deleted_and_they_are_named(server: RunningServer) -> None:
    reply = server.request("DELETE", "/api/v1/models/resnet50")
    assert reply.status == 409
    named = {(r["kind"], r.get("tenant"), r["name"]) for r in reply.json["referrers"]}
    assert ("Profile", None, "resnet50-fp16-v100") in named
    assert ("Service", "shop", "search") in named


def test_a_deleted_object_is_gone_and_its_last_state_is_the_answer(server: RunningServer) -> None:
    server.request("PUT", "/api/v1/gputypes/short-lived", gpu_type("short-lived"))
    reply = server.request("DELETE", "/api/v1/gputypes/short-lived")
    assert reply.json["spec"]["memoryGib"] == 16
    assert server.request("GET", "/api/v1/gputypes/short-lived").status == 404


def test_a_dry_run_answers_and_stores_nothing(server: RunningServer) -> None:
    path = "/api/v1/gputypes/only-imagined"
    assert server.request("PUT", path + "?dryRun=true", gpu_type("only-imagined")).status == 201
    assert server.request("GET", path).status == 404


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        (service("x", "shop", "resnet51"), "spec.model", "resnet50"),
        (service("x", "shop", slo={"latencyMs": 80, "percentile": 100}), "spec.slo.percentile", "99.9"),
        (service("x", "shop", ratePerSeconds=1), "spec.ratePerSeconds", "ratePerSecond"),
        (service("x", "shop", gpuTypes=["v100-16bg"]), "spec.gpuTypes", "v100-16gb"),
        (service("x", "shop", variants=["fp61"]), "spec.variants", "fp16"),
    ],
)
def test_a_fault_names_the_field_and_what_would_be_right(
    server: RunningServer, document: dict[str, object], field: str, said: str
) -> None:
    reply = server.request("PUT", "/api/v1/services/shop/x", document)
    assert reply.status == 422
    fault = next(f for f in reply.json["faults"] if f["field"].startswith(field))
    assert said in str(fault)


def test_a_second_profile_for_one_variant_and_gpu_type_is_refused(server: RunningServer) -> None:
    twin = profile("resnet50")
    twin["metadata"]["name"] = "twin"
    reply = server.request("PUT", "/api/v1/profiles/twin", twin)
    assert reply.status == 422
    assert "resnet50-fp16-v100" in reply.text


def test_a_variant_in_use_cannot_be_taken_away(server: RunningServer) -> None:
    narrower = model("resnet50", variants=[{"name": "int8", "accuracy": 0.7, "paramsM": 25.6}])
    reply = server.request("PUT", "/api/v1/models/resnet50", narrower)
    assert reply.status in (409, 422)
    assert "fp16" in reply.text


def test_a_service_whose_slo_nobody_meets_is_accepted_and_told(server: RunningServer) -> None:
    path = "/api/v1/services/shop/hopeless"
    reply = server.request("PUT", path, service("hopeless", "shop", slo={"latencyMs": 5, "percentile": 99}))
    assert reply.status == 201
    (condition,) = reply.json["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("SloAttainable", "False")
    assert "7.9" in condition["message"]


def test_a_better_profile_mends_the_condition(server: RunningServer) -> None:
    server.request("PUT", "/api/v1/models/mended", model("mended"))
    server.request("PUT", "/api/v1/services/shop/mended", service("mended", "shop", "mended"))

    def condition() -> tuple[str, str]:
        found = server.request("GET", "/api/v1/services/shop/mended").json["status"]["conditions"][0]
        return found["status"], found["reason"]

    assert condition() == ("False", "NoProfile")
    server.request("PUT", "/api/v1/profiles/mended-fp16-v100", profile("mended"))
    assert condition()[0] == "True"
    server.request("DELETE", "/api/v1/profiles/mended-fp16-v100")
    assert condition() == ("False", "NoProfile")


def test_pages_follow_the_cursor_to_the_end_without_a_gap(server: RunningServer) -> None:
    names = [f"page-{n:03}" for n in range(23)]
    assert server.request("POST", "/api/v1/apply", [gpu_type(name) for name in names]).status == 200
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = server.request("GET", f"/api/v1/gputypes?limit=5&cursor={cursor}").json
        seen += [item["metadata"]["name"] for item in page["items"]]
        cursor = page["metadata"]["next"]
    assert seen == sorted(seen)
    assert set(names) <= set(seen)
    assert len(seen) == len(set(seen))


def test_selectors_choose_by_label_and_field(server: RunningServer) -> None:
    wanted = manifest("GpuType", "labelled", gpu_type()["spec"], team="ml", tier="gold")
    server.request("PUT", "/api/v1/gputypes/labelled", wanted)

    def names(query: str, plural: str = "gputypes") -> list[str]:
        reply = server.request("GET", f"/api/v1/{plural}?{query}")
        assert reply.status == 200, reply.text
        return [item["metadata"]["name"] for item in reply.json["items"]]

    assert names("labelSelector=team%3Dml") == ["labelled"]
    assert names("labelSelector=team") == ["labelled"]
    assert names("labelSelector=team%3Dml,tier!%3Dgold") == []
    assert "labelled" not in names("labelSelector=!team")
    assert "search" in names("fieldSelector=spec.model%3Dresnet50", "services")
    assert "classify" not in names("fieldSelector=spec.model%3Dresnet50", "services")
    assert names("fieldSelector=metadata.name%3Dnode-1", "nodes") == ["node-1"]
    misspelt = server.request("GET", "/api/v1/services?fieldSelector=spec.modell%3Dresnet50")
    assert misspelt.status == 400
    assert "did you mean spec.model?" in misspelt.json["detail"]
    assert "search" not in names("tenant=lab", "services")


def test_a_gpu_type_whose_watts_no_longer_allow_a_nodes_cap_is_refused_until_the_cap_is_changed_with_it(
    server: RunningServer,
) -> None:
    server.request("PUT", "/api/v1/gputypes/capped", gpu_type("capped"))
    assert server.request("PUT", "/api/v1/nodes/rack-1", node("rack-1", "capped", capW=250)).status == 201
    wrong = server.request("PUT", "/api/v1/nodes/rack-1", node("rack-1", "capped", capW=[250, 250, 301, 250]))
    assert wrong.status == 422
    assert wrong.json["faults"][0]["field"] == "spec.capW[2]"
    assert wrong.json["faults"][0]["message"] == "301 W is above maxW 300 of GpuType capped"
    lower = server.request("PUT", "/api/v1/gputypes/capped", gpu_type("capped", maxW=200))
    assert lower.status == 409
    assert "Node rack-1: capW 250 W is above maxW 200 of GpuType capped" in lower.json["detail"]
    assert lower.json["referrers"] == [{"kind": "Node", "name": "rack-1"}]
    both = [gpu_type("capped", maxW=200), node("rack-1", "capped", capW=150)]
    assert server.request("POST", "/api/v1/apply", both).status == 200
