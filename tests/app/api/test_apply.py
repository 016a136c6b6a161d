"""Many documents at once: all of them or none, and what a dry run tells."""

from __future__ import annotations

import json

from sqlalchemy import Connection

from app.manifests.model import Key, Kind
from app.store.database import clock
from app.store.database.database import Database
from app.store.world import objects
from app.world.conditions import ObjectCondition, set_condition
from tests.support.server import Reply, RunningServer
from tests.support.world import gpu_type, manifest, model, node, profile, service

FILES = {"Content-Type": "application/vnd.gpuwright.files+json"}
YAML = {"Content-Type": "application/yaml"}


def test_one_fault_keeps_all_documents_out_and_every_fault_is_named(server: RunningServer) -> None:
    documents = [
        gpu_type("all-or-none"),
        service("a", "shop", "no-such-model"),
        service("b", "shop", "no-such-model", priority=0),
        model("broken", variants=[]),
        service("c", "shop", "broken"),  # what it refers to is at fault, and not missing
    ]
    reply = server.request("POST", "/api/v1/apply", documents)
    assert reply.status == 422
    named = {(fault["document"].partition(" ")[2], fault["field"]) for fault in reply.json["faults"]}
    assert named == {
        ("Service shop/a", "spec.model"),
        ("Service shop/b", "spec.priority"),
        ("Service shop/b", "spec.model"),  # beside a fault of its shape
        ("Model broken", "spec.variants"),
    }
    assert server.request("GET", "/api/v1/gputypes/all-or-none").status == 404


def test_beside_another_fault_what_a_manifest_refers_to_is_found(server: RunningServer) -> None:
    reply = server.request("POST", "/api/v1/apply", [service("faulty", "shop", priority=0)])
    assert [fault["field"] for fault in reply.json["faults"]] == ["spec.priority"]


def test_documents_may_refer_to_each_other_in_any_order(server: RunningServer) -> None:
    documents = [service("fwd", "shop", "fwd"), profile("fwd"), model("fwd")]
    reply = server.request("POST", "/api/v1/apply", documents)
    assert reply.status == 200, reply.text
    assert [change["action"] for change in reply.json["changes"]] == ["created"] * 3


def test_adapters_are_compared_with_the_profiles_that_are_declared_already(server: RunningServer) -> None:
    llm = {"weightsGib": 15, "layers": 32, "kvBytesPerToken": 131072, "contextTokens": 4096}
    places = {"places": 1, "maxRank": 16, "placeGib": 0.1}
    iteration = {"1": {"baseMs": 3, "tokenMs": 0.03}}
    measured = profile("tuned", latencyMs=None, memoryGib=None, iteration=iteration, adapters=places)
    measured["spec"] = {name: value for name, value in measured["spec"].items() if value is not None}
    known = model("tuned")
    for variant in known["spec"]["variants"]:
        variant["llm"] = llm
    assert server.request("POST", "/api/v1/apply", [known, measured]).status == 200
    length = {"mean": 100, "p95": 200}
    promise = {"slo": {"ttftMs": 900, "tpotMs": 50, "percentile": 95}, "tokens": {"input": length, "output": length}}

    def apply(count: int, *more: object) -> Reply:
        adapters = [{"name": f"a{at}", "path": f"adapters/a{at}", "rank": 8} for at in range(count)]
        wanted = service("tuned", "shop", "tuned", **promise, adapters=adapters)
        return server.request("POST", "/api/v1/apply", [wanted, *more])

    assert apply(1).status == 200
    (fault,) = apply(2).json["faults"]
    assert fault["field"] == "spec.adapters"
    assert "places for 2 adapters of rank 8" in fault["message"]
    measured["spec"] = {**measured["spec"], "adapters": {**places, "places": 2}}
    assert apply(2, measured).status == 200, "the profile that comes with it counts"


def test_what_get_shows_can_be_applied_again_and_changes_nothing(server: RunningServer) -> None:
    shown = server.request("GET", "/api/v1/services/shop/search").json
    reply = server.request("POST", "/api/v1/apply", [shown])
    assert reply.json["changes"][0]["action"] == "unchanged"
    assert reply.json["changes"][0]["resourceVersion"] == shown["metadata"]["resourceVersion"]


def test_a_dry_run_tells_the_difference_field_by_field(server: RunningServer) -> None:
    server.request("PUT", "/api/v1/services/shop/dry", service("dry", "shop"))
    wanted = service("dry", "shop", slo={"latencyMs": 60, "percentile": 98}, minInstances=2)
    reply = server.request("POST", "/api/v1/apply?dryRun=true", [wanted])
    changes = {change["path"]: (change["before"], change["after"]) for change in reply.json["changes"][0]["diff"]}
    assert changes == {"spec.slo.latencyMs": (80, 60), "spec.minInstances": (None, 2)}
    assert server.request("GET", "/api/v1/services/shop/dry").json["spec"]["slo"]["latencyMs"] == 80


