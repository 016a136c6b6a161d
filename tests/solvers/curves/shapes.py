"""Latencies of made models, by several physical laws, and campaigns that measure them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from random import Random

from solvers.curves.choose import next_setting
from solvers.curves.measurement import Measurement, Setting

CLOCK_MHZ = 1400
BATCHES = (1, 2, 4, 8, 16, 32)
SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
SETTINGS = [Setting(batch, share, CLOCK_MHZ) for batch, share in product(BATCHES, SHARES)]

Law = Callable[[Setting], float]


def compute_bound(setting: Setting) -> float:
    """Work divided by the SMs, after a fixed part."""
    return 0.5 + (3.0 + 8.0 * setting.batch) * 20.0 / setting.sm_percent * CLOCK_MHZ / setting.clock_mhz


def launch_bound(setting: Setting) -> float:
    """The host launches kernels for 9 ms, and the GPU is done before it unless the batch is large."""
    return max(9.0, 1.5 * setting.batch * 40.0 / setting.sm_percent * CLOCK_MHZ / setting.clock_mhz)


def memory_bound(setting: Setting) -> float:
    """Bandwidth is reached with a third of the SMs."""
    return 4.0 + 2.0 * setting.batch * (1.0 + 30.0 / min(setting.sm_percent, 33.0))


def transfer_bound(setting: Setting) -> float:
    """Half of the time goes over PCIe, whatever the share."""
    return 2.0 + 1.5 * setting.batch + 1.5 * setting.batch * 30.0 / setting.sm_percent


def power_law(setting: Setting) -> float:
    return float(30.0 * setting.batch**0.7 * setting.sm_percent**-0.6)


LAWS: dict[str, Law] = {
    "compute bound": compute_bound,
    "launch bound": launch_bound,
    "memory bound": memory_bound,
    "transfer bound": transfer_bound,
    "power law": power_law,
}


def measured(setting: Setting, law: Law, noise: float = 0.0, seed: int = 0) -> Measurement:
    """Measures a setting with a relative error, the same at each setting for a seed."""
    draw = Random(f"{seed} {setting}").gauss(0.0, noise)
    return Measurement(setting.batch, setting.sm_percent, setting.clock_mhz, law(setting) * (1.0 + draw), 0.0, 1)


def campaign(law: Law, most: int = 16, noise: float = 0.0, seed: int = 0, accuracy: float = 0.0) -> list[Measurement]:
    """Returns what a campaign measures, in its order."""
    return list(_campaign(law, most, noise, seed, accuracy))


@cache  # each setting is chosen by fits to all before it
def _campaign(law: Law, most: int, noise: float, seed: int, accuracy: float) -> tuple[Measurement, ...]:
    done: list[Measurement] = []
    while (setting := next_setting(done, SETTINGS, accuracy, most)) is not None:
        done.append(measured(setting, law, noise, seed))
    return tuple(done)
