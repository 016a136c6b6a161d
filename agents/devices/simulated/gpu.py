"""One simulated GPU in explicit time: load and faults determine its power, clock, temperature and memory.

Between two changes everything is constant or exponential, so time passes in closed form: a minute costs as much as a
millisecond. docs/simulation.md has the formulas.
"""

from __future__ import annotations

import bisect
import math
from collections import deque

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.kinds import SimulatedKind
from agents.devices.simulated.refusals import OUT_OF_MEMORY, CudaRefusal

POWER_EXPONENT = 2.4  # of the clock: between f (leakage, memory) and f^3 (voltage rises with it)
THROTTLE_SECONDS = 0.1  # the device's own reaction to its power limit
AVERAGE_SECONDS = 1.0  # the period that a power reading averages
AMBIENT_C, FULL_LOAD_C, HOT_C, COOL_C = 30.0, 75.0, 88.0, 83.0
THERMAL_SECONDS = 25.0
DAY_SECONDS = 86400.0


class SimulatedGpu:
    """The state of one GPU; `advance` it before anything is read or changed."""

    __slots__ = (
        "_clock_mhz", "_marks", "_settles_at", "aged_since", "cap_w", "clock_loss_per_day", "clocks_mhz", "contexts",
        "ecc_uncorrected", "energy_j", "energy_zero_j", "exclusive", "extra_heat_c", "forced_reasons", "heat_c_per_day",
        "hot", "kind", "locked_mhz", "now", "pci", "peak_w", "serial", "temperature_c", "uuid",
    )  # fmt: skip

    def __init__(self, kind: SimulatedKind, uuid: str, pci: str, now: float, serial: str) -> None:
        self.kind, self.uuid, self.pci, self.now, self.serial = kind, uuid, pci, now, serial
        self.clocks_mhz = kind.clocks_mhz
        self.contexts: list[SimulatedContext] = []
        self.locked_mhz: int | None = None
        self.cap_w = kind.power_default_w
        self.exclusive = False
        self.energy_j = self.energy_zero_j = 0.0
        self.temperature_c = AMBIENT_C + (FULL_LOAD_C - AMBIENT_C) * kind.idle_w / kind.power_default_w
        self.hot = False
        self.ecc_uncorrected = 0
        self.peak_w = kind.idle_w
        # Faults of the hardware.
        self.extra_heat_c = self.heat_c_per_day = self.clock_loss_per_day = 0.0
        self.aged_since = now
        self.forced_reasons: frozenset[str] = frozenset()  # hw_slowdown, power_brake: the clock drops to its lowest
        self._clock_mhz = self.clocks_mhz[0]
        self._settles_at = math.inf
        self._marks: deque[tuple[float, float]] = deque([(now, 0.0)])  # (time, joules): the energy used, as a polyline

    def advance(self, now: float) -> None:
        """Lets time pass; a time in the past does nothing."""
        while self.now < now:
            until = min(now, max(self._settles_at, self.now), self._turns_hot_or_cool_at())
            self._pass(until - self.now)
            self.now = until
            if self._settles_at <= until:
                self._settles_at = math.inf
                self._clock_mhz = self._target_mhz()
            if self.hot and self.temperature_c <= COOL_C + 1e-9:
                self.hot = False
                self.changed()
            elif not self.hot and self.temperature_c >= HOT_C - 1e-9:
                self.hot = True
                self.changed()
        if self.clock_loss_per_day > 0:
            self.changed()

    def changed(self) -> None:
        """Applies a new load, lock or limit: a lower clock at once, the power limit after its reaction time."""
        target = self._target_mhz()
        self._clock_mhz = max(target, min(self._clock_mhz, self._compute_wanted_mhz()))
        self._settles_at = math.inf if self._clock_mhz == target else self.now + THROTTLE_SECONDS
        self.peak_w = max(self.peak_w, self.power_w)

    # Its observable state.

    @property
    def clock_mhz(self) -> int:
        return self._clock_mhz

    @property
    def load(self) -> float:
        """Returns the device's load: the sum of each client's busy time times its share of the multiprocessors."""
        return min(1.0, sum(context.busy * context.sm_count for context in self.contexts) / self.kind.sm_count)

    @property
    def power_w(self) -> float:
        """Returns the power at this instant."""
        pace: float = (self._clock_mhz / self.clocks_mhz[-1]) ** POWER_EXPONENT
        return self.kind.idle_w + (self.kind.power_default_w - self.kind.idle_w) * self.load * pace

    @property
    def power_mean_w(self) -> float:
        """Returns the mean of the last second, as NVML does."""
        since = max(self.now - AVERAGE_SECONDS, self._marks[0][0])
        if self.now - since < 1e-9:
            return self.power_w
        before = self._marks[0]
        for mark in self._marks:
            if mark[0] > since:
                after = mark
                break
            before = mark
        else:
            after = (self.now, self.energy_j)
        part = (since - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
        return (self.energy_j - (before[1] + part * (after[1] - before[1]))) / (self.now - since)

    @property
    def energy_mj(self) -> int:
        return int((self.energy_j - self.energy_zero_j) * 1000)

    @property
    def utilization_percent(self) -> float:
        """Returns the part of the time in which any client worked, if they are independent."""
        return 100 * (1 - math.prod(1 - context.busy for context in self.contexts))

    @property
    def memory_used_gib(self) -> float:
        return sum(context.memory_gib for context in self.contexts)

    @property
    def clock_reasons(self) -> frozenset[str]:
        reasons = set(self.forced_reasons)
        if self.hot:
            reasons |= {"hw_slowdown", "hw_thermal"}
        elif self._clock_mhz < self._compute_wanted_mhz() and self._power_limit_mhz() < self._compute_wanted_mhz():
            reasons.add("power_cap")
        return frozenset(reasons)

    def sm_share(self, sm_percent: float) -> int:
        """Returns the multiprocessors of a percentage: rounded down to whole units, and at least one unit."""
        step = self.kind.sm_step
        return max(step, int(sm_percent * self.kind.sm_count / 100 / step + 1e-9) * step)

    def hold(self, context: SimulatedContext, memory_gib: float) -> None:
        """Sets the memory that the context holds; CudaRefusal changes nothing."""
        mine = context.memory_gib if context in self.contexts else 0.0
        if context.memory_limit_gib is not None and memory_gib > context.memory_limit_gib + 1e-9:
            raise CudaRefusal(
                OUT_OF_MEMORY, f"{memory_gib:g} GiB exceeds the limit of {context.memory_limit_gib:g} GiB"
            )
        free = self.kind.memory_gib - self.memory_used_gib + mine
        if memory_gib > free + 1e-9:
            raise CudaRefusal(OUT_OF_MEMORY, f"{memory_gib:g} GiB exceeds the {free:g} GiB that are free")
        context.memory_gib = memory_gib

    # Internals.

    def _compute_wanted_mhz(self) -> int:
        wanted = self.locked_mhz
        if wanted is None:
            wanted = self.clocks_mhz[-1] if self.contexts else self.clocks_mhz[0]
        if self.hot or self.forced_reasons:
            return self.clocks_mhz[0]
        lost = self.clock_loss_per_day * (self.now - self.aged_since) / DAY_SECONDS
        return min(wanted, self._round_to_supported(self.clocks_mhz[-1] * max(0.0, 1 - lost))) if lost > 0 else wanted

    def _power_limit_mhz(self) -> int:
        """Returns the highest clock at which this load stays within the power limit."""
        dynamic = (self.kind.power_default_w - self.kind.idle_w) * self.load
        if dynamic <= self.cap_w - self.kind.idle_w:
            return self.clocks_mhz[-1]
        part = max(0.0, self.cap_w - self.kind.idle_w) / dynamic
        return self._round_to_supported(self.clocks_mhz[-1] * part ** (1 / POWER_EXPONENT))

    def _target_mhz(self) -> int:
        return min(self._compute_wanted_mhz(), self._power_limit_mhz())

    def _round_to_supported(self, mhz: float) -> int:
        return self.clocks_mhz[max(0, bisect.bisect_right(self.clocks_mhz, mhz + 1e-9) - 1)]

    def _final_c(self) -> float:
        """Returns the temperature that this power leads to."""
        aged = self.heat_c_per_day * (self.now - self.aged_since) / DAY_SECONDS
        return (
            AMBIENT_C + self.extra_heat_c + aged + (FULL_LOAD_C - AMBIENT_C) * self.power_w / self.kind.power_default_w
        )

    def _turns_hot_or_cool_at(self) -> float:
        final, border = self._final_c(), COOL_C if self.hot else HOT_C
        if (final <= border) if not self.hot else (final >= border):
            return math.inf
        remaining = (self.temperature_c - final) / (border - final)
        return self.now + THERMAL_SECONDS * math.log(remaining) if remaining > 1 else self.now

    def _pass(self, seconds: float) -> None:
        self.energy_j += self.power_w * seconds
        final = self._final_c()
        self.temperature_c = final + (self.temperature_c - final) * math.exp(-seconds / THERMAL_SECONDS)
        self._marks.append((self.now + seconds, self.energy_j))
        while len(self._marks) > 2 and self._marks[1][0] <= self.now + seconds - AVERAGE_SECONDS:
            self._marks.popleft()
