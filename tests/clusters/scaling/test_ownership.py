"""Who sets replicas, in objects as they are read: what is unknown holds, and what is over does not."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.estate import OURS, UnknownFigure
from clusters.objects import ClusterObjects, objects_of
from clusters.promises import find_promises
from clusters.reading import read_estate
from clusters.scaling.adoption import MOST_NAMED, AdoptedWorkload, find_adopted, find_hold
from clusters.scaling.annotations import read_adoption
from clusters.scaling.sightings import Sighting, note_sightings
from tests.clusters.made_up import Item, autoscaler, deployment, node, pod_spec, scaled_object

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
ANNOTATIONS = {f"{OURS}service": "ranker", f"{OURS}mode": "approve"}


def writer(manager: str, ago: float | None, subresource: str = "", operation: str = "Update") -> dict[str, Any]:
    """An entry of managedFields that has the replicas, so many minutes old; None: the server has noted no time."""
    time = {} if ago is None else {"time": f"{NOW - timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}"}
    fields: dict[str, Any] = {"fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return {"manager": manager, "operation": operation, "subresource": subresource, **time, **fields}


def cluster(*writers: Item, more: tuple[Item, ...] = ()) -> ClusterObjects:
    ranker, *parts = deployment("shop", "ranker", pod_spec("registry.example/a:1", 1), ["n1"], annotations=ANNOTATIONS)
    ranker["metadata"] |= {"managedFields": list(writers), "generation": 3}
    found = objects_of([node("n1", 4, "NVIDIA-L4", "g6.12xlarge"), ranker, *parts, *more])
    return replace(found, server_time=NOW, read_until=NOW)


def hold(objects: ClusterObjects, seen_minutes: float | None = 60) -> str:
    """Returns what holds the workload for a scaler that has seen it as it is for so long; None: not before."""
    [found] = adopt(objects, seen_minutes)
    return found.hold


def adopt(objects: ClusterObjects, seen_minutes: float | None = 60) -> list[AdoptedWorkload]:
    estate, seen = read_estate(objects), note_sightings(objects, {})
    if seen_minutes is not None:
        seen = {uid: Sighting(each.generation, NOW - timedelta(minutes=seen_minutes)) for uid, each in seen.items()}
    return find_adopted(objects, estate, find_promises(estate), seen)


@pytest.mark.parametrize(
    ("minutes", "seen", "is_held"),
    [
        (9, 60, True),
        (10, 60, True),
        (11, 60, False),
        (-2, 60, True),
        (None, 9, True),
        (None, 11, False),
        (None, None, True),
    ],
)  # fmt: skip
def test_a_change_by_somebody_else_holds_for_ten_minutes_by_its_time_else_by_when_it_was_seen(
    minutes: float | None, seen: float | None, is_held: bool
) -> None:
    assert bool(hold(cluster(writer("kubectl-edit", minutes)), seen)) is is_held


@pytest.mark.parametrize("stamp", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_somebody_made_up_holds_its_workload_and_ends_nothing(stamp: str) -> None:
    forged = writer("kubectl-edit", None) | {"time": stamp}
    assert "kubectl-edit set its replicas at an unknown time" in hold(cluster(forged), seen_minutes=9)
    assert hold(cluster(forged)) == ""


def test_what_we_wrote_ourselves_holds_nobody_who_has_just_begun_to_look() -> None:
    ours = [writer("gpuwright", None, "scale"), writer("gpuwright-settled-81", None, "scale", "Apply")]
    assert hold(cluster(*ours), seen_minutes=None) == ""
    assert hold(cluster(*ours, writer("kubectl", None, "scale", "Apply"))).startswith(
        "the manifest that `kubectl apply"
    )


def test_without_any_note_of_who_wrote_replicas_a_workload_is_watched_for_ten_minutes() -> None:
    assert hold(cluster(), seen_minutes=9).startswith("somebody set its replicas at an unknown time before 11:51:00")
    assert hold(cluster(), seen_minutes=11) == ""


def test_a_stateful_set_whose_volumes_go_with_its_replicas_is_held() -> None:
    objects, adoption = cluster(writer("kubectl-create", 60)), read_adoption(ANNOTATIONS)
    [item] = objects.of("Deployment")
    spec = {**item["spec"], "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
    assert adoption is not None
    found = find_hold({**item, "spec": spec}, "StatefulSet", adoption, objects, Sighting(3, NOW - timedelta(hours=1)))
    assert found.startswith("its volumes are deleted when replicas go")


def test_an_hpa_beside_a_paused_scaled_object_still_owns_the_replicas() -> None:
    old = writer("kubectl-create", 60)
    [scaled, made] = scaled_object("shop", "ranker", 1, 9)
    scaled["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    assert hold(cluster(old, more=(scaled,))) == ""
    assert hold(cluster(old, more=(scaled, made))).startswith("HPA shop/keda-hpa-ranker owns its replicas")
    scaled["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "true"}
    assert hold(cluster(old, more=(scaled,))).startswith("KEDA's ScaledObject shop/ranker owns its replicas")


def test_an_autoscaler_of_another_kind_or_namespace_with_the_same_name_owns_nothing() -> None:
    others = (autoscaler("shop", "ranker", 1, 9, kind="StatefulSet"), autoscaler("vision", "ranker", 1, 9))
    assert hold(cluster(writer("kubectl-create", 60), more=others)) == ""


def test_lists_that_were_not_read_and_a_server_without_a_clock_hold() -> None:
    objects = cluster(writer("kubectl-create", 60))
    for kind in ("HorizontalPodAutoscaler", "ScaledObject", "Rollout"):
        left = {name: items for name, items in objects.lists.items() if name != kind}
        unread = replace(objects, lists=left, unread=(UnknownFigure(kind, "it is forbidden", "allow it"),))
        assert hold(unread) == f"it is unknown whether a {kind} owns its replicas: their list was not read; allow it"
    assert hold(replace(objects, server_time=None)) == "the API server has not said what time it is"


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"annotations": {"meta.helm.sh/release-name": "first"}}, "Helm's release shop/first"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "r"}}, "Flux's HelmRelease r"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux's Kustomization apps"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "models:apps"}}, "Argo CD application models"),
    ],
)
def test_what_labels_say_of_a_tool_counts_while_another_has_scaled_past_it(
    metadata: dict[str, dict[str, str]], name: str
) -> None:
    found = cluster(writer("kubectl", None, "scale"))
    [ranker] = found.of("Deployment")
    made: dict[str, Any] = ranker["metadata"]
    annotations = made["annotations"] | metadata.get("annotations", {})
    made |= {"annotations": annotations, "labels": metadata.get("labels", {})}
    assert hold(found).startswith(f"{name} manages it and may set back the replicas that kubectl set")
    annotations[f"{OURS}replicas-left-out"] = "true"
    assert hold(found) == ""
    del annotations[f"{OURS}replicas-left-out"]
    made["managedFields"] = [writer("gpuwright", None, "scale")]
    assert hold(found) == "", "what we wrote was free"


def test_another_generation_counts_from_when_it_is_seen() -> None:
    objects = cluster(writer("kubectl", None, "scale"))
    [(uid, first)] = note_sightings(objects, {}).items()
    later = replace(objects, read_until=NOW + timedelta(minutes=8))  # though it began to be read at NOW
    assert note_sightings(later, {uid: first}) == {uid: first}
    assert note_sightings(later, {uid: replace(first, generation=2)}) == {uid: Sighting(3, NOW + timedelta(minutes=8))}


@pytest.mark.slow
def test_of_thousands_of_faulty_workloads_a_few_are_named() -> None:
    workloads = [
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": place, "name": f"a{number:04}", "annotations": {f"{OURS}service": "A"} | more},
            "spec": {"replicas": 1},
        }
        for place, more in (("evil", {f"{OURS}sevice": "x"}), ("shop", {}))
        for number in range(2000 if place == "evil" else 5)
    ]  # fmt: skip
    objects = replace(objects_of(workloads), server_time=NOW, read_until=NOW)
    estate, began = read_estate(objects), time.process_time()
    found = find_adopted(objects, estate, find_promises(estate), {})
    assert time.process_time() - began < 0.5
    named = [each for each in found if "gpuwright.io/service 'A' is not a DNS label" in each.hold]
    assert Counter(each.name.namespace for each in named) == {"evil": MOST_NAMED, "shop": 5}
    assert all(not each.is_understood for each in found)


def test_two_workloads_may_serve_one_service_since_the_load_of_each_is_that_of_its_own_pods() -> None:
    canary = deployment("shop", "canary", pod_spec("registry.example/a:2", 1), ["n1"], annotations=ANNOTATIONS)
    found = adopt(cluster(writer("gpuwright", 60, "scale"), more=tuple(canary)))
    assert [(each.name.name, each.service, each.hold) for each in found] == [
        ("canary", "ranker", ""), ("ranker", "ranker", ""),
    ]  # fmt: skip