def test_several_yaml_files_go_as_one(server: RunningServer) -> None:
    one = "apiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {name: from-files}\nspec: {}\n"
    two = "---\napiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {name: from-more}\nspec: {}\n---\n"
    body = json.dumps({"files": [{"name": "one.yaml", "text": one}, {"name": "two.yaml", "text": two}]})
    reply = server.request("POST", "/api/v1/apply", body, headers=FILES)
    assert reply.status == 200, reply.text
    assert [change["name"] for change in reply.json["changes"]] == ["from-files", "from-more"]


def test_a_fault_says_in_which_file_and_document_it_is(server: RunningServer) -> None:
    text = "apiVersion: gpuwright/v1\nkind: Tenannt\nmetadata: {name: x}\nspec: {}\n"
    body = json.dumps({"files": [{"name": "fleet.yaml", "text": text}]})
    reply = server.request("POST", "/api/v1/apply", body, headers=FILES)
    (fault,) = reply.json["faults"]
    assert fault["document"].startswith("fleet.yaml#1")
    assert fault["suggestion"] == "Tenant"


def test_conditions_of_before_are_no_warnings_of_a_change(server: RunningServer) -> None:
    server.request("PUT", "/api/v1/services/shop/good", service("good", "shop"))
    database = Database(server.database_url, pool_size=1)
    try:
        database.write(_set_not_degraded)
    finally:
        database.close()
    reply = server.request("POST", "/api/v1/apply", [service("good", "shop", ratePerSecond=20)])
    assert reply.json["changes"][0]["action"] == "updated"
    assert reply.json["warnings"] == []


def test_arguments_that_a_shipped_template_lacks_are_warned_of(server: RunningServer) -> None:
    runtime = {"template": "gpuwright-serve", "args": {"model": "m", "precision": "fp16"}}
    wanted = model("argued", variants=[{"name": "fp16", "accuracy": 0.8, "runtime": runtime}])
    (warning,) = server.request("POST", "/api/v1/apply", [wanted]).json["warnings"]
    assert warning.startswith("Model argued: variant fp16: template gpuwright-serve, as it ships, has no argument")


def _set_not_degraded(connection: Connection) -> None:
    key = Key(Kind.SERVICE, "shop", "good")
    stored = objects.get(connection, key)
    assert stored is not None
    good = ObjectCondition("Degraded", "False", "AllPlanned", "the service has the capacity that it needs")
    objects.update_status(connection, [set_condition(stored, good, clock.now(connection))])


def test_a_rate_that_the_whole_fleet_cannot_carry_is_warned_of(server: RunningServer) -> None:
    # 8 requests in 22.1 ms on a GPU, at the load that keeps 98 % of them within 80 ms: 304 a second; there are four.
    huge = [service("huge", "shop", ratePerSecond=1e9)]
    reply = server.request("POST", "/api/v1/apply?dryRun=true", huge)
    assert reply.json["warnings"] == [
        "Service shop/huge: it asks for 1,000,000,000 requests a second; the fleet carries at most 1,217 a second of "
        "it, with every GPU for it alone"
    ]
    both = server.request("POST", "/api/v1/apply?dryRun=true", [node("another"), *huge]).json["warnings"]
    assert "at most 2,434 a second" in both[0]
    tenants = server.request("POST", "/api/v1/apply?dryRun=true", huge, token=server.token("operator", tenant="shop"))
    assert tenants.json["warnings"] == [
        "Service shop/huge: it asks for 1,000,000,000 requests a second; that is more than the fleet could carry "
        "within its SLO with every GPU for it alone"
    ]
    fitting = server.request("POST", "/api/v1/apply?dryRun=true", [service("huge", "shop", ratePerSecond=1200)])
    assert fitting.json["warnings"] == []


def test_an_slo_that_no_plan_keeps_at_the_declared_rate_is_warned_of_with_one_that_the_rate_needs(
    server: RunningServer,
) -> None:
    def warnings(latency_ms: float) -> list[str]:
        tight = service("tight", "shop", ratePerSecond=300, slo={"latencyMs": latency_ms, "percentile": 98})
        return list(server.request("POST", "/api/v1/apply?dryRun=true", [tight]).json["warnings"])

    (crowded,) = warnings(10)  # alone, a request takes 8.295 ms
    assert crowded.startswith("Service shop/tight: it asks for 300 requests a second; the fleet carries at most ")
    needs = float(crowded.partition("this rate needs an SLO of ")[2].partition(" ms or more")[0])
    assert 10 < needs < 60
    assert warnings(needs * 1.01) == [] and warnings(needs * 0.99)
    hopeless = warnings(5)
    assert (
        "no request can finish within 5 ms, even alone" in hopeless[0] and "under load it takes longer" in hopeless[0]
    )
    assert f"this rate needs an SLO of {needs:.4g} ms or more" in hopeless[1]


