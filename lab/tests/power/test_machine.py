"""The loop on the simulated device, read four times a second as the agent reads it: law, samples, and energy."""

from __future__ import annotations

from random import Random

import pytest

from agents.contract.assignments import Frame
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.machine import Machine
from agents.policy.power import Energy, GpuPeriod, InstancePeriod, PowerSettings, PowerState, Samples, add_reading, step
from lab.power.plant import PlantServer
from lab.power.trial import BEGAN
from tests.support.soak import scaled

READINGS = 4  # a second


class Node:
    """One A100 with four instances, each of a quarter of it; time is virtual."""

    def __init__(self, cap_w: float, limited: bool, seed: int) -> None:
        self.cap_w, self.limited, self.now = cap_w, limited, 0.0
        self.state, self.samples, self.energy = PowerState(), Samples(), Energy()
        self.machine = Machine(["a100-40gb"])
        self.device = SimulatedDevice(self.machine, lambda: self.now)
        self.gpu = self.device.gpus()[0]
        slot = self.machine.slots[self.gpu.uuid]
        slot.daemon.start()
        draw = Random(seed)
        self.servers = [PlantServer(f"s{n}", draw.uniform(3, 10), 0.7, 0.0) for n in range(4)]
        self.contexts = {
            server.id: self.machine.attach(self.gpu.uuid, 100 + n, 25, 4.0, 1.0)
            for n, server in enumerate(self.servers)
        }
        self.slo_ms = {server.id: 3 * server.batch_ms(16, 1.2) for server in self.servers}
        self.batches = {server.id: 16 for server in self.servers}
        self.waiting = {server.id: 0.0 for server in self.servers}
        self.device.lock_clock(self.gpu.uuid, 1200)
        if self.limited:
            self.device.cap_power(self.gpu.uuid, self.cap_w)
        self.period({server.id: 0.0 for server in self.servers})

    def period(self, rates: dict[str, float]) -> tuple[float, GpuPeriod]:
        """Runs one second; returns the true highest watts, and the period that the law got."""
        uuid, peak = self.gpu.uuid, 0.0
        ticks: list[dict[str, tuple[float, float, float]]] = []
        for _ in range(READINGS):
            clock = self.machine.slots[uuid].gpu.clock_mhz
            ticks.append({server.id: self.serve(server, rates[server.id], clock) for server in self.servers})
            peak = max(peak, self.machine.truth(uuid).power_w)
            self.now += 1 / READINGS
            reading = self.device.read(uuid)
            self.samples.read(self.now, reading.power_w, reading.energy_mj)
        peak_w, mean_w = self.samples.period() or (None, None)
        self.energy = add_reading(self.energy, reading.energy_mj, mean_w, self.now)
        instances = tuple(
            InstancePeriod(
                id=server.id,
                batch=self.batches[server.id],
                frame=Frame(16, 1, 32),
                latency_ms=max(tick[server.id][0] for tick in ticks) or None,
                slo_ms=self.slo_ms[server.id],
                queue=ticks[-1][server.id][1],
                busy=sum(tick[server.id][2] for tick in ticks) / READINGS,
            )
            for server in self.servers
        )
        period = GpuPeriod(
            index=0,
            at=BEGAN,
            peak_w=peak_w,
            mean_w=mean_w,
            cap_w=self.cap_w,
            clock_mhz=self.machine.truth(uuid).settings.locked_mhz,
            frame=Frame(1200, 210, 1410),
            clocks_mhz=self.gpu.clocks_mhz,
            running_mhz=reading.sm_clock_mhz,
            slowed="power_cap" in reading.clock_reasons,
            limited=self.limited,
            instances=instances,
        )
        move = step(self.state, period, PowerSettings())
        self.state = move.state
        self.batches |= move.batches
        if move.clock_mhz != period.clock_mhz:
            self.device.lock_clock(uuid, move.clock_mhz)
            self.samples.moved(self.now)
        return peak, period

    def serve(self, server: PlantServer, rate: float, clock: float) -> tuple[float, float, float]:
        """Latency, queue and busy of a quarter of a second."""
        batch = self.batches[server.id]
        takes = server.batch_ms(batch, self.gpu.clocks_mhz[-1] / clock)
        there = self.waiting[server.id] + rate / READINGS
        done = min(there, batch / takes * 1000 / READINGS)
        self.waiting[server.id] = min(there - done, 2 * batch / takes * 1000)
        busy = done * takes / batch * READINGS / 1000
        self.machine.busy(self.gpu.uuid, self.contexts[server.id], busy)
        return (
            (takes * (1 + busy) + self.waiting[server.id] / batch * takes if there else 0.0),
            self.waiting[server.id],
            busy,
        )

    def rates(self, draw: Random, low: float, high: float) -> dict[str, float]:
        return {server.id: draw.uniform(low, high) * 16 / server.batch_ms(16, 1.175) * 1000 for server in self.servers}


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
def test_the_cap_of_a_simulated_gpu_is_held_within_one_period(limited: bool) -> None:
    steps, over_at_all = scaled(1000, 100), 0
    draw = Random(5)
    for turn in range(steps):
        if turn % 20 == 0:
            node = Node(draw.uniform(150, 300), limited, seed=turn)
        rates = node.rates(draw, 0.8, 1.5) if turn % 2 else node.rates(draw, 0.0, 0.3)
        broken = [node.period(rates)[0] > node.cap_w * 1.001 for _ in range(15)]
        assert not any(broken[1:]), f"step {turn}: {broken}"
        over_at_all += broken[0]
    assert over_at_all >= steps // 10, "the steps must try the cap"


def test_where_the_hardware_holds_the_cap_the_law_ends_its_slowing_down() -> None:
    draw = Random(7)
    for seed in range(10):
        node = Node(draw.uniform(150, 300), True, seed)
        rates = node.rates(draw, 0.8, 1.5)
        periods = [node.period(rates)[1] for _ in range(15)]
        assert not any(period.slowed for period in periods[5:]), f"seed {seed}"


def test_the_energy_total_is_what_the_simulated_gpu_drew_under_any_driver_faults() -> None:
    node, draw = Node(300.0, False, seed=1), Random(1)
    drawn = 0.0
    for second in range(120):
        rates = node.rates(draw, 0.0, 1.0)
        before = node.machine.truth(node.gpu.uuid).energy_j
        node.period(rates)
        drawn += node.machine.truth(node.gpu.uuid).energy_j - before
        if second % 30 == 29:
            node.machine.reload_driver()
    assert node.energy.resets == 3
    # The first reading counts nothing, and watts give the energy between the last reading and a reset.
    assert node.energy.total_mj / 1000 == pytest.approx(drawn, rel=0.02)
