"""Who cannot fit on a shared GPU, and the least change: named, and true when applied."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from solvers.mudi.sharing import NoRoom, SharedGpu, SharingRelaxation, SharingResident, SmShares, share
from tests.solvers.mudi.sharing.gpus import shared_gpus
from tests.support.soak import scaled

CURVE = ((10, 40.0), (30, 20.0), (100, 13.0))


def resident(name: str, rate_per_second: float, **changes: object) -> SharingResident:
    base = SharingResident(name, batch=8, latency_ms=CURVE, slo_ms=100, rate_per_second=rate_per_second)
    return replace(base, **changes)  # type: ignore[arg-type]


def no_room(*residents: SharingResident, free_percent: int = 100, work_limit: int = 2000) -> NoRoom:
    answer = share(SharedGpu(residents, free_percent=free_percent), work_limit)
    assert isinstance(answer, NoRoom)
    return answer


def relaxed(gpu: SharedGpu, relaxation: SharingRelaxation) -> SharedGpu:
    field = {"sloMs": "slo_ms", "ratePerSecond": "rate_per_second", "outstanding": "outstanding"}
    residents = []
    for resident in gpu.residents:
        if resident.name != relaxation.resident:
            residents.append(resident)
        elif relaxation.what != "leaves":
            residents.append(replace(resident, **{field[relaxation.what]: relaxation.value}))  # type: ignore[arg-type]
    return replace(gpu, residents=tuple(residents))


def test_a_resident_too_slow_alone_is_named_with_its_highest_rate() -> None:
    answer = no_room(resident("busy", 800), resident("calm", 100))
    assert answer.cannot_fit == ("busy",)
    assert answer.reason == "busy takes 13 ms a batch at 100 % of the SMs alone on the GPU; 10 ms are allowed"
    assert answer.is_proved
    (change,) = answer.relaxations
    assert change.resident == "busy"
    assert str(change) == f"ratePerSecond of busy lowered to {change.value:g}"
    assert 565 < change.value < 575  # 14 ms a batch at 90 %: the calm one takes 10 %


def test_a_sum_over_what_is_free_names_the_least_change_of_anyone() -> None:
    answer = no_room(resident("a", 400), resident("b", 500), free_percent=80)  # 30 % + 70 %
    assert answer.reason == "100 % of the SMs are needed; 80 % are free"
    assert len(answer.cannot_fit) == 1
    (change,) = answer.relaxations
    assert change.resident == "b"
    assert change.value > 440  # 18 ms a batch at 50 %


def test_pressure_of_neighbours_is_blamed_where_it_is_the_cause() -> None:
    loud = resident("loud", 100, pressure=((10, 1.0),))
    answer = no_room(resident("quiet", 500, sensitivity=0.5), loud)
    assert answer.reason.startswith("quiet takes 19.5 ms a batch at 100 % of the SMs next to neighbours at the")


def test_a_stated_slo_is_relaxed_where_it_binds() -> None:
    answer = no_room(resident("a", 1, slo_ms=10, outstanding=8.0))
    (change,) = answer.relaxations
    assert (change.what, str(change)) == ("outstanding", f"outstanding of a lowered to {change.value:g}")
    strict = no_room(resident("a", 1, slo_ms=10, batches_at_least=1.0))
    assert [str(change) for change in strict.relaxations] == ["sloMs of a raised to 13"]


def test_where_no_single_change_helps_those_who_leave_are_named() -> None:
    slow = resident("slow", 1, latency_ms=((60, 1e9), (70, 1e9)))
    answer = no_room(slow, replace(slow, name="slower"), resident("a", 400))
    assert answer.cannot_fit == ("slow", "slower")
    assert [str(change) for change in answer.relaxations] == [
        "slow leaves this GPU",
        "slower leaves this GPU",
    ]


def test_out_of_work_is_no_proof() -> None:
    # b presses less with more SM%; raised from the least, a needs more than there is
    a = resident("a", 500, sensitivity=1.0)
    b = resident("b", 100, pressure=((10, 0.9), (20, 0.0)))
    assert isinstance(share(SharedGpu((a, b))), SmShares)
    answer = no_room(a, b, work_limit=0)
    assert not answer.is_proved
    assert "no SM% that meet all SLOs were found" in answer.reason


@settings(max_examples=scaled(500, 40), deadline=None)
@given(shared_gpus())
def test_the_relaxation_named_helps_when_applied(gpu: SharedGpu) -> None:
    answer = share(gpu)
    if isinstance(answer, SmShares):
        return
    changed = gpu
    for relaxation in answer.relaxations:
        changed = relaxed(changed, relaxation)
    assert isinstance(share(changed), SmShares)
    fitting = tuple(resident for resident in gpu.residents if resident.name not in answer.cannot_fit)
    assert isinstance(share(replace(gpu, residents=fitting)), SmShares)


@settings(max_examples=scaled(500, 40), deadline=None)
@given(shared_gpus(may_fall=True))
def test_the_relaxation_named_also_helps_where_pressure_falls(gpu: SharedGpu) -> None:
    answer = share(gpu)
    if isinstance(answer, SmShares):
        return
    changed = gpu
    for relaxation in answer.relaxations:
        changed = relaxed(changed, relaxation)
    assert isinstance(share(changed), SmShares)


def test_a_least_sum_is_named_where_pressure_falls() -> None:
    falling = ((10, 0.5), (100, 0.0))
    answer = no_room(resident("a", 500), resident("b", 500, pressure=falling), free_percent=80)
    assert answer.reason == "140 % of the SMs are needed at least; 80 % are free"
