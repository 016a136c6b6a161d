"""Online placement: what is right, what is repeated, and what each policy prefers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.baselines.online import (
    BestFit,
    Fragmentation,
    GpuRequest,
    Host,
    LeastWaste,
    OnlineFleet,
    Policy,
    Workload,
    rehearse,
)
from lab.baselines.online.scarcity import scarcity_by_type
from lab.baselines.online.waste import expected_waste
from lab.baselines.online.workload import WrongRequest

MANY = 500 if os.environ.get("GPUWRIGHT_SOAK") else 40
MIX = (
    GpuRequest(4000, 8192, 1000, 1),
    GpuRequest(2000, 4096, 500, 1),
    GpuRequest(2000, 4096, 250, 1),
    GpuRequest(8000, 16384, 1000, 2),
    GpuRequest(3000, 1024),
    GpuRequest(2000, 4096, 500, 1, ("a10",)),
    GpuRequest(8000, 16384, 1000, 2, ("a10", "t4")),
)
requests = st.sampled_from([*MIX, GpuRequest(1000, 1024, 810, 1), GpuRequest(500, 512, 190, 1)])
hosts = st.lists(
    st.tuples(
        st.integers(2000, 32000), st.integers(4096, 65536), st.integers(0, 8), st.sampled_from(["", "a10", "t4", "k80"])
    ),
    min_size=1,
    max_size=5,
).map(lambda rows: [Host(f"h{i}", *row) for i, row in enumerate(rows)])


def policies() -> dict[str, Policy]:
    workload = Workload.count(MIX)
    return {
        "ours": LeastWaste(workload),
        "selective": LeastWaste(workload, hold_back=0.1),
        "fgd": Fragmentation(workload),
        "bestfit": BestFit(),
    }


def fits_somewhere(
    fleet: Sequence[Host], taken: list[tuple[GpuRequest, str, tuple[int, ...]]], request: GpuRequest
) -> bool:
    """In plain loops, from what was placed."""
    for host in fleet:
        cpu, memory, free = host.cpu_milli, host.host_memory_mib, [1000] * host.gpus
        for other, where, gpus in taken:
            if where == host.name:
                cpu -= other.cpu_milli
                memory -= other.host_memory_mib
                for gpu in gpus:
                    free[gpu] -= other.gpu_milli
        assert cpu >= 0
        assert memory >= 0
        assert all(milli >= 0 for milli in free)
        able = sum(milli >= request.gpu_milli for milli in free) if request.gpus else 0
        if request.gpu_types and host.gpu_type not in request.gpu_types:
            continue
        if cpu >= request.cpu_milli and memory >= request.host_memory_mib and able >= request.gpus:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", policies())
@settings(max_examples=MANY, deadline=None)
@given(fleet=hosts, arrivals=st.lists(requests, max_size=30))
def test_no_host_is_overfilled_and_only_a_selective_policy_refuses_requests_that_fit(
    name: str, fleet: list[Host], arrivals: list[GpuRequest]
) -> None:
    online = OnlineFleet(fleet, policies()[name])
    taken: list[tuple[GpuRequest, str, tuple[int, ...]]] = []
    for request in arrivals:
        could = fits_somewhere(fleet, taken, request)
        assert online.could_hold(request) == could
        placed = online.place(request)
        if placed is None:
            assert not could or name == "selective"
        else:
            assert could
            assert len(placed.gpus) == request.gpus
            taken.append((request, placed.host, placed.gpus))
    allocated = sum(request.total_gpu_milli for request, _, _ in taken)
    assert online.allocated_gpu_milli() == allocated


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None)
@given(fleet=hosts, arrivals=st.lists(requests, max_size=20))
def test_a_removed_request_returns_its_resources(fleet: list[Host], arrivals: list[GpuRequest]) -> None:
    online = OnlineFleet(fleet, LeastWaste(Workload.count(MIX)))
    first = [online.place(request) for request in arrivals]
    for request, placed in zip(arrivals, first, strict=True):
        if placed is not None:
            online.remove(request, placed)
    assert online.allocated_gpu_milli() == 0
    assert [online.place(request) for request in arrivals] == first


def test_hosts_with_many_free_gpus_are_kept_for_requests_that_need_them() -> None:
    alone, wide = GpuRequest(1000, 1024, 1000, 1), GpuRequest(8000, 8192, 1000, 8)
    fleet = OnlineFleet(
        [Host("whole", 64000, 65536, 8), Host("rest", 64000, 65536, 3)], LeastWaste(Workload.count([alone, wide]))
    )
    assert [fleet.place(alone).host for _ in range(3)] == ["rest"] * 3  # type: ignore[union-attr]
    assert fleet.place(wide) is not None


def test_a_gpu_type_that_the_mix_overbooks_is_left_to_the_requests_that_name_it() -> None:
    anywhere, named = GpuRequest(1000, 1024, 1000, 1), GpuRequest(1000, 1024, 1000, 1, ("scarce",))
    fleet = [Host("a", 64000, 65536, 2, "scarce"), Host("b", 64000, 65536, 8, "common")]
    workload = Workload.count([anywhere] * 5 + [named] * 5)
    free = {"common": 8000.0, "scarce": 2000.0}
    assert scarcity_by_type(free, workload) == pytest.approx({"common": 0.0, "scarce": 1.0})
    assert scarcity_by_type(free, Workload.count([anywhere])) == pytest.approx({"common": 0.0, "scarce": 0.0})
    online = OnlineFleet(fleet, LeastWaste(workload))
    assert [online.place(anywhere).host for _ in range(8)] == ["b"] * 8  # type: ignore[union-attr]
    assert online.place(anywhere).host == "a"  # type: ignore[union-attr]


def test_a_rehearsal_holds_back_only_where_that_allocates_more() -> None:
    half, most = GpuRequest(1000, 1024, 500, 1), GpuRequest(1000, 1024, 810, 1)
    fleet = [Host(f"h{i}", 64000, 65536, 4) for i in range(5)]
    assert rehearse(fleet, LeastWaste(Workload.count([half] * 3 + [most])), 3.0).hold_back is not None
    assert rehearse(fleet, LeastWaste(Workload.count([half])), 3.0).hold_back is None
    assert rehearse(fleet, LeastWaste(Workload.count([most])), 3.0).hold_back is None
    assert rehearse(fleet, LeastWaste(Workload.count([])), 3.0).hold_back is None


def test_kinds_named_in_advance_change_nothing() -> None:
    fleet = [Host(f"h{i}", 64000, 262144, 8) for i in range(4)]
    many = [GpuRequest(1000 + i, 1024, 100 + i, 1) for i in range(40)]
    declared = OnlineFleet(fleet, BestFit(), many)
    undeclared = OnlineFleet(fleet, BestFit())
    assert [declared.place(request) for request in many] == [undeclared.place(request) for request in many]


def test_free_parts_that_the_mix_can_fill_are_hardly_wasted_and_others_wholly() -> None:
    table = expected_waste(((250, 1.0), (500, 1.0)), draws=50)
    assert table[0] == 0.0
    assert table[200] == 200.0
    assert table[500] < 1.0
    assert table[700] == pytest.approx(200.0, abs=1.0)
    assert all(0.0 <= table[free] <= free for free in range(1001))


def test_more_draws_pack_better_and_no_mix_fills_nothing() -> None:
    pieces = ((300, 1.0), (500, 2.0), (700, 1.0))
    few, many = expected_waste(pieces, 1), expected_waste(pieces, 20)
    assert sum(many) < sum(few)
    assert expected_waste((), 5)[400] == 400.0


def test_least_waste_puts_a_small_part_where_nothing_else_would_fit() -> None:
    workload = Workload.count([GpuRequest(1000, 1024, 810, 1)] * 9 + [GpuRequest(1000, 1024, 190, 1)])
    online = OnlineFleet([Host("h", 64000, 262144, 4)], LeastWaste(workload))
    large = [online.place(GpuRequest(1000, 1024, 810, 1)) for _ in range(2)]
    small = online.place(GpuRequest(1000, 1024, 190, 1))
    assert small is not None
    assert small.gpus in [place.gpus for place in large if place is not None]


def test_least_waste_spares_the_host_whose_gpus_need_their_cpu() -> None:
    workload = Workload.count([GpuRequest(8000, 1024, 1000, 1)] * 9 + [GpuRequest(16000, 1024)])
    rich, poor = Host("rich", 96000, 262144, 2), Host("poor", 16000, 262144, 2)
    placed = OnlineFleet([poor, rich], LeastWaste(workload)).place(GpuRequest(16000, 1024))
    assert placed is not None
    assert placed.host == "rich"


def test_a_wasteful_request_is_refused_only_if_the_policy_has_a_limit() -> None:
    workload = Workload.count([GpuRequest(1000, 1024, 500, 1)])
    wasteful = GpuRequest(1000, 1024, 600, 1)
    fleet = [Host("h", 64000, 262144, 1)]
    assert OnlineFleet(fleet, LeastWaste(workload)).place(wasteful) is not None
    selective = OnlineFleet(fleet, LeastWaste(workload, hold_back=0.5))
    assert selective.place(wasteful) is None
    assert selective.place(GpuRequest(1000, 1024, 500, 1)) is not None


def test_best_fit_takes_the_host_that_becomes_fullest_and_the_first_of_equals() -> None:
    fleet = [Host("wide", 64000, 262144, 8), Host("a", 32000, 131072, 2), Host("b", 32000, 131072, 2)]
    placed = OnlineFleet(fleet, BestFit()).place(GpuRequest(4000, 8192, 1000, 1))
    assert placed is not None
    assert placed.host == "a"


def test_fgd_counts_free_parts_that_typical_requests_cannot_use() -> None:
    workload = Workload.count([GpuRequest(1000, 0, 500, 1)] * 19 + [GpuRequest(1000, 0, 300, 1)])
    assert workload.typical(0.95) == ((GpuRequest(1000, 0, 500, 1), 1.0),)
    assert [count for _, count in workload.typical(1.0)] == [0.95, 0.05]
    online = OnlineFleet([Host("h", 64000, 262144, 2)], Fragmentation(workload))
    first, second = online.place(GpuRequest(1000, 0, 500, 1)), online.place(GpuRequest(1000, 0, 500, 1))
    assert first is not None
    assert second is not None
    assert first.gpus == second.gpus


def test_an_impossible_request_or_host_is_refused() -> None:
    with pytest.raises(WrongRequest, match="must request whole GPUs"):
        GpuRequest(1, 1, 500, 2)
    with pytest.raises(WrongRequest, match="amount below 0"):
        GpuRequest(-1, 1)
    with pytest.raises(WrongRequest, match="share a name"):
        OnlineFleet([Host("h", 1, 1, 1), Host("h", 1, 1, 1)], BestFit())
