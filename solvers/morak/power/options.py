"""The options of one GPU: every split x batch x clock that no other beats at fewer watts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.morak.power.kernels import enumerate_splits
from solvers.morak.power.problem import PoweredResident
from solvers.planning.problem import GpuType

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]

LET_GO = 1e-10  # relative, above each limit: less than the judge tolerates, so that any order of adding passes it
MOST_WRITTEN = 200_000
UNLIMITED = 2**31


@dataclass(frozen=True, slots=True)
class PowerOption:
    """One possible setting of a GPU, with its watts above idle and its worth."""

    watts: float
    worth_per_second: float
    clock_mhz: float = 0.0
    residents: tuple[PoweredResident, ...] = ()


IDLE = PowerOption(0.0, 0.0)


@dataclass(frozen=True)
class PowerTables:
    """The items of a GPU type, each a model at an SM%, as arrays."""

    gpu_type: GpuType
    models: tuple[str, ...]
    model: Whole  # per item, its index in `models`
    share: Whole
    batch: Whole  # per column
    exec_ms: Numbers  # [item, batch] alone, at the top clock; infinite where not measured
    memory_gib: Numbers
    pressure: Numbers
    sensitivity: Numbers
    limit_ms: Numbers
    batch_worth: Numbers  # weight x batch x 1000
    most_worth: Numbers  # of an item, per second
    slower: Numbers  # [item, clock]
    power_w: Numbers
    kind: Whole  # of an item; a GPU has at most `most_alike` of each
    most_alike: int = UNLIMITED

    def only(self, items: Whole) -> PowerTables:
        """Returns the same tables with fewer items."""
        rows = {
            name: getattr(self, name)[items]
            for name in ("model", "share", "exec_ms", "memory_gib", "pressure", "sensitivity", "limit_ms",
                         "batch_worth", "most_worth", "slower", "power_w", "kind")
        }  # fmt: skip
        return replace(self, **rows)

    def fits_memory(self) -> NDArray[np.bool_]:
        """Returns, by [item, batch], whether it fits into memory alone."""
        fits: NDArray[np.bool_] = self.memory_gib <= self.gpu_type.memory_gib * (1 + LET_GO)
        return fits

    def best_alone(self) -> Numbers:
        """Returns, by [item, clock], the worth of an item alone on the GPU; with neighbours it is worth less."""
        took = self.exec_ms[:, None, :] * self.slower[:, :, None]
        right = (took <= self.limit_ms[:, None, None] * (1 + LET_GO)) & self.fits_memory()[:, None, :]
        worth = np.where(right, self.batch_worth[:, None, :] / np.where(right, took, 1.0), 0.0)
        best: Numbers = np.minimum(worth.max(axis=2, initial=0.0), self.most_worth[:, None])
        return best


def enumerate_options(
    items: PowerTables, cap_w: float, most: int, budget: int, fixed: tuple[int, ...] = (), *, only_best: bool = False
) -> tuple[list[PowerOption], int] | None:
    """Returns the options of a GPU by rising watts and worth, and the number of sets examined.

    The `fixed` items are part of every option but the idle one. With `only_best` the one of most worth is the only
    other option. Returns None if more than `budget` sets would have to be examined.
    """
    visited = np.zeros(1, np.int64)
    if not len(items.share) or items.gpu_type.idle_w > cap_w * (1 + LET_GO):
        return [IDLE], 0
    room = min(MOST_WRITTEN, budget * len(items.gpu_type.clocks_mhz) + 1)
    out_items = np.zeros((room, 2 * most + 2), np.int64)
    out_values = np.zeros((room, 2))
    written = enumerate_splits(
        items.share, items.kind, items.exec_ms, items.memory_gib, items.pressure, items.sensitivity, items.limit_ms,
        items.batch_worth, items.most_worth, items.slower, items.power_w, items.gpu_type.memory_gib * (1 + LET_GO),
        items.gpu_type.idle_w, cap_w, most, items.most_alike, np.array(fixed, np.int64),
        _find_worth_per_percent(items) if only_best else np.zeros(0), budget, -LET_GO, out_items, visited, out_values,
    )  # fmt: skip
    if written < 0:
        return None
    watts, worth = out_values[:written, 0] - items.gpu_type.idle_w, out_values[:written, 1]
    options = [IDLE]
    for row in np.lexsort((np.arange(written), -worth, watts)):
        if worth[row] > options[-1].worth_per_second:
            option = _option(items, most, out_items[row], float(watts[row]), float(worth[row]))
            options = options[:-1] if option.watts <= options[-1].watts else options
            options.append(option)
    return options, int(visited[0])


def _find_worth_per_percent(items: PowerTables) -> Numbers:
    """Returns the most worth of an SM% of each item, or of any after it."""
    alone = items.best_alone().max(axis=1, initial=0.0) / np.maximum(items.share, 1)
    found: Numbers = np.maximum.accumulate(alone[::-1])[::-1] * (1 + LET_GO)
    return found


def _option(items: PowerTables, most: int, row: Whole, watts: float, worth: float) -> PowerOption:
    residents = tuple(
        sorted(
            PoweredResident(
                items.models[items.model[row[place]]],
                int(items.share[row[place]]),
                int(items.batch[row[most + place]]),
            )
            for place in range(int(row[2 * most]))
        )
    )
    return PowerOption(max(watts, 0.0), worth, items.gpu_type.clocks_mhz[int(row[2 * most + 1])], residents)


def narrow_options(
    items: PowerTables, cap_w: float, most: int, budget: int, *, only_best: bool = False
) -> tuple[list[PowerOption], int]:
    """Returns the options over as many items as the budget allows, preferring items of most worth per SM%."""
    rank = np.argsort(-items.best_alone().max(axis=1, initial=0.0) / np.maximum(items.share, 1), kind="stable")
    count = len(rank)
    while count:
        found = enumerate_options(items.only(np.sort(rank[:count])), cap_w, most, budget, only_best=only_best)
        if found:
            return found
        count //= 2
    return [IDLE], 0
