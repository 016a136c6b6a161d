"""The device watch of a whole node in virtual time: power, memory, minutes and energy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from agents.contract.assignments import Frame
from agents.keeper.copies import Stage
from agents.seams.routes import RoutesAway
from agents.seams.traffic import Counters
from tests.support.nodes import served
from tests.support.simulated_processes import Behaviour
from tests.support.soak import scaled
from tests.support.virtual import VirtualNode, capped, job, virtual


@pytest.fixture
def made(tmp_path: Path) -> Iterator[VirtualNode]:
    with virtual(tmp_path) as node:
        yield node


def loaded(made: VirtualNode, busy: float = 1.0) -> None:
    """One service on 90 % of the GPU."""
    made.behaviours["search"] = Behaviour(busy=busy)
    made.offer(served("search", sm=90), gpus=[capped(300)])
    made.advance(15)
    assert made.ready == ["search"]


def clock(made: VirtualNode) -> int | None:
    return made.machine.truth(made.uuids[0]).settings.locked_mhz


def busy(made: VirtualNode, part: float) -> None:
    """Sets its load from now on."""
    context = made.process("search").context
    assert context is not None
    made.machine.busy(made.uuids[0], context, part)


def test_over_its_cap_a_gpu_has_a_lower_clock_within_a_period_and_says_so(made: VirtualNode) -> None:
    loaded(made)
    assert clock(made) == 1380
    made.offer(served("search", sm=90), gpus=[capped(160)])
    made.advance(3)
    lower = clock(made)
    assert lower is not None
    assert lower < 1380
    (moved,) = made.node.report_body(*made.node.current_minute()).excursions
    assert (moved.knob, moved.gpu, moved.planned, moved.value) == ("clockMhz", 0, 1380, lower)
    assert moved.reason == "over_cap"


def test_a_cap_below_the_devices_smallest_limit_is_kept_by_the_clock_above_that_limit(made: VirtualNode) -> None:
    loaded(made)
    made.offer(served("search", sm=90), gpus=[capped(120)])  # the device takes 150 W at least
    made.advance(5)
    truth = made.machine.truth(made.uuids[0])
    assert truth.settings.cap_w == 150
    assert made.node.watch.devices.readings[made.uuids[0]].power_w <= 120  # type: ignore[operator]
    lower = clock(made)
    assert lower is not None
    assert lower < 1380


def test_what_was_over_its_cap_comes_back_to_plan(made: VirtualNode) -> None:
    loaded(made)
    made.offer(served("search", sm=90), gpus=[capped(160)])
    made.advance(3)
    assert clock(made) != 1380
    busy(made, 0.1)
    made.advance(60)
    assert clock(made) == 1380
    assert made.node.watch.power.excursions == ()


def test_a_clock_that_cannot_be_set_is_no_excursion(made: VirtualNode) -> None:
    made.machine.setters(made.uuids[0], "no_permission")
    loaded(made)
    made.offer(served("search", sm=90), gpus=[capped(160)])
    made.advance(30)
    body = made.node.report_body(*made.node.current_minute())
    assert [moved.knob for moved in body.excursions] == ["batch"]  # what is left to turn
    assert (body.gpus[0].requested or {})["clockMhz"] == 1380
    assert "clockMhz" not in (body.gpus[0].applied or {})


def test_the_clock_stays_within_its_frame(made: VirtualNode) -> None:
    loaded(made)
    made.offer(served("search", sm=90), gpus=[capped(150, Frame(1380, 1200, 1380))])
    for _ in made.passes(40):
        assert 1200 <= (clock(made) or 0) <= 1380


def test_power_is_kept_while_the_control_plane_is_away(made: VirtualNode) -> None:
    loaded(made, busy=0.1)
    made.offer(served("search", sm=90), gpus=[capped(160)])
    made.advance(5)
    assert clock(made) == 1380
    made.node.set_contact(False)
    busy(made, 1.0)
    made.advance(4)
    assert (clock(made) or 0) < 1380
    busy(made, 0.1)
    made.advance(60)
    assert clock(made) == 1380


def test_a_service_that_needs_room_stops_a_job_which_comes_back_when_there_is_room(made: VirtualNode) -> None:
    training = job("train", memory=10)
    made.offer(training)
    made.advance(15)
    assert made.ready == ["train"]
    process = made.process("train")
    made.offer(training, served("search", memory=9))
    made.advance(40)
    assert made.ready == ["search"]
    assert process.exited_at is not None
    made.offer(training)
    made.advance(90)
    assert made.ready == ["train"]


def test_a_job_that_may_not_be_stopped_stays_and_the_missing_room_is_named(made: VirtualNode) -> None:
    made.offer(job("train", memory=10, preemptible=False))
    made.advance(15)
    made.offer(job("train", memory=10, preemptible=False), served("search", memory=9))
    made.advance(40)
    assert made.ready == ["train"]
    (held,) = made.node.report_body(*made.node.current_minute()).held_back
    assert (held.instance, held.reason) == ("search", "no_room")
    assert held.needs_memory_gib == pytest.approx(3, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(200, 20)))
def test_no_service_ever_fails_for_memory(tmp_path: Path, seed: int) -> None:
    lot = random.Random(seed)
    with virtual(tmp_path) as made:
        names = ["a", "b", "c", "t", "u"]
        sizes = {name: lot.choice([2.0, 4.0, 6.0]) for name in names}
        for _ in range(8):
            name = lot.choice(names)
            sizes[name] = lot.choice([2.0, 4.0, 6.0, 9.0])
            chosen = lot.sample(names, lot.randint(1, 5))
            made.offer(
                *[
                    job(name, sm=18, memory=sizes[name]) if name in "tu" else served(name, sm=18, memory=sizes[name])
                    for name in chosen
                ]
            )
            for _ in made.passes(lot.choice([2.0, 10.0, 40.0]), 0.5):
                slot = made.machine.slots[made.uuids[0]]
                assert slot.gpu.memory_used_gib <= 16 + 1e-6
                failed = [process.log for process in made.machine.processes.values() if "error 2" in process.log]
                assert failed == []


def test_a_minute_that_ends_loses_no_request(tmp_path: Path) -> None:
    counted: dict[str, Counters] = {}
    with virtual(tmp_path, counters=lambda: dict(counted)) as made:
        made.offer(served("search"))
        made.advance(10)
        name, total, reported = made.copy("search").id, 0, {}
        for step, _ in enumerate(made.passes(200, 0.5)):
            total += 3
            counted[name] = Counters(total, 0, (total,))
            if step % 20 == 7:  # a report every ten seconds
                finished = made.node.take_finished()
                for minute in [*([finished] if finished else []), made.node.current_minute()]:
                    (sums,) = made.node.report_body(*minute).instances
                    reported[minute[0].began] = sums.requests
        made.advance(1)
        (sums,) = made.node.report_body(*made.node.current_minute()).instances
        reported[made.node.watch.minute.began] = sums.requests
    assert len(reported) == 4
    assert sum(reported.values()) == total


def requests_reported(made: VirtualNode) -> int:
    (sums,) = made.node.report_body(*made.node.current_minute()).instances
    return sums.requests


def test_a_restarted_agent_does_not_count_again_what_its_copies_had_served(tmp_path: Path) -> None:
    counted: dict[str, Counters] = {}
    with virtual(tmp_path, counters=lambda: dict(counted)) as made:
        made.offer(served("search"))
        made.advance(10)
        name = made.copy("search").id
        counted[name] = Counters(60_000, 0, (60_000,))
        made.restart()
        made.advance(2)
        assert requests_reported(made) == 0
        counted[name] = Counters(60_007, 0, (60_007,))
        made.advance(2)
        assert requests_reported(made) == 7


def test_totals_that_a_restarted_agent_first_reads_in_a_later_minute_are_not_counted_there(tmp_path: Path) -> None:
    counted: dict[str, Counters] = {}
    is_away = False

    def counters() -> dict[str, Counters]:
        if is_away:
            raise RoutesAway("it restarts, too")
        return dict(counted)

    with virtual(tmp_path, counters=counters) as made:
        made.offer(served("search"))
        made.advance(10)
        name = made.copy("search").id
        counted[name] = Counters(60_000, 0, (60_000,))
        is_away = True
        made.restart()
        made.advance(60)
        is_away = False
        made.advance(10)
        assert requests_reported(made) == 0
        counted[name] = Counters(60_007, 0, (60_007,))
        made.advance(2)
        assert requests_reported(made) == 7


def test_a_restarted_agent_counts_from_a_copys_own_first_report_where_no_gateway_counts(made: VirtualNode) -> None:
    loaded(made)
    process = made.process("search")
    process.counters = Counters(60_000, 0, (60_000,))
    made.restart()
    made.advance(12)
    assert requests_reported(made) == 0
    process.counters = Counters(60_007, 0, (60_007,))
    made.advance(12)
    assert requests_reported(made) == 7


def test_energy_only_grows_over_a_reload_of_the_driver(made: VirtualNode) -> None:
    loaded(made)
    uuid, last = made.uuids[0], made.node.watch.devices.energy_mj(made.uuids[0])
    made.machine.reload_driver()
    assert made.machine.truth(uuid).energy_j == 0
    drawn = 0.0
    for _ in made.passes(60):
        now = made.node.watch.devices.energy_mj(uuid)
        assert now >= last
        drawn, last = drawn + now - last, now
    assert drawn / 1000 == pytest.approx(made.machine.truth(uuid).energy_j, rel=0.05)


def test_a_start_that_a_power_cut_left_undone_keeps_no_board_from_its_new_index(tmp_path: Path) -> None:
    with virtual(tmp_path, ["v100-16gb", "v100-16gb"]) as made:
        wanted = served("search", gpu=0), served("images", gpu=1)
        made.offer(wanted[0])
        made.advance(15)
        made.offer(*wanted)
        made.node.keeper.tick()
        for name in ("search", "images"):
            made.process(name).exit_by(made.now)
        made.machine.advance(made.now)
        made.node.ledger.record(replace(made.copy("images"), stage=Stage.STARTING, running=None))
        boards = [made.machine.slots[uuid].gpu for uuid in made.uuids]
        boards[0].pci, boards[1].pci = boards[1].pci, boards[0].pci
        made.restart()
        made.offer(*wanted)
        made.advance(30)
        assert made.node.watch.indexes == dict(enumerate(reversed(made.uuids)))
        assert made.ready == ["images", "search"]
