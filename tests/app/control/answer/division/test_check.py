"""The check of a division refuses each thing that would make it wrong, whatever the search says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.division.check import find_faults
from app.control.answer.division.divided import divide_fleet
from app.control.answer.division.layouts import list_layouts
from app.control.formulate.formulate import formulate
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, PlacedJob
from tests.app.control.answer.division.worlds import A100, alone, fleet

SEVENTHS = next(iter(list_layouts("a100", A100)))
WHOLE = formulate(fleet(alone(2), nodes=2)).problem
DIVISION = {"n0": SEVENTHS}
DIVIDED = divide_fleet(WHOLE, DIVISION)
NOTHING = Plan(())


def make_copy(service: int, device: int) -> Instance:
    return Instance(f"i{service}", f"shop/s{service}", "n0", device, "fp16", 4, 0.0, 100, 2.0, 1410.0, 1.0, 36.4, 60.0)


def faults(*lines: Instance, jobs: tuple[PlacedJob, ...] = (), undivided: Plan = NOTHING) -> list[str]:
    return list(find_faults(WHOLE, undivided, DIVIDED, Plan(lines, jobs), DIVISION))


def test_two_copies_on_two_devices_are_right() -> None:
    assert faults(make_copy(0, 0), make_copy(1, 1)) == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"exec_ms": 8.0}, "shop/s0 is planned at 8 ms on n0, faster than 36.33 ms"),
        ({"gpus": (0, 2)}, "shop/s0 takes 2 GPUs together, which MIG devices cannot be"),
        ({"rate_per_second": 0.5}, "shop/s0 would be served 0.5 of 1 requests a second"),
    ],
)
def test_a_wrong_copy_is_a_fault(wrong: dict[str, object], fault: str) -> None:
    first = make_copy(0, 0)
    assert faults(replace(first, **wrong), make_copy(1, 1)) == [fault]  # type: ignore[arg-type]


def test_a_job_has_no_speed_on_a_device() -> None:
    job = PlacedJob("shop/train", "n0", 3, 50, 1.0)
    (found,) = faults(make_copy(0, 0), make_copy(1, 1), jobs=(job,))
    assert found.startswith("job shop/train stands on a MIG device of n0")


def test_what_was_unserved_before_may_stay_so() -> None:
    before = Plan((), unserved=(Unserved("shop/s1", 1.0),))
    assert faults(make_copy(0, 0), undivided=before) == []
    assert faults(make_copy(0, 0)) == ["shop/s1 would be served 0 of 1 requests a second"]


def test_more_processes_than_mps_takes_on_a_device_are_a_fault() -> None:
    crowd = [replace(make_copy(0, 0), id=f"i{at}", memory_gib=0.1, rate_per_second=0.15) for at in range(7)]
    assert faults(*crowd, make_copy(1, 1)) == ["n0/0: 7 processes; MPS takes 6 on a 1g.5gb"]


def test_other_devices_than_the_gpus_give_are_a_fault() -> None:
    node = replace(DIVIDED.nodes["n0"], gpus=tuple(range(8)))
    wrong = replace(DIVIDED, nodes={**DIVIDED.nodes, "n0": node})
    found = find_faults(WHOLE, NOTHING, wrong, Plan((make_copy(0, 0), make_copy(1, 1))), DIVISION)
    assert list(found) == ["n0: 8 devices are planned; its GPUs give 7"]


def test_the_processes_of_a_device_are_its_part_of_those_that_the_policy_allows() -> None:
    crowd = [replace(make_copy(0, 0), id=f"i{at}", memory_gib=0.1, rate_per_second=0.15) for at in range(7)]
    more = replace(WHOLE, policy=replace(WHOLE.policy, clients_per_gpu=60))
    assert list(find_faults(more, NOTHING, DIVIDED, Plan((*crowd, make_copy(1, 1))), DIVISION)) == []
