"""Level L2: what the planner's plan saves with profiles, what stays as it is, and room for a lost node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from clusters.bill import Bill
from clusters.certified.planning import certify_savings
from clusters.certified.posing import KnownProfiles
from clusters.certified.savings import CertifiedSavings
from clusters.estate import Estate
from clusters.measured import LatencyPromise, MeasuredLoads
from clusters.promises import find_promises
from clusters.savings import find_savings
from clusters.sharing.rooms import keep_for_loss, open_rooms
from solvers.planning.problem import GpuType, Profile, Variant
from solvers.planning.solve import SolveBudget
from tests.clusters.made_up import Item, autoscaler
from tests.clusters.savings.fleets import STEP_SECONDS, STEPS, assessed, even, named, nodes, served

FAST = Profile("m0", "fp16", "l40s", {1: ((10, 10.0), (50, 3.0), (100, 2.0))}, {1: 4.0})
MODELS = [f"m{at}" for at in range(5)]
KNOWN = KnownProfiles(
    {"l40s": GpuType("l40s", 48.0, 40.0, 350.0, (2500.0,))}, {name: (Variant("fp16", 1.0),) for name in MODELS},
    tuple(replace(FAST, model=name) for name in MODELS), {"NVIDIA-L40S": "l40s"},
)  # fmt: skip
TEN = [f"n{at // 2}" for at in range(10)]

pytestmark = pytest.mark.slow


def annotated(at: int = 4, **more: str) -> dict[str, str]:
    given = {"model": f"m{at}", "slo-p99-ms": "100", **{key.replace("_", "-"): text for key, text in more.items()}}
    return {f"gpuwright.io/{key}": text for key, text in given.items() if text}


def workloads(**more: Mapping[str, str]) -> list[Item]:
    """Five nodes of two GPUs, and on each a workload with two replicas."""
    items = nodes(5, 2)
    for at in range(5):
        items += served(f"w{at}", TEN[2 * at : 2 * at + 2], annotations=more.get(f"w{at}", annotated(at)))
    return items


def read(items: list[Item]) -> tuple[Estate, Bill, MeasuredLoads]:
    estate, bill = assessed(items)
    series = {each.name: even(20.0, 2) for each in estate.workloads}
    passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
    return estate, bill, MeasuredLoads(0.0, STEP_SECONDS, STEPS, "test", series, passing)


def certified(items: list[Item], known: KnownProfiles = KNOWN) -> CertifiedSavings:
    estate, bill, measured = read(items)
    promises = find_promises(estate)
    kept = {name: promise.latency for name, promise in promises.items() if promise.latency}
    needs = find_savings(estate, bill, measured, kept).needs
    return certify_savings(estate, bill, measured, needs, promises, known, SolveBudget(None, 100), alone=True)


def test_five_workloads_share_a_node_and_another_stays_for_its_loss() -> None:
    found = certified(workloads())
    assert (found.nano_per_hour, len(found.nodes)) == (30 * 10**9, 3)
    assert found.limit_nano_per_hour is not None
    assert found.nano_per_hour <= found.limit_nano_per_hour < 40.001 * 10**9  # without room for a loss
    assert {each.workload.name for each in found.workloads} == {f"w{at}" for at in range(5)}


def test_replicas_that_must_stay_have_gpus_of_their_own() -> None:
    found = certified([*workloads(), autoscaler("shop", "w0", 2, 9)])
    (planned,) = [each for each in found.workloads if each.workload == named("w0")]
    assert planned.replicas == planned.gpus == 2


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({}, "no annotation names its model"),
        (annotated(model="slow"), "no Profile is of model slow"),
        (annotated(variant="int4"), "no annotation says which variant of m4 it serves"),
        (annotated(slo_p99_ms=""), "it has no SLO"),
        (
            annotated(slo_p99_ms="", slo_ttft_ms="100", slo_tpot_ms="10"),
            "it promises times of tokens: it is sized by itself",
        ),
    ],
)  # fmt: skip
def test_what_profiles_do_not_fit_keeps_its_gpus(annotations: Mapping[str, str], reason: str) -> None:
    found = certified(workloads(w4=annotations))
    assert found.staying == {named("w4"): reason}
    assert "n4" not in found.nodes


def test_a_profile_on_another_gpu_type_alone_certifies_nothing() -> None:
    other = replace(KNOWN, types_of_products={"NVIDIA-A10G": "l40s"})
    found = certified(workloads(), other)
    assert (found.nano_per_hour, found.workloads) == (0, ())
    assert found.staying[named("w3")] == "no Profile is of m3 (fp16) on NVIDIA-L40S"


def test_what_the_plan_cannot_serve_stays_and_the_rest_is_planned() -> None:
    found = certified(workloads(w0=annotated(0, slo_p99_ms="1")))  # less than any batch takes
    assert found.staying[named("w0")].startswith("the plan does not serve it: ")
    assert "n0" not in found.nodes
    assert found.nano_per_hour == 20 * 10**9  # beside w0's node another one is full, and one is free for a loss


@pytest.mark.parametrize(
    ("used", "kept"),
    [({}, 0), ({"n0": 1}, 2), ({"n0": 2}, 2), ({"n0": 2, "n1": 1}, 3), ({"n0": 1, "n1": 1}, 2)],
)  # fmt: skip
def test_as_many_gpus_stay_free_as_the_loss_of_any_node_takes(used: Mapping[str, int], kept: int) -> None:
    estate, bill, measured = read(workloads())
    promises = {each.name: LatencyPromise(100.0, "test") for each in estate.workloads}
    needs = find_savings(estate, bill, measured, promises).needs
    (kind,) = open_rooms(estate, bill, measured, needs, {}).kinds
    assert len(keep_for_loss(kind, used)) == kept
