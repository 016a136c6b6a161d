"""GPUs that KAI's scheduler divides: equal parts of them count to their users, and the answer says so."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from clusters.api_server import trim
from clusters.estate import Estate
from clusters.objects import objects_of
from clusters.reading import read_estate
from clusters.savings.floors import find_obstacle
from tests.clusters.made_up import Item, deployment, node, pod, pod_spec

L40S = node("n1", 4, "NVIDIA-L40S", "g6e.12xlarge")


def read(*items: Item) -> Estate:
    return read_estate(objects_of(items))


def kai_part(name: str, place: str = "n1", **labels: str) -> dict[str, Any]:
    """Returns a pod to which KAI's scheduler gives a part of a GPU."""
    part = pod("lab", name, pod_spec("v:1", 0), place, labels=labels)
    part["metadata"]["annotations"] = {"gpu-fraction": "0.3"}
    kept = trim("Pod", part)
    assert kept is not None
    return dict(kept)


def test_a_gpu_that_kai_reserves_is_divided_among_the_pods_that_use_it() -> None:
    first, second = ({"runai-gpu-group": name} for name in ("g-1", "g-2"))
    reserving = [
        pod("kai-resource-reservation", f"gpu-reservation-{n}", pod_spec("r:1", 1), "n1", labels=labels)
        for n, labels in enumerate((first, second))
    ]
    over = kai_part("over", **first)
    over["status"]["phase"] = "Succeeded"
    both = kai_part("both", **{"runai-gpu-group/g-1": "g-1", "runai-gpu-group/g-2": "g-2"})
    parts = [kai_part("a", **first), kai_part("b", **first), both, over, kai_part("waits", place="")]
    estate = read(L40S, *reserving, *parts)
    held = {each.name: each.gpus for each in estate.pods}
    assert held == {
        "a": Fraction(1, 3), "b": Fraction(1, 3), "both": Fraction(4, 3),
        "gpu-reservation-0": 0, "gpu-reservation-1": 0,
    }  # fmt: skip
    assert {each.name for each in estate.pods if each.uses_part} == {"a", "b", "both"}
    assert "annotation of KAI" not in str(estate.unknown)


def test_labels_that_are_doubled_or_of_another_node_lose_no_gpu_and_add_none() -> None:
    group = {"runai-gpu-group": "g-1"}
    reserving = pod("kai", "gpu-reservation-0", pod_spec("r:1", 1), "n1", labels=group)
    doubled = kai_part("doubled", **group, **{"runai-gpu-group/g-1": "g-1"})
    elsewhere = kai_part("elsewhere", "n2", **group)
    both = kai_part("both", **group)
    both["spec"] = pod_spec("v:1", 1) | {"nodeName": "n1"}
    nameless = kai_part("nameless", **{"runai-gpu-group/": "", "runai-gpu-group": ""})
    estate = read(L40S, node("n2", 4, "NVIDIA-L40S", "g6e.12xlarge"), reserving, doubled, elsewhere, both, nameless)
    held = {each.name: each.gpus for each in estate.pods}
    assert held == {"gpu-reservation-0": 0, "doubled": Fraction(1, 2), "both": Fraction(3, 2)}
    assert {each.name for each in estate.pods if each.uses_part} == {"doubled", "both"}
    assert str(estate.unknown).count("annotation of KAI") == 2


def test_a_workload_with_equal_parts_stays_as_it_is_and_that_is_said() -> None:
    objects = [*deployment("lab", "parts", pod_spec("v:1", 0), ["n1", "n1"])]
    for item in objects:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"gpu-memory": "2000"}
            item["metadata"]["labels"]["runai-gpu-group"] = "g-1"
    reserving = pod("kai", "gpu-reservation-0", pod_spec("r:1", 1), "n1", labels={"runai-gpu-group": "g-1"})
    estate = read(L40S, reserving, *objects)
    [found] = [each for each in estate.workloads if each.name.name == "parts"]
    assert (found.gpus, found.running) == (Fraction(1), 2)
    assert "KAI's scheduler gives it equal parts" in find_obstacle(found, estate.pods_of(found.name), estate)


def test_a_part_whose_reservation_was_not_read_is_named() -> None:
    estate = read(L40S, kai_part("half", **{"runai-gpu-group": "g-1"}))
    assert "it shares a GPU by an annotation" in str(estate.unknown)
    assert estate.pods == ()


def test_a_reservation_that_nobody_uses_any_more_holds_its_gpu() -> None:
    labels = {"runai-gpu-group": "g-1"}
    estate = read(L40S, pod("kai", "gpu-reservation-0", pod_spec("r:1", 1), "n1", labels=labels))
    assert [each.gpus for each in estate.pods] == [Fraction(1)]
