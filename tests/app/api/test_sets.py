"""Sets: what is applied under a name, and what pruning it deletes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.server import Reply, RunningServer
from tests.support.soak import scaled
from tests.support.world import gpu_type, manifest, service

LABEL = "gpuwright.io/set"
FILES = {"Content-Type": "application/vnd.gpuwright.files+json"}


def apply(server: RunningServer, query: str, wanted: Sequence[Mapping[str, Any]], token: str | None = None) -> Reply:
    files = [{"name": f"{number}.json", "text": json.dumps(one)} for number, one in enumerate(wanted)]
    return server.request("POST", f"/api/v1/apply?{query}", json.dumps({"files": files}), headers=FILES, token=token)


def actions(reply: Reply) -> dict[str, str]:
    assert reply.status == 200, reply.text
    return {change["name"]: change["action"] for change in reply.json["changes"]}


def test_prune_deletes_what_left_the_set_of_any_kind_and_nothing_else(server: RunningServer) -> None:
    tenants = [manifest("Tenant", name, {}) for name in ("kept", "left-out")]
    assert apply(server, "set=p", [*tenants, gpu_type("left-too")]).status == 200
    assert apply(server, "set=q", [manifest("Tenant", "of-another", {})]).status == 200
    assert apply(server, "", [manifest("Tenant", "of-none", {})]).status == 200
    told = apply(server, "set=p&prune=true&dryRun=true", tenants[:1])
    assert actions(told) == {"kept": "unchanged", "left-out": "deleted", "left-too": "deleted"}
    assert server.request("GET", "/api/v1/tenants/left-out").json["metadata"]["labels"] == {LABEL: "p"}
    assert actions(apply(server, "set=p&prune=true", tenants[:1])) == actions(told)
    assert server.request("GET", "/api/v1/tenants/left-out").status == 404
    for name in ("kept", "of-another", "of-none"):
        assert server.request("GET", f"/api/v1/tenants/{name}").status == 200


def test_an_object_has_one_set_and_leaves_it_by_an_apply_without_one(server: RunningServer) -> None:
    mine = manifest("Tenant", "moved", {})
    assert apply(server, "set=from", [mine]).status == 200
    refused = apply(server, "set=to", [mine])
    assert refused.status == 409 and "Tenant moved of set from" in refused.json["detail"]
    assert actions(apply(server, "", [mine])) == {"moved": "updated"}
    assert actions(apply(server, "set=to", [mine])) == {"moved": "updated"}
    contradicting = apply(server, "set=to", [manifest("Tenant", "said", {}, **{LABEL: "other"})])
    (fault,) = contradicting.json["faults"]
    assert (contradicting.status, fault["value"]) == (422, "other") and fault["document"] == "0.json#1 Tenant said"


def test_who_replaces_or_patches_an_object_takes_it_out_of_its_set_only_by_name(server: RunningServer) -> None:
    path, merging = "/api/v1/tenants/stays", {"Content-Type": "application/merge-patch+json"}
    assert apply(server, "set=s", [manifest("Tenant", "stays", {}, colour="red")]).status == 200
    replaced = server.request("PUT", path, manifest("Tenant", "stays", {}, colour="blue"))
    assert replaced.json["metadata"]["labels"] == {"colour": "blue", LABEL: "s"}
    for labels, left in ((None, {LABEL: "s"}), ({LABEL: None}, {}), ({LABEL: "t"}, {LABEL: "t"})):
        body = json.dumps({"metadata": {"labels": labels}})
        assert server.request("PATCH", path, body, headers=merging).json["metadata"]["labels"] == left
    moved = server.request("PUT", path, manifest("Tenant", "stays", {}, **{LABEL: "u"}))
    assert moved.json["metadata"]["labels"] == {LABEL: "u"}
    assert server.request("DELETE", path).status == 200


def test_a_tenant_labels_nothing_as_of_a_set_of_others(server: RunningServer) -> None:
    token = server.token("operator", tenant="shop")
    foreign = {**service("own", "shop"), "metadata": {"name": "own", "tenant": "shop", "labels": {LABEL: "fleet"}}}
    refused = apply(server, "", [foreign], token)
    assert refused.status == 400 and "shop.NAME, or leave the label out" in refused.json["detail"]
    foreign["metadata"]["labels"][LABEL] = "shop.fleet"
    assert actions(apply(server, "", [foreign], token)) == {"own": "created"}
    assert server.request("DELETE", "/api/v1/services/shop/own").status == 200


@pytest.mark.parametrize(
    ("query", "words"),
    [("prune=true", "name the set"), *((f"set={name}", "is not allowed") for name in ("a.b", "A", "a" * 64))],
)
def test_a_set_without_a_right_name_is_refused(server: RunningServer, query: str, words: str) -> None:
    refused = apply(server, query, [manifest("Tenant", "unnamed", {})])
    assert refused.status == 400 and words in refused.text


def test_without_a_file_a_set_is_pruned_only_where_that_is_allowed(server: RunningServer) -> None:
    assert apply(server, "set=none&prune=true", []).status in (400, 422)
    assert actions(apply(server, "set=none&prune=true&allowEmpty=true", [])) == {}


KEYS = [
    ("Tenant", "", "pt1"), ("Tenant", "", "pt2"), ("GpuType", "", "pg1"), ("GpuType", "", "pg2"),
    ("Service", "shop", "ps1"), ("Service", "shop", "ps2"), ("Service", "lab", "ps1"),
]  # fmt: skip
PATHS = {"Tenant": "tenants", "GpuType": "gputypes", "Service": "services"}
SPECS = {
    "Tenant": {},
    "GpuType": gpu_type()["spec"],
    "Service": service("any", "shop")["spec"],
}  # fmt: skip
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Step:
    """An apply by somebody."""

    by: str  # a scope, or the tenant operator's tenant
    name: str
    keys: list[Key]
    prune: bool
    dry_run: bool


@dataclass
class Declared:
    """What must be stored: the set of each object, empty for none."""

    sets: dict[Key, str] = field(default_factory=dict)

    def apply(self, step: Step) -> bool:
        """Returns whether the step is allowed, after it was taken."""
        label = f"{step.by}.{step.name}" if step.by == "shop" and step.name else step.name
        wanted = set(step.keys)
        pruned = {key for key, of in self.sets.items() if step.prune and of == label and key not in wanted}
        if step.by == "operator" and any(kind == "Tenant" for kind, *_ in wanted | pruned):
            return False
        if step.by == "shop" and any((kind, tenant) != ("Service", "shop") for kind, tenant, _ in wanted):
            return False
        if label and any(self.sets.get(key, "") not in ("", label) for key in wanted):
            return False
        if not step.dry_run:
            self.sets = {key: of for key, of in self.sets.items() if key not in pruned} | dict.fromkeys(wanted, label)
        return True


def draw_steps() -> st.SearchStrategy[list[Step]]:
    keys = st.lists(st.sampled_from(KEYS), unique=True, max_size=4)
    by = st.sampled_from(["admin", "admin", "operator", "shop"])
    name = st.sampled_from(["", "x", "y"])
    drawn = st.tuples(by, name, keys, st.booleans(), st.sampled_from([False, False, True]))
    kept = drawn.filter(lambda step: bool(step[2] or (step[1] and step[3])))
    return st.lists(kept.map(lambda s: Step(s[0], s[1], s[2], s[3] and bool(s[1]), s[4])), min_size=2, max_size=8)


@pytest.mark.slow
def test_only_objects_of_the_set_are_pruned_whoever_applies_whatever(server: RunningServer) -> None:
    tokens = {
        "admin": server.admin_token,
        "operator": server.token("operator"),
        "shop": server.token("operator", tenant="shop"),
    }

    def look() -> dict[Key, tuple[str, int]]:
        found = {}
        for kind, path in PATHS.items():
            for one in server.request("GET", f"/api/v1/{path}").json["items"]:
                metadata = one["metadata"]
                key = (kind, metadata.get("tenant", ""), metadata["name"])
                if key in KEYS:
                    found[key] = (metadata["labels"].get(LABEL, ""), metadata["resourceVersion"])
        return found

    @settings(max_examples=scaled(300, 25, 5), deadline=None, suppress_health_check=list(HealthCheck))
    @given(draw_steps())
    def check(steps: list[Step]) -> None:
        declared, before = Declared(), look()
        for kind, tenant, name in before:
            server.request("DELETE", "/api/v1/" + "/".join(filter(None, (PATHS[kind], tenant, name))))
        before = {}
        for step in steps:
            wanted = [manifest(kind, name, SPECS[kind], tenant) for kind, tenant, name in step.keys]
            flags = {"prune": step.prune, "allowEmpty": step.prune, "dryRun": step.dry_run}
            query = "&".join([f"set={step.name}"] * bool(step.name) + [f"{k}=true" for k, on in flags.items() if on])
            earlier = dict(declared.sets)
            reply = apply(server, query, wanted, tokens[step.by])
            assert (reply.status == 200) is declared.apply(step), (step, reply.text)
            after = look()
            assert {key: of for key, (of, _) in after.items()} == declared.sets, step
            touched = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            assert touched <= set(step.keys) | {key for key in earlier if key not in declared.sets}
            before = after

    check()
