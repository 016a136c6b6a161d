"""The model of a machine: power, clock, heat and memory follow the load, and faults hit the right processes."""

from __future__ import annotations

import random

import pytest

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.gpu import HOT_C, POWER_EXPONENT, THROTTLE_SECONDS
from agents.devices.simulated.kinds import KINDS
from agents.devices.simulated.machine import Machine
from agents.devices.simulated.refusals import CudaRefusal
from agents.seams.device import MpsState

V100 = KINDS["v100-16gb"]


class Bench:
    """One machine with one GPU whose daemon is up."""

    def __init__(self, kind: str = "v100-16gb") -> None:
        self.machine = Machine([kind])
        self.uuid = next(iter(self.machine.slots))
        self.slot = self.machine.slots[self.uuid]
        self.gpu, self.daemon = self.slot.gpu, self.slot.daemon
        self.daemon.start()

    def client(
        self, sm_percent: float = 100, busy: float = 0.0, pid: int = 1, memory_gib: float = 0.5
    ) -> SimulatedContext:
        context = self.machine.attach(self.uuid, pid, sm_percent, None, memory_gib)
        self.machine.busy(self.uuid, context, busy)
        return context


def refused(code: int, bench: Bench, sm_percent: float = 30, memory_gib: float = 0.5) -> None:
    with pytest.raises(CudaRefusal) as refused:
        bench.machine.attach(bench.uuid, 99, sm_percent, None, memory_gib)
    assert refused.value.code == code


def test_every_kind_is_a_gpu_that_could_be() -> None:
    for kind in KINDS.values():
        assert kind.idle_w < kind.power_min_w <= kind.power_default_w <= kind.power_max_w
        assert kind.clocks_mhz[0] == int(kind.clock_low_mhz)
        assert kind.clocks_mhz[-1] == int(kind.clock_high_mhz)
        assert kind.sm_count % kind.sm_step == 0


def test_the_same_machine_has_the_same_uuids() -> None:
    assert list(Machine(["t4", "t4"], "a").slots) == list(Machine(["t4", "t4"], "a").slots)
    assert not set(Machine(["t4"], "a").slots) & set(Machine(["t4"], "b").slots)


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown GPU kind 'v1'; known are 2080ti, .*v100-16gb"):
        Machine(["v1"])


def test_power_is_idle_and_what_the_busy_shares_draw_at_this_clock() -> None:
    bench = Bench()
    assert bench.gpu.power_w == 40
    bench.client(50, busy=0.8)
    bench.client(25, busy=0.4, pid=2)
    assert bench.gpu.load == pytest.approx(0.5)
    assert bench.gpu.power_w == pytest.approx(40 + 260 * 0.5)
    bench.gpu.locked_mhz = 1005
    bench.gpu.changed()
    assert bench.gpu.clock_mhz == 1005
    assert bench.gpu.power_w == pytest.approx(40 + 260 * 0.5 * (1005 / 1530) ** POWER_EXPONENT)


def test_the_power_limit_is_kept_by_the_clock_a_moment_after_the_load_has_come() -> None:
    bench = Bench()
    bench.machine.preset(bench.uuid, 200.0, exclusive=False)
    bench.client(100, busy=1.0)
    assert (bench.gpu.clock_mhz, bench.gpu.power_w) == (1530, 300)
    bench.machine.advance(THROTTLE_SECONDS)
    assert bench.gpu.power_w <= 200
    next_clock = bench.gpu.clocks_mhz[bench.gpu.clocks_mhz.index(bench.gpu.clock_mhz) + 1]
    assert 40 + 260 * (next_clock / 1530) ** POWER_EXPONENT > 200
    assert bench.gpu.clock_reasons == {"power_cap"}
    assert bench.gpu.peak_w == 300


def test_a_reading_of_power_is_the_mean_of_the_last_second() -> None:
    bench = Bench()
    bench.machine.advance(10.0)
    bench.client(100, busy=1.0)
    bench.machine.advance(10.25)
    assert bench.gpu.power_mean_w == pytest.approx(40 * 0.75 + 300 * 0.25)
    bench.machine.advance(30.0)
    assert bench.gpu.power_mean_w == pytest.approx(300)


def test_time_may_pass_in_any_steps() -> None:
    steps = random.Random(7)
    single, many = Bench(), Bench()
    for bench in (single, many):
        bench.machine.preset(bench.uuid, 250.0, exclusive=False)
        bench.machine.heat(bench.uuid, 40.0)  # it turns hot and cools, over and over
        bench.client(100, busy=1.0)
    single.machine.advance(600.0)
    now = 0.0
    while now < 600.0:
        now = min(600.0, now + steps.expovariate(2.0))
        many.machine.advance(now)
    assert many.gpu.energy_j == pytest.approx(single.gpu.energy_j, rel=1e-9)
    assert many.gpu.temperature_c == pytest.approx(single.gpu.temperature_c, rel=1e-9)
    assert many.gpu.clock_mhz == single.gpu.clock_mhz


