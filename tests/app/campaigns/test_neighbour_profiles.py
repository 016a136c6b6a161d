"""What campaigns measured beside neighbours becomes Profiles whose pressures keep the scale that is declared."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations_with_replacement, product

import pytest

from agents.contract.campaigns import CopySetting, MeasuredSetting, SharedCopyTimes
from app.campaigns.neighbour_profiles import DeclaredProfile, neighbour_profiles

pytestmark = pytest.mark.slow

NUMBERS = range(5)
GROWTH = {20: (0.4, 0.8), 50: (1.0, 1.0)}  # of pressures on compute and on bandwidth


def measured_pairs() -> list[MeasuredSetting]:
    """Pairs slowed by two factors: the more a model computes, the less it moves."""
    found: list[MeasuredSetting] = []
    for (mine, other), (share, its) in product(combinations_with_replacement(NUMBERS, 2), product(GROWTH, GROWTH)):
        copies = tuple(
            SharedCopyTimes(f"m{one}", "x", 1, share_of_one, 10.0, 10 * slowdown(one, beside, share_beside), 0.0, 1)
            for one, share_of_one, beside, share_beside in ((mine, share, other, its), (other, its, mine, share))
        )
        setting = CopySetting(1, share, 1000)
        found.append(
            MeasuredSetting(
                len(found) + 1, setting, datetime(2026, 1, 1, tzinfo=UTC), latency_ms=10.0, spread_ms=0.0, samples=1,
                copies=copies,
            )
        )  # fmt: skip
    return found


def slowdown(mine: int, other: int, sm_percent: int) -> float:
    compute, bandwidth = GROWTH[sm_percent]
    return 1 + (4 - mine) / 8 * other / 4 * compute + mine / 6 * (4 - other) / 4 * bandwidth


def test_each_factor_keeps_the_scale_that_is_declared() -> None:
    pressures = {"compute": {"20": 0.1, "50": 0.25}, "bandwidth": 0.0}
    names = [f"m{number}" for number in NUMBERS]
    declared = [DeclaredProfile(n, {"model": n, "variant": "x", "gpuType": "t", "pressure": pressures}) for n in names]
    made = neighbour_profiles(declared, measured_pairs())
    specs = {each["metadata"]["name"]: each["spec"] for each in made.manifests}
    compute = [value["mean"] for spec in specs.values() for value in spec["pressure"]["compute"].values()]
    assert sum(compute) / len(compute) == pytest.approx(0.175, abs=1e-3)
    assert max(value["mean"] for spec in specs.values() for value in spec["pressure"]["bandwidth"].values()) == 1
    for mine, other in product(NUMBERS, NUMBERS):
        predicted = 1 + sum(
            sensitivity["mean"] * specs[f"m{other}"]["pressure"][factor]["50"]["mean"]
            for factor, sensitivity in specs[f"m{mine}"]["sensitivity"].items()
        )
        assert predicted == pytest.approx(slowdown(mine, other, 50), rel=0.02)


def test_factors_keep_the_names_under_which_they_are_declared() -> None:
    """Profiles that were not measured again have pairs, too: their bandwidth must stay what it was."""
    declared = [
        DeclaredProfile(
            f"m{n}", {"model": f"m{n}", "variant": "x", "pressure": {"compute": (4 - n) / 4, "bandwidth": n / 4}}
        )
        for n in NUMBERS[:3]
    ]
    for known, factor in ((declared, "bandwidth"), ([], "compute")):
        others = [DeclaredProfile(f"m{n}", {"model": f"m{n}", "variant": "x"}) for n in NUMBERS[len(known) :]]
        made = neighbour_profiles([*known, *others], measured_pairs())
        specs = {each["metadata"]["name"]: each["spec"] for each in made.manifests}
        grows = [specs[f"m{n}"]["pressure"][factor]["50"]["mean"] for n in NUMBERS]
        assert grows == sorted(grows)
        felt = [specs[f"m{n}"]["sensitivity"][factor]["mean"] for n in NUMBERS]
        assert felt == sorted(felt, reverse=True)
