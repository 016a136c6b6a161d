"""The families are what they say: shares, promises, loads, and the same problem by file as by hand."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from app.control.formulate.problem import build_problem
from app.manifests.offline import Input, load
from benchmarks import hardware
from benchmarks.families import FAMILIES, LOAD_SHARES, PERCENTILES, family
from benchmarks.load import scale_to_load
from benchmarks.manifests import manifests


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_the_same_problem_every_time_and_another_for_another_seed(name: str) -> None:
    assert family(name, 20, 10, 1) == family(name, 20, 10, 1)
    assert family(name, 20, 10, 1) != family(name, 20, 10, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_written_to_a_file_is_read_back_as_the_same_problem(name: str) -> None:
    problem = family(name, 12, 10, 3)
    text = json.dumps(manifests(problem)).encode()
    assert build_problem(load([Input("family.json", text, "json")])) == problem


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_load_is_as_stated_within_two_percent(name: str) -> None:
    again = scale_to_load(family(name, 60, 30, 4), LOAD_SHARES.get(name, 0.8))
    assert again.scale == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_the_load_of_a_large_family_is_as_stated_though_services_are_grouped() -> None:
    problem = family("A", 2_000, 600, 0)
    assert scale_to_load(problem, 0.8).scale == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("gpus", [1, 8, 100, 1_000, 9_999])
def test_gpus_come_in_the_shares_of_the_types_and_add_up(gpus: int) -> None:
    counts = hardware.counts(gpus)
    assert sum(counts.values()) == gpus
    for entry in hardware.FLEET:
        assert abs(counts[entry.gpu_type.name] - gpus * entry.share) < 1


def test_nodes_hold_four_gpus_and_the_last_of_a_type_what_is_left() -> None:
    problem = family("A", 106, 5, 0)
    assert sum(node.gpu_count for node in problem.nodes.values()) == 106
    sizes = Counter((node.gpu_type, node.gpu_count) for node in problem.nodes.values())
    smaller = Counter(gpu_type for gpu_type, gpus in sizes.elements() if gpus < 4)
    assert max(smaller.values()) == 1
    assert all(gpus <= 4 for _, gpus in sizes)


@pytest.mark.slow
def test_services_have_the_promises_and_rates_of_family_a() -> None:
    problem = family("A", 1_000, 300, 5)
    services = list(problem.services.values())
    assert len(problem.models) == 18
    assert {service.percentile for service in services} == set(PERCENTILES)
    rates = np.sort([service.rate_per_second for service in services])[::-1]
    assert rates[0] / rates[9] == pytest.approx(10**0.9, rel=1e-4)
    for service in services:
        alone = [
            dict(profile.latency_ms[1])[100] for profile in problem.profiles.values() if profile.model == service.model
        ]
        assert 2.19 < service.slo_ms / float(np.median(alone)) < 12.01


def test_every_profile_slows_down_as_sms_are_taken_away_and_speeds_up_by_batching() -> None:
    for profile in family("C", 8, 4, 0).profiles.values():
        for curve in profile.latency_ms.values():
            times = [value for _, value in curve]
            assert times == sorted(times, reverse=True)
        whole = [dict(profile.latency_ms[batch])[100] / batch for batch in (1, 2, 4, 8, 16, 32)]
        assert whole == sorted(whole, reverse=True)


@pytest.mark.slow
def test_family_c_asks_for_two_instances_of_half_and_dedicates_a_tenth() -> None:
    services = family("C", 100, 40, 0).services.values()
    assert sum(service.min_instances == 2 for service in services) == 20
    assert sum(service.is_dedicated for service in services) == 4
    assert sum(len(service.variants) == 2 for service in services) == 20


def test_family_e_has_watts_and_a_budget_that_idle_gpus_leave_room_in() -> None:
    problem = family("E", 100, 50, 0)
    idle = sum(problem.type_of(name).idle_w * node.gpu_count for name, node in problem.nodes.items())
    assert problem.policy.power_budget_w is not None
    assert problem.policy.power_budget_w > idle


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no family Z; there are A, B"):
        family("Z", 8, 4, 0)