def test_time_that_goes_backwards_changes_nothing() -> None:
    bench = Bench()
    bench.machine.advance(10.0)
    energy_j = bench.gpu.energy_j
    bench.machine.advance(5.0)
    assert (bench.gpu.energy_j, bench.gpu.now) == (energy_j, 10.0)


def test_a_gpu_warms_to_what_its_power_makes_of_it_and_a_hot_one_slows_down() -> None:
    bench = Bench()
    bench.client(100, busy=1.0)
    bench.machine.advance(1000.0)
    assert bench.gpu.temperature_c == pytest.approx(75.0, abs=0.1)
    assert bench.gpu.clock_reasons == frozenset()
    bench.machine.heat(bench.uuid, 60.0)
    bench.machine.advance(1100.0)
    assert bench.gpu.temperature_c > HOT_C - 10
    assert bench.gpu.clock_mhz == 135
    assert bench.gpu.clock_reasons == {"hw_slowdown", "hw_thermal"}
    bench.machine.heat(bench.uuid, 0.0)
    bench.machine.advance(1500.0)
    assert bench.gpu.clock_mhz == 1530


def test_an_ageing_gpu_is_warmer_and_slower_by_the_day() -> None:
    bench = Bench()
    bench.client(100, busy=0.5)
    bench.machine.age(bench.uuid, heat_c_per_day=0.5, clock_loss_per_day=0.01)
    pairs = []
    for day in range(1, 11):
        bench.machine.advance(day * 86400.0)
        pairs.append((bench.gpu.temperature_c, bench.gpu.clock_mhz))
    assert pairs == sorted(pairs, key=lambda pair: -pair[1])
    assert bench.gpu.clock_mhz == pytest.approx(1530 * 0.9, abs=8)
    assert bench.gpu.extra_heat_c == 0


def test_multiprocessors_go_by_whole_units_downwards() -> None:
    assert [Bench().gpu.sm_share(percent) for percent in (0.1, 10, 30.9, 99, 100)] == [1, 8, 24, 79, 80]
    assert [Bench("a100-40gb").gpu.sm_share(percent) for percent in (0.1, 10, 33, 100)] == [2, 10, 34, 108]


def test_memory_ends_with_the_device() -> None:
    bench = Bench()
    single = bench.client(memory_gib=10.0)
    refused(2, bench, memory_gib=6.5)
    bench.machine.hold(bench.uuid, single, 9.5)
    bench.client(memory_gib=6.5, pid=2)
    with pytest.raises(CudaRefusal):
        bench.machine.hold(bench.uuid, single, 9.6)
    assert bench.gpu.memory_used_gib == 16


def test_the_lower_of_the_daemons_limits_and_the_clients_counts() -> None:
    bench = Bench()
    bench.machine.mps_defaults(bench.uuid, 50.0, 1.0)
    assert bench.client(100).sm_count == 40
    assert bench.client(10, pid=2).sm_count == 8
    refused(2, bench, memory_gib=1.5)


def test_while_a_client_is_terminated_no_other_is_let_in() -> None:
    bench = Bench()
    single, two = bench.client(pid=1), bench.client(pid=2)
    assert bench.daemon.terminate(1)
    assert (single.error, two.error) == (810, None)
    refused(807, bench)
    bench.machine.advance(1.0)
    bench.client(pid=3)


def test_there_is_room_for_48_clients() -> None:
    bench = Bench()
    for pid in range(48):
        bench.client(1, pid=pid, memory_gib=0.1)
    refused(808, bench)


def test_in_exclusive_process_mode_no_process_bypasses_mps() -> None:
    bench = Bench()
    bench.machine.preset(bench.uuid, 300.0, exclusive=True)
    with pytest.raises(CudaRefusal) as refused:
        bench.machine.open_outside(bench.uuid, 5, 1.0)
    assert refused.value.code == 46
    bench.client()
    bench.machine.preset(bench.uuid, 300.0, exclusive=False)
    outside = bench.machine.open_outside(bench.uuid, 5, 1.0)
    assert outside.sm_count == 80


def test_a_lost_gpu_takes_its_clients_with_it_and_comes_back_new() -> None:
    bench = Bench()
    context = bench.client(busy=1.0)
    bench.machine.preset(bench.uuid, 200.0, exclusive=True)
    bench.machine.ecc(bench.uuid, 3)
    bench.machine.advance(10.0)
    bench.machine.lose(bench.uuid)
    assert context.error == 810
    assert [event.xid for event in bench.machine.events_since(0)[1]] == [79]
    refused(805, bench)
    bench.machine.advance(20.0)
    bench.machine.give_back(bench.uuid)
    gpu = bench.gpu
    assert (gpu.contexts, gpu.cap_w, gpu.exclusive, gpu.ecc_uncorrected, gpu.energy_mj) == ([], 300, False, 0, 0)
    assert bench.daemon.state is MpsState.DOWN


def test_unread_events_do_not_pile_up() -> None:
    bench = Bench()
    for number in range(10_000):
        bench.machine.xid(bench.uuid, number)
    count, events = bench.machine.events_since(0)
    assert (count, len(events), events[-1].xid) == (10_000, 4096, 9_999)
