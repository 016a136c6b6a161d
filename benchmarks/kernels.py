"""Compiled loops of the load: the accepted load of every batch at every ratio at once."""

from __future__ import annotations

from typing import Any, TypeAlias

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load

Array: TypeAlias = Any  # numba knows the exact types from the signatures


@njit("void(float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1])")
def fill_accepted_loads(rows: Array, ratio: Array, loads: Array) -> None:
    """Fill loads[level, batch, SM%] from ratio = SLO / exec and the latency table's row of each batch."""
    for level in range(ratio.shape[0]):
        for batch in range(ratio.shape[1]):
            for step in range(ratio.shape[2]):
                loads[level, batch, step] = accepted_load(rows[batch], ratio[level, batch, step])
