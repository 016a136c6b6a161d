"""Runs a law on a plant, period by period, and records power, requests and moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeAlias

from agents.contract.assignments import Frame
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings
from lab.power.plant import Period, Plant, PlantServer

Law: TypeAlias = Callable[[PowerState, GpuPeriod, PowerSettings], PowerMove]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CLOCKS_MHZ = tuple(range(210, 1425, 15))  # as an A100 lists them


@dataclass(frozen=True, slots=True)
class PowerCase:
    """A GPU with its plan."""

    servers: tuple[PlantServer, ...]
    slo_ms: Mapping[str, float]
    batches: Mapping[str, Frame]
    clock: Frame
    cap_w: float
    idle_w: float
    exponent: float = 2.4
    noise: float = 0.02
    knows_idle: bool = True

    def plant(self, seed: int) -> Plant:
        return Plant(self.servers, self.idle_w, CLOCKS_MHZ[-1], self.exponent, self.noise, seed)


@dataclass(slots=True)
class PowerRun:
    """The running GPU; the law sees the figures of the previous period."""

    case: PowerCase
    law: Law
    settings: PowerSettings
    plant: Plant
    state: PowerState = field(default_factory=PowerState)
    clock_mhz: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    second: int = 0
    moves: int = 0  # changes of a knob
    move: PowerMove | None = None

    def __post_init__(self) -> None:
        self.clock_mhz = round(self.case.clock.planned)
        self.batches = {name: round(frame.planned) for name, frame in self.case.batches.items()}

    def period(self, rates: Mapping[str, float]) -> Period:
        """Runs one second, then the law."""
        found = self.plant.period(self.clock_mhz, self.batches, rates)
        self.move = self.law(self.state, self.observe(found), self.settings)
        self.state = self.move.state
        self.moves += self.move.clock_mhz not in (None, self.clock_mhz)
        self.moves += sum(self.batches[name] != batch for name, batch in self.move.batches.items())
        self.clock_mhz = self.move.clock_mhz or self.clock_mhz
        self.batches |= self.move.batches
        self.second += 1
        return found

    def observe(self, found: Period) -> GpuPeriod:
        case = self.case
        instances = tuple(
            InstancePeriod(
                id=name,
                batch=self.batches[name],
                frame=case.batches[name],
                latency_ms=served.latency_ms,
                slo_ms=case.slo_ms[name],
                queue=served.queue,
                batch_mean=served.batch,
                busy=served.busy,
            )
            for name, served in found.served.items()
        )
        return GpuPeriod(
            index=0,
            at=BEGAN + timedelta(seconds=self.second),
            peak_w=found.peak_w,
            mean_w=found.mean_w,
            cap_w=case.cap_w,
            idle_w=case.idle_w if case.knows_idle else None,
            clock_mhz=self.clock_mhz,
            frame=case.clock,
            clocks_mhz=CLOCKS_MHZ,
            running_mhz=float(self.clock_mhz),
            instances=instances,
        )


def start(case: PowerCase, law: Law, settings: PowerSettings, seed: int) -> PowerRun:
    """Returns a run that starts at the planned values."""
    return PowerRun(case, law, settings, case.plant(seed))


def random_case(seed: int) -> PowerCase:
    """Returns 1 to 4 servers that draw more than the cap at the top clock, and less at the lowest."""
    draw = Random(seed)  # noqa: S311 (a test's randomness)
    count = draw.randint(1, 4)
    idle = draw.uniform(30, 90)
    full = draw.uniform(180, 340)  # above idle, all busy
    servers = tuple(
        PlantServer(f"s{index}", draw.uniform(2, 20), draw.uniform(0.4, 0.9), full / count, draw.uniform(0.5, 1.0))
        for index in range(count)
    )
    exponent = draw.uniform(1.0, 3.0)
    lowest = CLOCKS_MHZ[0]
    least = idle + full * (lowest / CLOCKS_MHZ[-1]) ** exponent
    cap = draw.uniform(max(0.5 * (idle + full), 1.1 * least), idle + full)
    planned = draw.choice([clock for clock in CLOCKS_MHZ if clock >= 900])
    batches = {server.id: Frame(float(draw.choice((4, 8, 16))), 1.0, 32.0) for server in servers}
    slowdown = CLOCKS_MHZ[-1] / planned
    slo = {
        server.id: draw.uniform(2.2, 4.0) * server.batch_ms(batches[server.id].planned, slowdown) for server in servers
    }
    return PowerCase(
        servers, slo, batches, Frame(float(planned), float(lowest), float(CLOCKS_MHZ[-1])), cap, idle, exponent,
        knows_idle=draw.random() < 0.5,
    )  # fmt: skip


def capacity(case: PowerCase, server: PlantServer, clock_mhz: float, batch: float) -> float:
    """Returns requests a second when always busy."""
    return batch / server.batch_ms(batch, CLOCKS_MHZ[-1] / clock_mhz) * 1000


def random_rates(case: PowerCase, draw: Random, most: float, least: float) -> dict[str, float]:
    """Returns rates between these shares of each server's capacity at its planned values."""
    return {
        server.id: draw.uniform(least, most)
        * capacity(case, server, case.clock.planned, case.batches[server.id].planned)
        for server in case.servers
    }