def test_a_new_service_without_rate_or_tenant_is_warned_of_with_what_holds_instead(server: RunningServer) -> None:
    bare = service("bare", "shop")
    del bare["metadata"]["tenant"], bare["spec"]["ratePerSecond"]
    warned = [
        "Service default/bare: ratePerSecond is left out, so 1 request a second is planned until a gateway has counted "
        "its requests",
        "Service default/bare: its tenant is default, as where metadata.tenant is left out: its cost is booked on that "
        "tenant, which has no limit and no budget",
    ]
    for path in ("/api/v1/apply?dryRun=true", "/api/v1/apply"):
        assert server.request("POST", path, [bare]).json["warnings"] == warned
    assert server.request("POST", "/api/v1/apply", [bare]).json["warnings"] == []  # nothing is new
    another = service("another", "default")
    tenant = manifest("Tenant", "default", {"limit": {"gpus": 4}})
    assert server.request("POST", "/api/v1/apply?dryRun=true", [tenant, another]).json["warnings"] == []


def test_a_rate_that_rises_steeply_is_warned_of_before_it_counts(server: RunningServer) -> None:
    server.request("POST", "/api/v1/apply", [service("steep", "shop", ratePerSecond=20)])
    steeper = server.request("POST", "/api/v1/apply?dryRun=true", [service("steep", "shop", ratePerSecond=200)])
    assert steeper.json["warnings"] == [
        "Service shop/steep: ratePerSecond is 10 times what it was, 20 -> 200; what others would lose: "
        "gpuwright what-if --rate shop/steep=200"
    ]
    higher = server.request("POST", "/api/v1/apply?dryRun=true", [service("steep", "shop", ratePerSecond=60)])
    assert higher.json["warnings"] == []


def test_a_warning_says_that_an_accepted_slo_cannot_be_met(server: RunningServer) -> None:
    hopeless = service("warned", "shop", slo={"latencyMs": 1, "percentile": 98})
    reply = server.request("POST", "/api/v1/apply", [hopeless])
    assert reply.status == 200
    assert any("Service shop/warned" in text for text in reply.json["warnings"])


def test_a_service_without_a_tenant_belongs_to_the_tokens(server: RunningServer) -> None:
    wanted = service("own", "shop")
    del wanted["metadata"]["tenant"]
    reply = server.request("POST", "/api/v1/apply", [wanted], token=server.token("operator", tenant="shop"))
    assert reply.json["changes"][0]["tenant"] == "shop"


def test_state_is_for_files_and_refused_here(server: RunningServer) -> None:
    text = "apiVersion: gpuwright/v1\nkind: State\nmetadata: {name: now}\nspec: {}\n"
    reply = server.request("POST", "/api/v1/apply", text, headers=YAML)
    assert reply.status == 422


def test_another_media_type_is_refused_with_those_that_are_understood(server: RunningServer) -> None:
    reply = server.request("POST", "/api/v1/apply", "x", headers={"Content-Type": "text/csv"})
    assert reply.status == 415
    assert "application/yaml" in reply.json["detail"]


def test_a_budget_is_in_the_currency_that_is_spent(server: RunningServer) -> None:
    def tenant(currency: str) -> dict[str, object]:
        return manifest("Tenant", "thrifty", {"budget": {"perMonth": 1000, "currency": currency}})

    wrong = [
        server.request("POST", "/api/v1/apply", [tenant("USD")]),
        server.request("POST", "/api/v1/apply?dryRun=true", [tenant("USD")]),
        server.request("PUT", "/api/v1/tenants/thrifty", tenant("USD")),
        server.request("POST", "/api/v1/whatif", [tenant("USD")]),
    ]
    assert server.request("GET", "/api/v1/tenants/thrifty").status == 404
    assert server.request("POST", "/api/v1/apply", [tenant("EUR")]).status == 200
    patch = {"spec": {"budget": {"currency": "USD"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    wrong.append(server.request("PATCH", "/api/v1/tenants/thrifty", patch, headers=merge))
    for reply in wrong:
        assert reply.status == 422, reply.text
        (fault,) = reply.json["faults"]
        assert (fault["field"], fault["value"]) == ("spec.budget.currency", "USD")
        assert fault["allowed"] == "EUR, or leave the field out"
    without = {"spec": {"budget": {"currency": None}}}
    assert server.request("PATCH", "/api/v1/tenants/thrifty", without, headers=merge).status == 200
    both = server.request("POST", "/api/v1/apply", [tenant("USD"), model("dear", variants=[])])
    assert {fault["field"] for fault in both.json["faults"]} == {"spec.budget.currency", "spec.variants"}
