"""One drawn world: its kinds of GPU and its models, and how long and hot each runs, alone and among neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from simulation.truth.family import DECLARED_ERROR_SHARE, draw_gpu, draw_traits, generator
from simulation.truth.fitting import KnownFigures, LoadKey, fit_load
from simulation.truth.load import GpuPhysics, PhysicalLoad, times
from simulation.truth.neighbours import ActiveLoad, Pace, find_occupied_share, find_pulled_share, paces

MOST_KEPT = 200_000  # groups of neighbours whose paces are kept
LEAST_CLOCK_SHARE = 0.15


@dataclass(frozen=True)
class Residuals:
    """Logarithms of factors, by batch; linear between the measured points and flat beyond them."""

    shares: Mapping[int, tuple[float, ...]]
    logs: Mapping[int, tuple[float, ...]]

    @classmethod
    def of(cls, known: KnownFigures, load: PhysicalLoad, gpu: GpuPhysics) -> Residuals:
        shares, logs = {}, {}
        for batch, curve in sorted(known.points.items()):
            shares[batch] = tuple(percent / 100 for percent, _ in curve)
            logs[batch] = tuple(
                float(np.log(ms / times(load, gpu, batch, percent / 100).alone)) for percent, ms in curve
            )
        return cls(shares, logs)

    def factor(self, batch: float, sm_share: float) -> float:
        """Returns measured over explained at this place."""
        batches = sorted(self.logs)
        found = [np.interp(sm_share, self.shares[size], self.logs[size]) for size in batches]
        return float(np.exp(np.interp(np.log(batch), np.log(batches), found)))


@dataclass(frozen=True, slots=True)
class RunningLoad:
    """A model as it runs on a GPU, and the part of the time in which it is busy."""

    key: LoadKey
    batch: float
    sm_percent: float
    busy: float = 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """The state of a GPU while all of a group are busy."""

    clock_share: float
    times_ms: tuple[float, ...]
    watts: tuple[float, ...]


Reshape: TypeAlias = Callable[[LoadKey, KnownFigures], KnownFigures]


@dataclass
class Physics:
    """The physics of one seed. With `reshape`, models have times of the shape that it returns, point by point."""

    seed: int
    reshape: Reshape | None = None
    power_exponent: float | None = None  # None: drawn
    _gpus: dict[str, GpuPhysics] = field(default_factory=dict)
    _loads: dict[LoadKey, PhysicalLoad] = field(default_factory=dict)
    _known: dict[LoadKey, KnownFigures] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._group = lru_cache(MOST_KEPT)(self._new_group)

    def add_gpu(self, name: str, idle_w: float, max_w: float, top_clock_mhz: float) -> None:
        """Draws a kind of GPU, once."""
        if name not in self._gpus:
            drawn = draw_gpu(self.seed, name, idle_w, max_w, top_clock_mhz)
            self._gpus[name] = replace(drawn, power_exponent=self.power_exponent or drawn.power_exponent)

    def add_model(self, key: LoadKey, known: KnownFigures) -> None:
        """Notes the scale of a model on a kind of GPU. The first figures hold: later ones are somebody's belief."""
        self._known.setdefault(key, known)

    @property
    def known(self) -> Mapping[LoadKey, KnownFigures]:
        """The figures that gave models their scale."""
        return self._known

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def load(self, key: LoadKey) -> PhysicalLoad:
        """Returns the hidden figures of a model, drawn when it is first asked for."""
        if key not in self._loads:
            self._loads[key] = self._draw(key)
        return self._loads[key]

    def gpu(self, name: str) -> GpuPhysics:
        return self._gpus[name]

    def alone_ms(self, key: LoadKey, batch: float, sm_percent: float, clock_mhz: float = 0.0) -> float:
        """Returns the time of one batch with the GPU to itself."""
        return self.together((RunningLoad(key, batch, sm_percent),), clock_mhz).times_ms[0]

    def together(self, group: Sequence[RunningLoad], clock_mhz: float = 0.0) -> Group:
        """Returns the times and watts of a group on one GPU while all of it is busy."""
        gpu = self.gpu(group[0].key[-1])
        clock_share = min(1.0, clock_mhz / gpu.top_clock_mhz) if clock_mhz else 1.0
        return self._group(tuple((load.key, load.batch, load.sm_percent) for load in group), clock_share)

    def sample_ms(
        self,
        mine: RunningLoad,
        others: Sequence[RunningLoad],
        clock_mhz: float,
        random: np.random.Generator,
        count: int,
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Returns times of single batches: each neighbour is busy for as much of them as of its time."""
        if not others:
            return np.full(count, self.together([mine], clock_mhz).times_ms[0])
        busy = random.random((count, len(others))) < np.array([other.busy for other in others])
        found = np.empty(count)
        for place, row in enumerate(busy):
            active = tuple(other for other, is_busy in zip(others, row, strict=True) if is_busy)
            found[place] = self.together((mine, *active), clock_mhz).times_ms[0]
        return found

    def watts(self, gpu_type: str, residents: Sequence[RunningLoad], clock_mhz: float = 0.0) -> float:
        """Returns the mean power of a GPU whose residents are busy for parts of the time."""
        gpu = self.gpu(gpu_type)
        if not residents:
            return gpu.idle_w
        drawn = self.together(residents, clock_mhz).watts
        above = sum(watts * load.busy for watts, load in zip(drawn, residents, strict=True))
        return min(gpu.max_w, gpu.idle_w + above)

    def _draw(self, key: LoadKey) -> PhysicalLoad:
        *model, gpu_type = key
        traits, gpu = draw_traits(self.seed, "/".join(model)), self.gpu(gpu_type)
        if self.reshape is None:
            return fit_load(_deviate(self._known[key], self.seed, key), gpu, traits)
        shaped = self.reshape(key, self._known[key])
        load = fit_load(shaped, gpu, traits)
        return replace(load, beyond=Residuals.of(shaped, load, gpu))

    def _new_group(self, members: tuple[tuple[LoadKey, float, float], ...], clock_share: float) -> Group:
        gpu = self.gpu(members[0][0][-1])
        loads = [ActiveLoad(self.load(key), batch, percent / 100) for key, batch, percent in members]
        clock_share = find_clock_within_limit(gpu, loads, clock_share)
        states = paces(gpu, loads, clock_share)
        return Group(
            clock_share,
            tuple(_time_ms(gpu, load, state, clock_share) for load, state in zip(loads, states, strict=True)),
            tuple(busy_watts(gpu, load, state, clock_share) for load, state in zip(loads, states, strict=True)),
        )


def _time_ms(gpu: GpuPhysics, load: ActiveLoad, state: Pace, clock_share: float) -> float:
    alone_ms = times(load.load, gpu, load.batch, load.sm_share, clock_share).alone
    beyond = load.load.beyond.factor(load.batch, load.sm_share) if load.load.beyond else 1.0
    return alone_ms * state.slow * beyond


def _deviate(known: KnownFigures, seed: int, key: LoadKey) -> KnownFigures:
    """Returns what a declared figure really is in this draw: it was taken with other drivers and inputs."""
    *model, gpu_type = key
    of_model = generator(seed, "error", *model).normal(0.0, DECLARED_ERROR_SHARE)
    of_both = generator(seed, "error", *model, gpu_type).normal(0.0, DECLARED_ERROR_SHARE / 2)
    factor = float(np.exp(np.clip(of_model + of_both, -0.2, 0.2)))
    power = float(np.exp(generator(seed, "watts", *key).normal(0.0, DECLARED_ERROR_SHARE)))
    points = {batch: tuple((percent, ms * factor) for percent, ms in curve) for batch, curve in known.points.items()}
    return replace(known, points=points, busy_w=known.busy_w * power)


def busy_watts(gpu: GpuPhysics, resident: ActiveLoad, state: Pace, clock_share: float) -> float:
    """Returns what a busy load draws above idle. Computing follows the clock, moving does not."""
    alone = times(resident.load, gpu, resident.batch, resident.sm_share, clock_share)
    computes = resident.load.compute_w * alone.sms * min(1.0, find_occupied_share(alone, state))
    moves = resident.load.move_w * min(1.0, find_pulled_share(alone, state))
    return float(computes * clock_share**gpu.power_exponent + moves)


def find_clock_within_limit(gpu: GpuPhysics, residents: Sequence[ActiveLoad], clock_share: float) -> float:
    """Returns the clock at which all of them together stay within the GPU's limit, at most the one asked for."""
    for _ in range(3):
        states = paces(gpu, residents, clock_share)
        drawn = sum(
            busy_watts(gpu, resident, state, clock_share) for resident, state in zip(residents, states, strict=True)
        )
        room = gpu.max_w - gpu.idle_w
        if drawn <= room * 1.001:
            break
        clock_share = max(LEAST_CLOCK_SHARE, clock_share * (room / drawn) ** (1 / gpu.power_exponent))
    return clock_share
